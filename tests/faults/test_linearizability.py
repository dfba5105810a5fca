from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.generated import happened, mutated, possible
from tests.faults.linearizability import check
from tests.faults.register import Conflict, Operation, Outcome, Read, Unknown, Written

ABSENT = Read(None, None)
Told = tuple[int, int, Outcome]


def told(*operations: Told, key: str = "k") -> list[Operation]:
    return [Operation(f"client-{i}", key, *operation) for i, operation in enumerate(operations)]


GOOD: dict[str, list[Told]] = {
    "nothing": [],
    "one after the other": [
        (0, 1, ABSENT),
        (2, 3, Written(0, b"a", 1)),
        (4, 5, Read(b"a", 1)),
        (6, 7, Written(1, b"b", 5)),
        (8, 9, Conflict(1, b"c")),
        (10, 11, Read(b"b", 5)),
    ],
    "a read beside a write sees the old or the new": [
        (0, 1, Written(0, b"a", 1)),
        (2, 9, Written(1, b"b", 2)),
        (3, 4, Read(b"a", 1)),
        (5, 6, Read(b"b", 2)),
    ],
    "of two creates, one conflicts": [(0, 5, Conflict(0, b"b")), (1, 4, Written(0, b"a", 1))],
    "a lost write that was applied": [
        (0, 1, Unknown(0, b"a")),
        (2, 3, Read(b"a", 7)),
        (4, 5, Written(7, b"b", 8)),
    ],
    "a lost write that was applied much later": [
        (0, 1, Unknown(0, b"a")),
        (2, 3, ABSENT),
        (4, 5, ABSENT),
        (6, 7, Read(b"a", 1)),
    ],
    "a lost write that never was": [(0, 1, Unknown(0, b"a")), (2, 3, ABSENT), (4, 5, Written(0, b"b", 1))],
    "a lost write that nobody read is replaced by one who knows its version": [
        (0, 1, Unknown(0, b"a")),
        (2, 3, Conflict(4, b"b")),
        (4, 5, Written(6, b"b", 7)),
    ],
    "one of two lost writes": [
        (0, 1, Written(0, b"a", 1)),
        (2, 3, Unknown(1, b"b")),
        (2, 3, Unknown(1, b"c")),
        (4, 5, Read(b"c", 3)),
        (6, 7, Conflict(1, b"d")),
    ],
    "lost writes on top of each other": [
        (0, 1, Unknown(0, b"a")),
        (0, 1, Unknown(3, b"b")),
        (0, 1, Unknown(5, None)),
        (8, 9, Written(0, b"c", 7)),
    ],
    "deleted and made again": [
        (0, 1, Written(0, b"a", 1)),
        (2, 3, Written(1, None, 2)),
        (4, 5, ABSENT),
        (6, 7, Conflict(2, b"b")),
        (8, 9, Written(0, b"b", 3)),
    ],
}

BAD: dict[str, list[Told]] = {
    "a stale read": [
        (0, 1, Written(0, b"a", 1)),
        (2, 3, Written(1, b"b", 2)),
        (4, 5, Read(b"a", 1)),
    ],
    "a read goes back while the write is under way": [
        (0, 1, Written(0, b"a", 1)),
        (2, 9, Written(1, b"b", 2)),
        (3, 4, Read(b"b", 2)),
        (5, 6, Read(b"a", 1)),
    ],
    "an acked write is lost": [(0, 1, Written(0, b"a", 1)), (2, 3, ABSENT)],
    "one version is replaced twice": [
        (0, 1, Written(0, b"a", 1)),
        (2, 5, Written(1, b"b", 2)),
        (3, 4, Written(1, b"c", 3)),
    ],
    "two creates": [(0, 3, Written(0, b"a", 1)), (1, 2, Written(0, b"b", 2))],
    "a conflict for a write that was applied": [
        (0, 1, Written(0, b"a", 1)),
        (2, 3, Conflict(1, b"b")),
        (4, 5, Read(b"b", 2)),
    ],
    "a conflict without a reason": [(0, 1, Written(0, b"a", 1)), (2, 3, Conflict(1, b"b"))],
    "a deleted value comes back": [
        (0, 1, Written(0, b"a", 1)),
        (2, 3, Written(1, None, 2)),
        (4, 5, Read(b"a", 1)),
    ],
    "a lost write is applied twice": [
        (0, 1, Unknown(0, b"a")),
        (2, 3, Read(b"a", 1)),
        (4, 5, Written(1, None, 2)),
        (6, 7, Read(b"a", 3)),
    ],
    "a lost write is seen, and then it never was": [
        (0, 1, Unknown(0, b"a")),
        (2, 3, Read(b"a", 1)),
        (4, 5, ABSENT),
    ],
    "a lost write is seen before it was asked for": [(0, 1, Read(b"a", 1)), (2, 3, Unknown(0, b"a"))],
    "a lost write has two versions": [
        (0, 1, Unknown(0, b"a")),
        (2, 3, Read(b"a", 1)),
        (4, 5, Read(b"a", 2)),
    ],
    "a lost write has a version that it was told not to have": [
        (0, 1, Unknown(0, b"a")),
        (2, 3, Conflict(0, b"b")),
        (4, 5, Conflict(9, b"b")),
        (6, 7, Read(b"a", 9)),
    ],
    "a version goes back": [(0, 1, Written(0, b"a", 5)), (2, 3, Written(5, b"b", 4))],
    "a version is used again after a deletion": [
        (0, 1, Written(0, b"a", 1)),
        (2, 3, Unknown(1, None)),
        (4, 5, Written(0, b"b", 2)),
    ],
    "a value that nobody wrote": [(0, 1, Written(0, b"a", 1)), (2, 3, Read(b"x", 1))],
    "a version that nobody gave": [(0, 1, Written(0, b"a", 1)), (2, 3, Read(b"a", 2))],
}


@pytest.mark.parametrize("name", GOOD)
def test_good_histories(name: str) -> None:
    history = told(*GOOD[name])
    assert check(history) is None
    assert possible(history)


@pytest.mark.parametrize("name", BAD)
def test_bad_histories(name: str) -> None:
    history = told(*BAD[name])
    assert check(history) is not None
    assert not possible(history)


def test_a_violation_names_the_document_and_what_cannot_follow_what() -> None:
    stale = told((0, 1, Written(0, b"a", 1)), (2, 3, Written(1, b"b", 2)), (4, 5, Read(b"a", 1)), key="bad")
    violation = check(told((0, 1, Written(0, b"x", 3)), key="good") + stale)
    assert violation is not None
    assert (violation.key, violation.stuck) == ("bad", stale[2])
    assert violation.prefix == stale[:2]
    text = str(violation)
    assert "'bad'" in text and "b'b' at version 2" in text and "client-2: read: b'a' at 1" in text


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 60))
def test_what_happened_is_accepted(chance: random.Random, count: int) -> None:
    assert check(happened(chance, count)) is None


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 6), st.integers(0, 2))
def test_it_agrees_with_trying_all_orders(chance: random.Random, count: int, mutations: int) -> None:
    history = happened(chance, count)
    for _ in range(mutations):
        history = mutated(chance, history)
    assert (check(history) is None) == possible(history)


def test_most_mutations_are_found() -> None:
    rejected = 0
    for seed in range(300):
        chance = random.Random(seed)
        history = mutated(chance, happened(chance, 6, overlap=8))
        verdict = check(history) is None
        assert verdict == possible(history), f"seed {seed}"
        rejected += not verdict
    assert rejected > 150


@pytest.mark.parametrize("end", [None, Read(b"never", 3)])
def test_ten_thousand_operations_take_a_moment(end: Outcome | None) -> None:
    history = happened(random.Random(7), 10_000, overlap=80, lost=0.02)
    if end:
        history += told((200_000, 200_001, end))
    began = time.process_time()
    assert (check(history) is None) == (end is None)
    assert time.process_time() - began < 60
