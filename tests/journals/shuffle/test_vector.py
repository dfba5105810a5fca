"""Columns of documents, against `step` row by row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.journals.format.uuids import Flag
from penstock.journals.shuffle.sequencing.sequencing import (
    BadSequence,
    DocumentOutcome,
    PartialCommit,
    Sequence,
    step,
)
from penstock.journals.shuffle.sequencing.vector import (
    DROPPED,
    OPEN,
    SETTLED,
    DocumentDecisions,
    Documents,
    Replay,
    decide,
    replayed,
)

Row: TypeAlias = tuple[int, int, int, int]
"""Group, flag, clock and offset."""

O, C, A = Flag.OUTSIDE, Flag.CONTINUE, Flag.ACK  # noqa: E741
FULL = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def documents(rows: Iterable[Row]) -> Documents:
    listed = list(rows)
    group, flag, clock, offset = zip(*listed, strict=True) if listed else ((), (), (), ())
    return Documents(
        np.array(group, np.int64),
        np.array(flag, np.uint8),
        np.array(clock, np.uint64),
        np.array(offset, np.int64),
    )


def one_group(*pairs: tuple[Flag, int], offset: int = 0) -> Documents:
    return documents((0, flag, clock, offset + number) for number, (flag, clock) in enumerate(pairs))


def verdicts(decision: DocumentDecisions) -> list[tuple[int, int]]:
    return list(zip(decision.verdict.tolist(), decision.commit.tolist(), strict=True))


@dataclass
class Fold:
    """What `step` says, document by document."""

    sequences: dict[int, Sequence] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, list[int]] = field(default_factory=dict)

    def read(self, rows: Iterable[Row]) -> None:
        for group, flag, clock, offset in rows:
            before = self.sequences.get(group, Sequence())
            self.sequences[group], outcome = step(before, Flag(flag), clock, offset)
            waiting = self.waiting.setdefault(group, [])
            if outcome is DocumentOutcome.COMMITTED:
                self.settled[offset] = clock
            elif outcome in (DocumentOutcome.CONTINUE_BEGINS, DocumentOutcome.CONTINUE_EXTENDS):
                waiting.append(offset)
            elif outcome is DocumentOutcome.ACK_COMMITS:
                self.settled |= dict.fromkeys(waiting, clock)
                waiting.clear()
            elif outcome in (DocumentOutcome.ACK_CLEANLY_ROLLS_BACK, DocumentOutcome.ACK_DEEP_ROLLS_BACK):
                waiting.clear()

    def verdict(self, offset: int) -> tuple[int, int]:
        if any(offset in waiting for waiting in self.waiting.values()):
            return OPEN, 0
        return (SETTLED, self.settled[offset]) if offset in self.settled else (DROPPED, 0)


GROUPS = 3


def some_rows(draw: st.DrawFn) -> list[Row]:
    """Mostly as producers write, with repetitions, roll-backs and nonsense in between."""
    clocks = [0] * GROUPS
    rows: list[Row] = []
    for offset in range(draw(st.integers(0, 40))):
        group = draw(st.integers(0, GROUPS - 1))
        flag = draw(st.sampled_from([C, C, C, A, O]))
        ahead = draw(st.sampled_from([1, 1, 1, 1, 1, 1, 2, 0, -1, -3]))
        clock = max(clocks[group] + ahead, 0)
        clocks[group] = max(clocks[group], clock)
        rows.append((group, flag, clock, offset))
    return rows


@st.composite
def any_logs(draw: st.DrawFn) -> list[Row]:
    return some_rows(draw)


@st.composite
def good_logs(draw: st.DrawFn) -> list[Row]:
    """Without the documents that are errors."""
    fold, rows = Fold(), []
    for row in some_rows(draw):
        try:
            fold.read([row])
        except BadSequence:
            continue
        rows.append(row)
    return rows


@given(any_logs())
@FULL
def test_columns_are_decided_as_by_step(rows: list[Row]) -> None:
    fold = Fold()
    try:
        fold.read(rows)
    except BadSequence:
        with pytest.raises(BadSequence):
            decide(documents(rows), [Sequence()] * GROUPS)
        return
    found = decide(documents(rows), [Sequence()] * GROUPS)
    assert verdicts(found) == [fold.verdict(offset) for *_, offset in rows]
    assert found.after == [fold.sequences.get(group, Sequence()) for group in range(GROUPS)]
    assert found.replays == []


@given(good_logs(), st.data())
@FULL
def test_it_does_not_matter_where_the_reading_is_cut(rows: list[Row], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    handed: list[tuple[int, int]] = []
    sequences = [Sequence()] * GROUPS
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[begin:end]
        found = decide(documents(part), sequences)
        sequences = found.after
        for (*_, offset), (verdict, commit) in zip(part, verdicts(found), strict=True):
            if verdict == SETTLED:
                handed.append((offset, commit))
        for replay in found.replays:
            again = [row for row in rows if row[0] == replay.group]
            picked = replayed(replay, documents(again))
            handed += [(row[3], replay.upto) for row, pick in zip(again, picked, strict=True) if pick]
    fold = Fold()
    fold.read(rows)
    assert sorted(handed) == sorted(fold.settled.items())
    assert sequences == [fold.sequences.get(group, Sequence()) for group in range(GROUPS)]


@given(good_logs(), st.data())
@FULL
def test_a_second_reading_hands_nothing_on_twice(rows: list[Row], data: st.DataObject) -> None:
    """It begins anywhere up to the first open document, and knows the last commits."""
    first = decide(documents(rows), [Sequence()] * GROUPS)
    begins = [sequence.begin for sequence in first.after if sequence.is_open]
    offsets = [offset for *_, offset in rows]
    latest = min((offsets.index(begin) for begin in begins), default=len(rows))
    again = rows[data.draw(st.integers(0, latest)) :]
    second = decide(documents(again), [Sequence(each.last_commit) for each in first.after])
    assert not np.any(second.verdict == SETTLED)
    assert second.after == first.after


# by hand


def test_nothing_at_all() -> None:
    found = decide(documents([]), [Sequence(3), Sequence()])
    assert (verdicts(found), found.after, found.replays) == ([], [Sequence(3), Sequence()], [])
    assert verdicts(decide(documents([]), [])) == []


def test_groups_lie_between_each_other() -> None:
    rows = [(1, C, 5, 0), (0, O, 7, 1), (1, C, 6, 2), (0, C, 8, 3), (1, A, 6, 4), (1, C, 9, 5)]
    found = decide(documents(rows), [Sequence(1), Sequence(2)])
    assert verdicts(found) == [(SETTLED, 6), (SETTLED, 7), (SETTLED, 6), (OPEN, 0), (DROPPED, 0), (OPEN, 0)]
    assert found.after == [Sequence(7, 8, 3), Sequence(6, 9, 5)]


def test_clocks_of_64_bits() -> None:
    last = (1 << 64) - 1
    found = decide(one_group((C, last - 1), (A, last)), [Sequence(1 << 63)])
    assert (verdicts(found), found.after) == ([(SETTLED, last), (DROPPED, 0)], [Sequence(last)])
    slow = decide(one_group((C, last - 1), (C, last - 1), (A, last)), [Sequence(1 << 63)])
    assert verdicts(slow) == [(SETTLED, last), (DROPPED, 0), (DROPPED, 0)]


@pytest.mark.parametrize("surprise", [[], [(C, 4)]])
def test_what_was_open_before_is_read_again(surprise: list[tuple[Flag, int]]) -> None:
    rows = [*surprise, (C, 6), (A, 8), (C, 9)]
    found = decide(one_group(*rows, offset=50), [Sequence(2, 5, 20)])
    assert found.replays == [Replay(0, 20, 50, 2, 8)]
    assert found.after == [Sequence(8, 9, 52 + len(surprise))]
    assert verdicts(found)[len(surprise) :] == [(SETTLED, 8), (DROPPED, 0), (OPEN, 0)]


def test_what_was_open_before_and_rolled_back_is_not() -> None:
    found = decide(one_group((C, 6), (A, 2), (C, 7), (A, 8), offset=50), [Sequence(2, 5, 20)])
    assert found.replays == []
    assert verdicts(found) == [(DROPPED, 0), (DROPPED, 0), (SETTLED, 8), (DROPPED, 0)]


def test_what_stays_open_keeps_its_begin() -> None:
    found = decide(one_group((C, 6), offset=50), [Sequence(2, 5, 20)])
    assert (found.after, found.replays) == ([Sequence(2, 6, 20)], [])


def test_of_the_documents_read_again_each_is_handed_on_once() -> None:
    again = one_group((C, 3), (A, 2), (C, 3), (C, 2), (C, 4), (C, 3), (C, 4), (C, 6), (A, 8), offset=18)
    assert replayed(Replay(0, 20, 24, 2, 8), again).tolist() == [
        False,
        False,
        True,
        False,
        True,
        False,
        False,
        False,
        False,
    ]
    assert replayed(Replay(0, 20, 24, 2, 8), documents([])).tolist() == []


def test_an_error_names_what_it_is_about() -> None:
    rows = [(0, O, 1, 0), (1, C, 5, 1), (1, A, 4, 2)]
    with pytest.raises(PartialCommit, match=r"^journal 'b', producer 000000000007: the ack with clock 4 "):
        decide(documents(rows), [Sequence()] * 2, lambda group: ("ab"[group], 7))
    with pytest.raises(PartialCommit, match=r"^the ack with clock 4 "):
        decide(documents(rows), [Sequence()] * 2)


def test_columns_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="none of the 1"):
        decide(documents([(1, O, 1, 0)]), [Sequence()])
    with pytest.raises(ValueError, match="none of the 1"):
        decide(documents([(-1, O, 1, 0)]), [Sequence()])
    with pytest.raises(ValueError, match="3 is not a valid Flag"):
        decide(documents([(0, 3, 1, 0)]), [Sequence()])
    with pytest.raises(ValueError, match="differ in length"):
        Documents(np.zeros(1, np.int64), np.zeros(2, np.uint8), np.zeros(1, np.uint64), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="not int64"):
        Documents(np.zeros(1, np.int64), np.zeros(1, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64))


@pytest.mark.parametrize("groups", [32, 70_000])
def test_many_documents(groups: int) -> None:
    count = 200_000
    group = np.random.default_rng(7).integers(0, groups, count)
    turn = np.arange(count, dtype=np.uint64)
    flag = np.where(turn % 5 == 4, np.uint8(A), np.uint8(C))
    found = decide(Documents(group, flag, turn + 1, turn.astype(np.int64)), [Sequence()] * groups)
    assert not np.any(found.verdict[flag == A])


def test_what_forms_no_transactions_can_be_dropped() -> None:
    rows = one_group((C, 1), (O, 2), (C, 3), (C, 5), (A, 4), (C, 6), (A, 7))
    with pytest.raises(BadSequence):
        decide(rows, [Sequence()])
    found = decide(rows, [Sequence()], drops=True)
    assert [verdict for verdict, _ in verdicts(found)] == [
        DROPPED, SETTLED, DROPPED, DROPPED, DROPPED, SETTLED, DROPPED
    ]  # fmt: skip
    assert found.commit[5] == 7
    assert found.after == [Sequence(7)]
    assert [(group, type(error).__name__) for group, error in found.dropped] == [
        (0, "OutsideInTransaction"),
        (0, "PartialCommit"),
    ]


def test_what_was_open_before_and_is_dropped_is_not_read_again() -> None:
    found = decide(one_group((O, 9), (A, 10), offset=50), [Sequence(1, 5, 20)], drops=True)
    assert found.replays == []
    assert [verdict for verdict, _ in verdicts(found)] == [SETTLED, DROPPED]
    assert found.after == [Sequence(10)]
