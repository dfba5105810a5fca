"""Streams over journals, in real processes that are killed: every document once, transactions as a whole."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.journals.shuffle.logs import Log, Producer
from tests.streams.fleet import Fleet, with_settings

JOURNALS = [f"bank/{name}/pivot=00" for name in ("orders", "payments", "refunds")]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setenv("LEDGER_FOLDER", str(tmp_path / "journals"))
    log = Log(tmp_path / "journals")
    log.root.mkdir()
    return log


@pytest.fixture
def fleet(log: Log, tmp_path: Path) -> Iterator[Fleet]:
    settings = with_settings(epoch_every=0.3, max_bytes=4 << 10)
    fleet = Fleet("ledger", f"sqlite:///{tmp_path}/store.db", tmp_path / "storage", settings)
    yield fleet
    fleet.close()


def test_documents_come_once_whoever_is_killed(fleet: Fleet, log: Log) -> None:
    writers = Writers(log)
    fleet.start()
    second = fleet.start("stream.polled=kill@8")
    writers.go_on(40)
    fleet.until(lambda: rows(fleet) == writers.documents, "the first documents")
    while second.code is None:
        writers.go_on(5)
        fleet.until(lambda: rows(fleet) == writers.documents, "documents while one is killed")
    third, fourth = fleet.start("stream.prepared=kill@6"), fleet.start("epoch.decided=kill@6")
    last = fleet.start()
    fleet.until(lambda: fleet.seated(last), "a seat for the last")
    leader = fleet.until(fleet.leader, "somebody who leads")
    writers.go_on(60)
    leader.kill()
    while third.code is None:
        writers.go_on(10)
        fleet.until(lambda: rows(fleet) == writers.documents, "documents while others are killed")
    writers.go_on(60)
    fleet.until(lambda: rows(fleet) == writers.documents, "the last documents")
    assert last.code is None
    assert {fourth.code, last.code} <= {None, -9}
    check(fleet, log)


class Writers:
    """Four producers, and what they have written so far."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._dice = random.Random(7)
        self._producers = [Producer(log, number + 1, self._dice) for number in range(4)]

    @property
    def documents(self) -> int:
        return sum(map(len, self._log.committed.values()))

    def go_on(self, transactions: int) -> None:
        """Write transactions over two journals each, a little at a time."""
        for _ in range(transactions):
            self._dice.choice(self._producers).transaction(self._dice.sample(JOURNALS, 2), 4)
            self._log.flush({journal: self._dice.randint(0, 6) for journal in JOURNALS})
        self._log.flush()


def rows(fleet: Fleet) -> int:
    return sum(epoch.rows for epoch in fleet.log.entries(0))


def by_epoch(fleet: Fleet) -> Iterator[tuple[int, pa.Table]]:
    for epoch in fleet.log.entries(0):
        for brought in epoch.brought:
            for file in brought.files(fleet.storage):
                with fleet.storage.open(file.record.path) as opened:
                    yield epoch.number, pa.ipc.open_file(opened).read_all()


def check(fleet: Fleet, log: Log) -> None:
    found: Counter[int] = Counter()
    epochs = defaultdict(set)
    for epoch, table in by_epoch(fleet):
        clocks = table["clock"].to_pylist()
        assert clocks == sorted(clocks)
        found.update(table["number"].to_pylist())
        for transaction in table["transaction"].to_pylist():
            epochs[transaction].add(epoch)
    assert found.keys() == {number for numbers in log.committed.values() for number in numbers}
    assert max(found.values()) == 1
    assert {name for name, where in epochs.items() if len(where) > 1} == set()
