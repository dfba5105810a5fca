"""Which journals are asked, where there are many."""

from __future__ import annotations

from penstock.sources.base import PartName
from penstock.streams.ingest.pacing import Resting

FEW = [PartName("s", f"j{n}") for n in range(10)]
MANY = [PartName("s", f"j{n:05}") for n in range(10_000)]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_few_journals_are_asked_all_the_time() -> None:
    clock = Clock()
    resting = Resting(clock)
    resting.heard(FEW, ())
    clock.now += 0.01
    assert resting.awake(FEW) == FEW


def test_of_many_those_rest_that_had_nothing_but_not_for_long() -> None:
    clock = Clock()
    resting = Resting(clock)
    assert resting.awake(MANY) == MANY
    resting.heard(MANY, MANY[:3])
    clock.now += 4.9
    assert resting.awake(MANY) == MANY[:3]
    clock.now += 0.2
    assert resting.awake(MANY) == MANY


def test_who_had_not_its_turn_does_not_rest() -> None:
    clock = Clock()
    resting = Resting(clock)
    resting.heard(MANY, ())
    resting.heard(MANY[:9], MANY[:5])
    assert resting.awake(MANY) == MANY[:5]


def test_a_journal_that_appears_is_asked_at_once() -> None:
    resting = Resting(Clock())
    resting.heard(MANY, ())
    new = PartName("s", "new")
    assert resting.awake([*MANY, new]) == [new]
