"""Transactions over journals that are read at different paces: whole, once, and in time."""

from __future__ import annotations

from random import Random

import pytest

from penstock.shuffle import checkpoints
from penstock.shuffle.frontier import Frontier
from tests.shuffle.model import Journals, Reading, random_journals, read_all


def run(seed: int) -> None:
    random = Random(seed)
    journals = random_journals(random, "abcde"[: random.randint(2, 5)], random.randint(1, 25))
    reading = Reading(journals, unread=random.choice(["", "", "b"]))
    read_all(random, reading, repeats=random.random() < 0.5)
    assert reading.visible == {commit for _, commit in reading.read}
    assert len(reading.read) == sum(len(journals.logs[name]) for name in reading.places)


@pytest.mark.parametrize("batch", range(8))
def test_every_transaction_is_seen_whole_and_once(batch: int) -> None:
    for seed in range(batch * 50, batch * 50 + 50):
        run(seed)


def test_the_model_finds_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints that are not taken over, what was ahead not left out later, and too much ahead."""

    def fails() -> bool:
        for seed in range(400):
            try:
                run(seed)
            except AssertionError:
                return True
        return False

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_taking_over", lambda pipeline, checkpoint, *_: checkpoint)
        assert fails()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.Ready, "shows", _without_skip)
        assert fails()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_ahead", _all_that_was_read)
        assert fails()


def _without_skip(ready: checkpoints.Ready, epoch: int, journal: str, producer: int, commit: int) -> bool:
    if not ready.after < epoch <= ready.epoch:
        return False
    return epoch <= ready.upto or commit <= ready.ahead.get((journal, producer), 0)


def _all_that_was_read(checkpoint: Frontier, progressed: Frontier) -> dict[tuple[str, int], int]:
    return {(journal, mark.producer): mark.last_commit for journal, mark in progressed if mark.last_commit}


@pytest.mark.parametrize("lag", [1, 2, 5])
def test_traffic_without_an_end_holds_nothing_up(lag: int) -> None:
    """One journal is always read some epochs before the other, so that something lacks at every moment."""
    journals = Journals({})
    for _ in range(600):
        journals.write(1, "ab")
    reading = Reading(journals)
    for epoch in range(1, 101):
        reading.step({"a": 5, "b": 5 if epoch > lag else 0})
        assert reading.lacking
        complete = {
            commit.transaction for at, commit in reading.read if commit.journal == "b" and at < epoch - lag
        }
        assert complete <= {commit.transaction for commit in reading.visible}


def test_paces_that_cross_hold_nothing_up() -> None:
    random = Random(5)
    journals = random_journals(random, "abcd", 2_000)
    reading = Reading(journals)
    waits = longest = 0
    for _ in range(150):
        reading.step({name: random.randrange(10) for name in "abcd"})
        waits = 0 if reading.ready else waits + 1
        longest = max(longest, waits)
    assert len(reading.visible) > 1_000
    assert longest <= 30
