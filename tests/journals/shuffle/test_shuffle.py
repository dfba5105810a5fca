"""Slices, coordinator and queues together: every committed document once, each transaction in one epoch."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.journals.shuffle.slices import replays, slices
from penstock.journals.shuffle.slices.slices import SliceLimits
from penstock.sources.journals import JournalSource
from tests.journals.shuffle.cast import LATER, Cast
from tests.journals.shuffle.logs import Entries, Log, Producer


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of small files are written, and no power fails."""
    monkeypatch.setattr("penstock.storage.os.fsync", lambda file: None)
    monkeypatch.setattr("penstock.storage.sync_folder", lambda folder, missing_ok: None)


def source(log: Log, prefix: str = "", **options: Any) -> JournalSource:
    meta: Any = {"uuid": "uuid"}
    return JournalSource(log.root, Entries, prefix=prefix, key=["/account"], queues=3, meta=meta, **options)


def check(cast: Cast, log: Log) -> None:
    """In each source every document once, queues in order, equal keys together."""
    rows = cast.rows()
    committed = {number for numbers in log.committed.values() for number in numbers}
    for name, read in cast.sources.items():
        found = Counter(row["number"] for row in rows if row["queue"][0] == name)
        assert {number for number, times in found.items() if times > 1} == set()
        assert found.keys() == {number for number in committed if read.matches(log.where[number])}
    for shown in cast.visible.values():
        for table in shown.values():
            clocks = table["clock"].to_pylist()
            assert clocks == sorted(clocks)
    queues = defaultdict(set)
    for row in rows:
        queues[row["account"]].add(row["queue"][1])
    assert all(len(where) == 1 for where in queues.values())
    assert cast.state.waiting == ()


def check_whole(cast: Cast, log: Log) -> None:
    """Each transaction in one epoch, over all sources of a cohort: also if they read the same journal."""
    epochs = defaultdict(set)
    for row in cast.rows():
        if row["transaction"]:
            cohort = cast.sources[row["queue"][0]].cohort
            epochs[cohort, row["transaction"]].add(row["epoch"])
    assert {name for name, where in epochs.items() if len(where) > 1} == set()


def act(log: Log, producers: list[Producer], journals: list[str], dice: random.Random, times: int) -> None:
    for _ in range(times):
        producer = dice.choice(producers)
        if dice.random() < 0.3:
            producer.outside(dice.choice(journals))
        else:
            chosen = dice.sample(journals, dice.randint(1, min(len(journals), 5)))
            producer.transaction(chosen, dice.randint(1, 6))


@pytest.mark.parametrize("overlapping", [False, True], ids=["one source", "two sources"])
@pytest.mark.parametrize("seed", range(15))
def test_every_document_once_and_transactions_as_a_whole(
    seed: int, overlapping: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever fails, however many members there are, and while journals appear."""
    dice = random.Random(seed)
    monkeypatch.setattr(slices, "_PIECE", dice.choice([200, 2000, 64 << 10]))
    block = dice.choice([400, 16 << 20])
    monkeypatch.setattr(slices, "BLOCK", block)
    monkeypatch.setattr(replays, "BLOCK", block)
    log = Log(tmp_path / "journals")
    journals = [f"acme/j{n}/pivot=00" for n in range(dice.randint(1, 5))]
    producers = [Producer(log, n + 1, dice) for n in range(dice.randint(1, 4))]
    limits = SliceLimits(dice.choice([200, 2000, 1 << 20]), dice.choice([5, 1 << 20]), 60.0)
    sources = {"all": source(log)}
    if overlapping:
        sources = {"some": source(log, "acme/j0"), "rest": source(log, "acme/")}
    cast = Cast(tmp_path / "work", sources, limits=limits)
    rounds = dice.randint(3, 12)
    for number in range(rounds):
        there = journals[: max(1, len(journals) * (number + 2) // rounds)]
        act(log, producers, there, dice, dice.randint(0, 8))
        log.flush({journal: dice.randint(0, 12) for journal in journals})
        cast.members = dice.randint(1, 3)
        for _ in range(dice.randint(0, 2)):
            cast.run(fails=True)
        cast.run()
    log.flush()
    cast.settle(400)
    check(cast, log)
    check_whole(cast, log)


@pytest.mark.parametrize("seed", range(12))
def test_sources_that_read_the_same_journals_see_each_transaction_at_once(seed: int, tmp_path: Path) -> None:
    """However far one is ahead of the others, by whatever root and prefix they came to the journals."""
    dice = random.Random(seed)
    log = Log(tmp_path / "journals")
    (tmp_path / "link").symlink_to(log.root, target_is_directory=True)
    journals = [f"acme/j{n}/pivot=00" for n in range(dice.randint(1, 3))]
    producers = [Producer(log, n + 1, dice) for n in range(dice.randint(1, 3))]
    below = replace(log, root=log.root / "acme")
    sources = {
        "all": source(log),
        "again": source(replace(log, root=tmp_path / "link"), "acme/"),
        "below": source(below, "j0"),
    }
    cast = Cast(tmp_path / "work", sources, members=3)
    for _ in range(dice.randint(5, 12)):
        act(log, producers, journals, dice, dice.randint(0, 6))
        log.flush({journal: dice.randint(0, 12) for journal in journals})
        cast.paces = {name: dice.choice([0, 1, 400, 1 << 20]) for name in sources}
        cast.run(fails=dice.random() < 0.2)
    log.flush()
    cast.paces = {}
    cast.settle(400)
    check_whole(cast, log)
    rows = cast.rows()
    for name in ("all", "again"):
        found = Counter(row["number"] for row in rows if row["queue"][0] == name)
        assert found == Counter(number for numbers in log.committed.values() for number in numbers)


@pytest.mark.parametrize("seed", range(5))
def test_with_a_delay_all_the_same_comes_later(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    log = Log(tmp_path / "journals")
    journals = [f"acme/j{n}/pivot=00" for n in range(4)]
    producers = [Producer(log, n + 1, dice) for n in range(3)]
    options = {"read_delay": 2e-6}
    sources = {"one": source(log, "acme/j0", **options), "rest": source(log, "acme/", **options)}
    cast = Cast(tmp_path / "work", sources)
    for _ in range(8):
        act(log, producers, journals, dice, 6)
        log.flush({journal: dice.randint(0, 12) for journal in journals})
        cast.now = log.clock + dice.randint(-400, 600)
        cast.run(fails=dice.random() < 0.2)
        assert all(row["clock"] <= cast.now - sources["one"].delay for row in cast.rows())
    log.flush()
    cast.now = LATER
    cast.settle()
    check(cast, log)
    check_whole(cast, log)


@pytest.mark.parametrize("seed", range(5))
def test_sources_of_different_cohorts_each_show_whole_transactions(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    log = Log(tmp_path / "journals")
    journals = [f"acme/j{n}/pivot=00" for n in range(4)]
    producers = [Producer(log, n + 1, dice) for n in range(3)]
    sources = {"first": source(log, priority=1), "late": source(log, read_delay=2e-6)}
    cast = Cast(tmp_path / "work", sources, limits=SliceLimits(2000, 1 << 20, 60.0))
    for _ in range(8):
        act(log, producers, journals, dice, 6)
        log.flush({journal: dice.randint(0, 12) for journal in journals})
        cast.now = log.clock + dice.randint(0, 600)
        cast.run()
    log.flush()
    cast.now = LATER
    cast.settle(200)
    check(cast, log)
    for name in sources:
        epochs = defaultdict(set)
        for row in cast.rows():
            if row["transaction"] and row["queue"][0] == name:
                epochs[row["transaction"]].add(row["epoch"])
        assert all(len(where) == 1 for where in epochs.values())


@pytest.mark.parametrize("seed", range(6))
def test_an_ack_that_hints_one_way_waits_for_what_it_hints_at(seed: int, tmp_path: Path) -> None:
    """What the others got may be seen earlier, never later."""
    dice = random.Random(seed)
    log = Log(tmp_path / "journals")
    journals = [f"acme/j{n}/pivot=00" for n in range(3)]
    producers = [Producer(log, n + 1, dice) for n in range(3)]
    cast = Cast(tmp_path / "work", {"all": source(log)}, limits=SliceLimits(2000, 5, 60.0))
    for _ in range(10):
        for _ in range(6):
            dice.choice(producers).transaction(dice.sample(journals, 2), 4, one_way=True)
        log.flush({journal: dice.randint(0, 15) for journal in journals})
        cast.run(fails=dice.random() < 0.2)
    log.flush()
    cast.settle(100)
    check(cast, log)
    seen = {row["number"]: row["epoch"] for row in cast.rows()}
    for name, numbers in log.committed.items():
        first, other = (
            {seen[number] for number in numbers if log.where[number] == journal}
            for journal in log.journals[name]
        )
        assert len(first) <= 1
        assert len(other) <= 1
        assert not first or not other or min(first) >= max(other)


def test_a_huge_transaction_becomes_visible_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "BLOCK", 256 << 10)
    monkeypatch.setattr(replays, "BLOCK", 256 << 10)
    dice = Sure(1)
    log = Log(tmp_path / "journals")
    journals = ["acme/a/pivot=00", "acme/b/pivot=00"]
    cast = Cast(tmp_path / "work", {"all": source(log)}, limits=SliceLimits(500_000, 1 << 20, 60.0))
    Producer(log, 1, dice).transaction(journals, 20_000)
    Producer(log, 2, dice).outside(journals[0])
    while any(log.lines.values()):
        log.flush(dict.fromkeys(journals, 2500))
        cast.run()
    cast.settle()
    check(cast, log)
    check_whole(cast, log)
    assert len(cast.visible) > 6


def test_a_thousand_journals_with_a_few_documents_each(tmp_path: Path) -> None:
    dice = Sure(2)
    log = Log(tmp_path / "journals")
    journals = [f"acme/j{n:03}/pivot=00" for n in range(1000)]
    producers = [Producer(log, n + 1, dice) for n in range(3)]
    cast = Cast(tmp_path / "work", {"all": source(log)})
    for begin in range(0, 1000, 5):
        dice.choice(producers).transaction(journals[begin : begin + 5], 10)
        dice.choice(producers).outside(dice.choice(journals))
    log.flush({journal: dice.randint(0, 5) for journal in journals})
    cast.run()
    log.flush()
    cast.settle()
    check(cast, log)
    check_whole(cast, log)


class Sure(random.Random):
    """Dice with which no transaction is taken back and nothing is repeated."""

    def random(self) -> float:
        return max(super().random(), 0.3)
