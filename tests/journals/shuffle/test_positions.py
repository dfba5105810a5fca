"""Where a slice stands in a journal."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadState
from penstock.journals.shuffle.sequencing.sequencing import Sequence
from penstock.journals.shuffle.slices.positions import JournalPosition, Track
from penstock.journals.shuffle.visibility.frontier import Mark

CLOCKS = st.integers(1, (1 << 64) - 1)
OFFSETS = st.integers(0, (1 << 63) - 1)
SEQUENCES = st.one_of(
    st.integers(0, (1 << 64) - 1).map(Sequence), st.builds(Sequence, CLOCKS, CLOCKS, OFFSETS)
)
POSITIONS = st.builds(
    JournalPosition,
    OFFSETS,
    st.dictionaries(st.integers(0, (1 << 48) - 1), st.builds(Track, SEQUENCES, OFFSETS), max_size=4),
    OFFSETS,
    OFFSETS,
)


@given(POSITIONS)
def test_a_position_survives_json(position: JournalPosition) -> None:
    assert JournalPosition.from_state(json.loads(json.dumps(position.to_state()))) == position


def test_a_journal_that_was_never_read_stands_at_its_begin() -> None:
    assert JournalPosition.from_state(None) == JournalPosition()
    assert JournalPosition().clock == 0


def test_the_clock_is_the_newest_that_was_read() -> None:
    tracks = {1: Track(Sequence(50)), 2: Track(Sequence(10, 70, 5)), 3: Track(Sequence(60))}
    assert JournalPosition(100, tracks).clock == 70


def test_a_mark_says_where_the_open_transaction_begins_or_the_last_line_ends() -> None:
    assert Track(Sequence(50), 90).mark(7) == Mark(7, 50, 0, -90)
    assert Track(Sequence(50, 70, 60), 90).mark(7) == Mark(7, 50, 0, 60)


PRODUCER = "010000000007"


@pytest.mark.parametrize(
    "change",
    [
        lambda body: [],
        lambda body: 3,
        lambda body: {},
        lambda body: body | {"version": 9},
        lambda body: body | {"more": 1},
        lambda body: body | {"offset": -1},
        lambda body: body | {"offset": 1 << 63},
        lambda body: body | {"offset": True},
        lambda body: body | {"left_out": "1"},
        lambda body: body | {"lost": None},
        lambda body: body | {"producers": []},
        lambda body: body | {"producers": {"x": [1, 0, -1, 5]}},
        lambda body: body | {"producers": {"7": [1, 0, -1, 5]}},
        lambda body: body | {"producers": {" 1000000000a": [1, 0, -1, 5]}},
        lambda body: body | {"producers": {PRODUCER: 5}},
        lambda body: body | {"producers": {PRODUCER: [1, 0, -1]}},
        lambda body: body | {"producers": {PRODUCER: [1 << 64, 0, -1, 5]}},
        lambda body: body | {"producers": {PRODUCER: [1, 0, -2, 5]}},
        lambda body: body | {"producers": {PRODUCER: [1, 0, -1, -5]}},
        lambda body: body | {"producers": {PRODUCER: [1, 0, 3, 5]}},
        lambda body: body | {"producers": {PRODUCER: [1, 9, -1, 5]}},
    ],
)
def test_anything_else_is_a_bad_state(change: Callable[[dict[str, Any]], Any]) -> None:
    body = JournalPosition(100, {1 << 40 | 7: Track(Sequence(50), 90)}).to_state()
    with pytest.raises(BadState):
        JournalPosition.from_state(change(body))
