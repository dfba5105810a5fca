from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadState
from penstock.journals.shuffle.sequencing.parsing import LARGEST_CLOCK, LARGEST_OFFSET, LARGEST_PRODUCER
from penstock.journals.shuffle.visibility.frontier import (
    Frontier,
    Mark,
    drain,
    gather,
    is_resolved,
    project_unresolved_hints,
    reduce,
    resolve_hints,
    unresolved,
)

FULL = settings(max_examples=200, deadline=None, derandomize=True, database=None)

_clocks = st.integers(0, 4) | st.integers(0, LARGEST_CLOCK)
_offsets = st.integers(-3, 3) | st.integers(-LARGEST_OFFSET, LARGEST_OFFSET)
_producers = st.integers(0, 3) | st.integers(0, LARGEST_PRODUCER)
_names = st.text("ab/é\U0001f600", max_size=5)
_marks = st.builds(Mark, _producers, _clocks, _clocks, _offsets)
_journals = st.lists(_marks, max_size=5, unique_by=lambda mark: mark.producer).map(tuple)
frontiers = st.dictionaries(_names, _journals, max_size=5).map(Frontier)


def absolute(frontier: Frontier) -> list[tuple[str, int, int, int, int]]:
    """All of a frontier but the signs of the offsets, which are what ties are about."""
    return [(name, m.producer, m.last_commit, m.hinted_commit, abs(m.offset)) for name, m in frontier]


# what a frontier is


def test_a_frontier_is_sorted_whatever_it_was_built_from() -> None:
    found = Frontier({"b": (Mark(2), Mark(1)), "c": (), "a": (Mark(9),)})
    assert list(found) == [("a", Mark(9)), ("b", Mark(1)), ("b", Mark(2))]
    assert list(found.journals) == ["a", "b"]
    assert len(found) == 3
    assert found == Frontier.of([("b", Mark(1)), ("a", Mark(9)), ("b", Mark(2))])
    assert pickle.loads(pickle.dumps(found)) == found
    assert not Frontier() and not Frontier({"c": ()}).journals


def test_a_producer_has_one_mark_in_a_journal() -> None:
    with pytest.raises(ValueError, match="producer 000000000007 has two marks in journal 'a'"):
        Frontier.of([("a", Mark(7, 1)), ("a", Mark(3)), ("a", Mark(7, 2))])


# reduce


def test_reduce_takes_what_is_farther() -> None:
    left = Frontier({"a": (Mark(1, 5, 2, -100), Mark(2, 1, 1, 7)), "b": (Mark(1, 1),)})
    right = Frontier({"a": (Mark(1, 3, 4, 99), Mark(3)), "c": (Mark(1, 2),)})
    assert reduce(left, right) == Frontier(
        {"a": (Mark(1, 5, 4, -100), Mark(2, 1, 1, 7), Mark(3)), "b": (Mark(1, 1),), "c": (Mark(1, 2),)}
    )


def test_of_equal_distances_the_left_one_counts() -> None:
    begins, ends = Frontier({"a": (Mark(1, 5, 0, 70),)}), Frontier({"a": (Mark(1, 6, 0, -70),)})
    assert reduce(begins, ends).journals["a"] == (Mark(1, 6, 0, 70),)
    assert reduce(ends, begins).journals["a"] == (Mark(1, 6, 0, -70),)


@given(frontiers, frontiers, frontiers)
@FULL
def test_reduce_is_associative(one: Frontier, two: Frontier, three: Frontier) -> None:
    assert reduce(reduce(one, two), three) == reduce(one, reduce(two, three))


@given(frontiers, frontiers)
@FULL
def test_reduce_is_idempotent_and_commutes_but_for_ties(one: Frontier, two: Frontier) -> None:
    both = reduce(one, two)
    assert reduce(one, one) == one == reduce(one, Frontier()) == reduce(Frontier(), one)
    assert reduce(both, two) == both == reduce(one, both)
    assert absolute(both) == absolute(reduce(two, one))


# hints


def test_a_hint_is_resolved_when_it_is_fully_reached_and_no_further() -> None:
    cut = Frontier({"a": (Mark(1, 5, 9, 70), Mark(2, 5, 9, -3), Mark(3, 9, 5, 1)), "b": (Mark(1, 0, 9),)})
    progress = Frontier({"a": (Mark(1, 12, 20, -500), Mark(2, 8), Mark(3, 99))})
    resolved = resolve_hints(cut, progress)
    assert resolved == Frontier(
        {"a": (Mark(1, 9, 9, 70), Mark(2, 5, 9, -3), Mark(3, 9, 5, 1)), "b": (Mark(1, 0, 9),)}
    )
    assert list(unresolved(resolved)) == [("a", 2, 9), ("b", 1, 9)]
    assert project_unresolved_hints(resolved) == Frontier({"a": (Mark(2, 5, 9, -3),), "b": (Mark(1, 0, 9),)})
    assert not is_resolved(resolved)
    assert is_resolved(resolve_hints(resolved, Frontier({"a": (Mark(2, 9),), "b": (Mark(1, 9),)})))


@given(frontiers, frontiers)
@FULL
def test_what_remains_after_resolving_was_not_reached(cut: Frontier, progress: Frontier) -> None:
    reached = {(name, mark.producer): mark.last_commit for name, mark in progress}
    resolved = resolve_hints(cut, progress)
    before, after = set(unresolved(cut)), set(unresolved(resolved))
    assert after == {hint for hint in before if reached.get(hint[:2], 0) < hint[2]}
    assert is_resolved(resolved) == (not after) == (not project_unresolved_hints(resolved))
    assert [mark.offset for _, mark in resolved] == [mark.offset for _, mark in cut]


# as JSON


@given(frontiers, st.integers(1, 6))
@FULL
def test_a_frontier_survives_its_forms(frontier: Frontier, size: int) -> None:
    assert Frontier.from_json(json.loads(json.dumps(frontier.to_json()))) == frontier
    chunks = list(drain(frontier, size))
    counts = [sum(len(marks) for _, marks in chunk) for chunk in chunks]
    assert sum(counts) == len(frontier) and all(count == size for count in counts[:-1])
    assert gather(json.loads(json.dumps(chunks))) == frontier


def test_names_are_written_as_what_is_new_in_them() -> None:
    frontier = Frontier(
        {"acme/orders": (Mark(1, 2, 3, 4), Mark(2)), "acme/orders/1": (Mark(1), Mark(2)), "b": (Mark(1),)}
    )
    assert list(drain(frontier, 3)) == [
        [[[0, "acme/orders"], [[1, 2, 3, 4], [2, 0, 0, 0]]], [[11, "/1"], [[1, 0, 0, 0]]]],
        [[[0, "acme/orders/1"], [[2, 0, 0, 0]]], [[0, "b"], [[1, 0, 0, 0]]]],
    ]
    assert list(drain(Frontier(), 3)) == []
    with pytest.raises(ValueError, match="at least one mark, not 0"):
        list(drain(frontier, 0))


def whole(*journals: Any, **others: Any) -> Any:
    return {"version": 1, "journals": list(journals)} | others


GOOD = [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "a frontier is None, not an object"),
        ([], "a frontier is of type list, not an object"),
        ({}, "version None, and this Penstock knows 1"),
        ({"version": 2, "journals": []}, "version 2, and"),
        ({"version": True, "journals": []}, "version True, and"),
        ({"version": "1", "journals": []}, "version '1', and"),
        ({"version": 1}, "keys, or must not have them: 'journals'"),
        (whole(more=1), "must not have them: 'more'"),
        ({"version": 1, "journals": {"a": [GOOD]}}, "the list of journals is of type dict, not a list"),
        (whole("a"), "a journal is 'a', not a list"),
        (whole(["a"]), "a journal has 1 elements, not 2"),
        (whole([7, [GOOD]]), "the name of a journal is 7, not text"),
        (whole(["\ud800", [GOOD]]), "half of a character"),
        (whole(["a", []]), "journal 'a' has no marks"),
        (whole(["a", None]), "a list of marks is None"),
        (whole(["a", [[1, 2, 3]]]), "a mark has 3 elements, not 4"),
        (whole(["a", [[-1, 0, 0, 0]]]), "a producer is -1, not an integer from 0 to 281474976710655"),
        (whole(["a", [[1 << 48, 0, 0, 0]]]), "a producer is 281474976710656"),
        (whole(["a", [[1, -1, 0, 0]]]), "a last commit is -1"),
        (whole(["a", [[1, 1 << 64, 0, 0]]]), "a last commit is 18446744073709551616"),
        (whole(["a", [[1, 0, 10**5000, 0]]]), "a hinted commit is an integer of 16610 bits"),
        (whole(["a", [[1, 0, 1.0, 0]]]), "a hinted commit is 1.0"),
        (whole(["a", [[1, 0, True, 0]]]), "a hinted commit is True"),
        (whole(["a", [[1, 0, 0, 1 << 63]]]), "an offset is 9223372036854775808"),
        (whole(["a", [[1, 0, 0, -1 << 63]]]), "an offset is -9223372036854775808"),
        (whole(["a", [[1, 0, 0, None]]]), "an offset is None"),
        (whole(["a", [[1, 0, 0, float("nan")]]]), "an offset is nan"),
        (whole(["a", [GOOD, GOOD]]), "in journal 'a', producer 000000000001 comes after 000000000001"),
        (whole(["a", [[2, 0, 0, 0], GOOD]]), "producer 000000000001 comes after 000000000002"),
        (whole(["a", [GOOD]], ["a", [GOOD]]), "journal 'a' comes after 'a'"),
        (whole(["b", [GOOD]], ["a", [GOOD]]), "journal 'a' comes after 'b'"),
    ],
)
def test_what_is_wrong_is_said(found: Any, why: str) -> None:
    with pytest.raises(BadState) as caught:
        Frontier.from_json(found)
    assert why in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([None], "a chunk is None"),
        ([[["a", [GOOD]]]], "the name of a journal is 'a', not a list"),
        ([[[[0, "a", 1], [GOOD]]]], "has 3 elements, not 2"),
        ([[[[1, "a"], [GOOD]]]], "what a name keeps of the one before is 1, not an integer from 0 to 0"),
        ([[[[0, "a"], [GOOD]], [[2, "b"], [GOOD]]]], "is 2, not an integer from 0 to 1"),
        ([[[[-1, "a"], [GOOD]]]], "is -1, not an integer"),
        ([[[[0, None], [GOOD]]]], "the suffix of a name is None"),
        ([[[[0, "a"], [GOOD]], [[1, ""], [[2, 0, 0, 0]]]]], "journal 'a' comes after 'a'"),
        ([[[[0, "a"], [GOOD]]], [[[0, "a"], [GOOD]]]], "producer 000000000001 comes after 000000000001"),
        ([[[[0, "b"], [GOOD]]], [[[0, "a"], [GOOD]]]], "journal 'a' comes after 'b'"),
    ],
)
def test_what_is_wrong_with_chunks_is_said(chunks: Any, why: str) -> None:
    with pytest.raises(BadState) as caught:
        gather(chunks)
    assert why in str(caught.value)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(_json)
@FULL
def test_anything_else_is_a_bad_state(found: Any) -> None:
    with pytest.raises(BadState):
        Frontier.from_json(found)
    with pytest.raises(BadState):
        Frontier.from_json({"version": 1, "journals": [found]})
    with pytest.raises(BadState):
        gather([[found]])


def test_large_frontiers_merge() -> None:
    names = [f"acme/orders/{number:05}" for number in range(2_000)]
    one = Frontier({name: tuple(Mark(p, 5, 0, p) for p in range(20)) for name in names})
    two = Frontier({name: tuple(Mark(p, 6, 0, p) for p in range(20)) for name in names})
    merged = reduce(one, two)
    assert len(merged) == 40_000 and merged == two
