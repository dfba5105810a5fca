"""Transactions over journals that are read at different paces: whole, once, and in time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from penstock.journals.shuffle.visibility import cuts, joint
from penstock.journals.shuffle.visibility.frontier import Frontier, with_joint
from tests.journals.shuffle.model import Journals, Reading, random_journals, random_tasks, read_all


def run(seed: int, write: Callable[[Random, str, int], Journals] = random_journals) -> None:
    random = Random(seed)
    journals = write(random, "abcde"[: random.randint(2, 5)], random.randint(1, 25))
    reading = Reading(journals, unread=random.choice(["", "", "b"]))
    read_all(random, reading, repeats=random.random() < 0.5)
    assert reading.visible == {commit for _, commit in reading.read}
    assert len(reading.read) == sum(len(journals.logs[name]) for name in reading.places)


@pytest.mark.parametrize("batch", range(8))
def test_every_transaction_is_seen_whole_and_once(batch: int) -> None:
    for seed in range(batch * 50, batch * 50 + 50):
        run(seed)


@pytest.mark.parametrize("batch", range(8))
def test_transactions_of_several_producers_are_seen_whole_and_once(batch: int) -> None:
    for seed in range(batch * 50, batch * 50 + 50):
        run(seed, random_tasks)


def test_they_are_seen_whole_where_few_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "MOST", 2)
    for seed in range(100):
        run(seed, random_tasks)


def test_they_are_seen_whole_where_it_was_not_written_down_which_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some members are of a version that tells of their acks only that there are some."""
    told = Reading._report

    def report(reading: Reading, journal: str, amount: int) -> Frontier:
        found = told(reading, journal, amount)
        return with_joint(found, {"joint": True}) if found.joint and reading.epoch % 3 else found

    monkeypatch.setattr(Reading, "_report", report)
    for seed in range(100):
        run(seed, random_tasks)


def test_the_model_finds_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints that are not taken over, what was ahead not left out later, and too much ahead."""

    def fails(write: Callable[[Random, str, int], Journals] = random_journals) -> bool:
        for seed in range(400):
            try:
                run(seed, write)
            except AssertionError:
                return True
        return False

    with monkeypatch.context() as patch:
        patch.setattr(cuts, "_taking_over", lambda _, cut, *__: cut)
        assert fails()
    with monkeypatch.context() as patch:
        patch.setattr(cuts.ReadyCut, "shows", _without_skip)
        assert fails()
    with monkeypatch.context() as patch:
        patch.setattr(cuts, "_ahead", _all_that_was_read)
        assert fails()
    with monkeypatch.context() as patch:
        patch.setattr(cuts, "_joined", lambda cut, _: cut)
        assert fails(random_tasks)


def _without_skip(ready: cuts.ReadyCut, epoch: int, journal: str, producer: int, commit: int) -> bool:
    if not ready.after < epoch <= ready.epoch:
        return False
    return epoch <= ready.upto or commit <= ready.ahead.get((journal, producer), 0)


def _all_that_was_read(cut: Frontier, progressed: Frontier) -> dict[tuple[str, int], int]:
    return {(journal, mark.producer): mark.last_commit for journal, mark in progressed if mark.last_commit}


@pytest.mark.parametrize("lag", [1, 2, 5])
@pytest.mark.parametrize(
    "shares",
    [{1: "ab"}, {1: "a", 2: "b"}, {1: "ab", 2: "ab"}],
    ids=["one producer", "one for each journal", "two for each"],
)
def test_traffic_without_an_end_holds_nothing_up(shares: dict[int, str], lag: int) -> None:
    """One journal is always read some epochs before the other, so that something lacks at every moment."""
    journals = Journals({})
    for _ in range(600):
        journals.write_together(shares)
    reading = Reading(journals)
    for epoch in range(1, 101):
        reading.step({"a": 5, "b": 5 if epoch > lag else 0})
        assert reading.lacking
        complete = {
            commit.transaction for at, commit in reading.read if commit.journal == "b" and at < epoch - lag
        }
        # With several acks for each transaction in b, one may be read in part.
        complete -= {commit.transaction for commit in journals.logs["b"][reading.places["b"] :]}
        assert complete <= {commit.transaction for commit in reading.visible}


def test_traffic_of_two_tasks_holds_nothing_up() -> None:
    """They share the journals, and their transactions overlap."""
    journals = Journals({})
    for _ in range(400):
        journals.write_together({1: "ab", 2: "bc"})
        journals.write_together({3: "ca", 4: "b"})
        journals.write(1, "ac")
    reading = Reading(journals)
    for epoch in range(1, 101):
        reading.step({"a": 7, "b": 5 if epoch > 2 else 0, "c": 3})
        assert reading.lacking
    assert len(reading.visible) > 600


@pytest.mark.parametrize("write", [random_journals, random_tasks])
def test_paces_that_cross_hold_nothing_up(write: Callable[[Random, str, int], Journals]) -> None:
    random = Random(5)
    journals = write(random, "abcd", 2_000)
    reading = Reading(journals)
    waits = longest = 0
    for _ in range(150):
        reading.step({name: random.randrange(10) for name in "abcd"})
        waits = 0 if reading.ready else waits + 1
        longest = max(longest, waits)
    assert len(reading.visible) > 1_000
    assert longest <= 30
