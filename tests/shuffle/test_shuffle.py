"""Slices, session and queues together: every committed document once, each transaction in one epoch."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from penstock.shuffle.slices import SliceLimits
from penstock.sources.journals import JournalSource
from tests.shuffle.cast import Cast
from tests.shuffle.logs import Entries, Log, Producer


def source(log: Log, prefix: str = "") -> JournalSource:
    return JournalSource(log.root, Entries, prefix=prefix, key=["/account"], queues=3, meta={"uuid": "uuid"})


def check(cast: Cast, log: Log) -> None:
    """Every document once, whole transactions in one epoch, queues in order, equal keys together."""
    rows = cast.rows()
    found = Counter(row["number"] for row in rows)
    wanted = {number for numbers in log.committed.values() for number in numbers}
    assert {number for number, times in found.items() if times > 1} == set()
    assert found.keys() == wanted
    epochs = defaultdict(set)
    for row in rows:
        epochs[row["transaction"]].add(row["epoch"])
    assert {name for name, where in epochs.items() if name and len(where) > 1} == set()
    for shown in cast.visible.values():
        for table in shown.values():
            clocks = table["clock"].to_pylist()
            assert clocks == sorted(clocks)
    queues = defaultdict(set)
    for row in rows:
        queues[row["account"]].add(row["queue"][1])
    assert all(len(where) == 1 for where in queues.values())


@pytest.mark.parametrize("seed", range(40))
def test_every_document_once_and_transactions_as_a_whole(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    log = Log(tmp_path / "journals")
    journals = [f"acme/j{n}/pivot=00" for n in range(dice.randint(1, 5))]
    producers = [Producer(log, n + 1, dice) for n in range(dice.randint(1, 4))]
    limits = SliceLimits(dice.choice([200, 2000, 1 << 20]), dice.choice([5, 1 << 20]), 60.0)
    sources = (
        {"all": source(log)}
        if dice.random() < 0.5
        else {
            "some": source(log, "acme/j0"),
            "rest": JournalSource(
                log.root,
                Entries,
                prefix="acme/",
                where=None,
                key=["/account"],
                queues=3,
                meta={"uuid": "uuid"},
            ),
        }
    )
    cast = Cast(tmp_path / "work", sources, members=dice.randint(1, 3), limits=limits)
    for _ in range(dice.randint(3, 12)):
        for _ in range(dice.randint(0, 8)):
            producer = dice.choice(producers)
            if dice.random() < 0.3:
                producer.outside(dice.choice(journals))
            else:
                chosen = dice.sample(journals, dice.randint(1, len(journals)))
                producer.transaction(chosen, dice.randint(1, 6))
        log.flush({journal: dice.randint(0, 12) for journal in journals})
        cast.run(fails=dice.random() < 0.2)
    log.flush()
    cast.settle(400)
    if "all" in sources:
        check(cast, log)
    assert cast.session.waiting == ()
