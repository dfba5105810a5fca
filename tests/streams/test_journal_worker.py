"""Workers that read journals: storage that fails, members that change, bytes that are lost, a full queue."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from penstock.cluster.model import Outcome
from penstock.journals import Flag, JournalWriter
from penstock.sources import JournalSource
from penstock.storage import Storage
from penstock.streams import shuffling
from penstock.streams.stream import SourceSpec
from penstock.tables import Table
from tests.shuffle.desk import Desk, ack, line
from tests.streams.journal_crew import JournalCrew

A, B = "s/a/pivot=00", "s/b/pivot=00"


class Items(Table):
    id: int


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "journals").mkdir()
    return tmp_path / "journals"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """For journals that no writer would write; they lie in the same folder."""
    return Desk(tmp_path)


def over(root: Path, **options: object) -> JournalSource:
    return JournalSource(root, Items, key=["/id"], **options)  # type: ignore[arg-type]


def write(root: Path, ids: range, journal: str = A) -> None:
    with JournalWriter(root, sync=False) as writer:
        writer.append(journal, [{"id": number} for number in ids])


@pytest.mark.parametrize("kind", ["-report.json", "-session.json", ".arrow"])
def test_storage_that_fails_once_costs_an_epoch_and_nothing_else(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    crew = JournalCrew(tmp_path / "work", "ann", all=over(root))
    failed: list[str] = []
    reading, opening = Storage.read, Storage.open

    def read(storage: Storage, path: str) -> bytes:
        fail(path)
        return reading(storage, path)

    def open_(storage: Storage, path: str) -> object:
        fail(path)
        return opening(storage, path)

    def fail(path: str) -> None:
        if path.endswith(kind) and "/rows/" not in path and path not in failed:
            failed.append(path)
            raise OSError("a hiccup of the storage")

    for step in range(4):
        write(root, range(5 * step, 5 * step + 5))
        crew.epoch()
        monkeypatch.setattr(Storage, "read", read)
        monkeypatch.setattr(Storage, "open", open_)
        for _ in range(3):
            crew.end(crew.announce())
        monkeypatch.undo()
    crew.epochs(4)
    assert failed
    assert crew.ids() == list(range(20))


def test_members_come_and_go_at_any_epoch(root: Path, tmp_path: Path) -> None:
    dice = Random(3)
    crew = JournalCrew(tmp_path / "work", "ann", all=over(root))
    for step in range(30):
        write(root, range(step, step + 1), f"s/j{step % 5}/pivot=00")
        crew.end(crew.announce(), Outcome.ABORT if dice.random() < 0.2 else None)
        if dice.random() < 0.4:
            members = dice.sample(["ann", "bob", "cid"], dice.randint(1, 3))
            crew.move(*members)
            for member in set(crew.workers) - set(members):
                crew.die(member)
    crew.epochs(6)
    assert crew.ids() == list(range(30))


def test_documents_that_wait_come_out_although_there_are_fewer_queues_now(root: Path, tmp_path: Path) -> None:
    write(root, range(20))
    crew = JournalCrew(tmp_path / "work", "ann", all=over(root, queues=4))
    crew.epochs(2)
    assert crew.ids() == []
    crew.sources = {"all": SourceSpec("all", over(root, queues=2))}
    crew.die("ann")
    crew.drain("ann")
    crew.seat("ann")
    crew.epochs(4)
    assert crew.ids() == list(range(20))


def test_a_transaction_waits_for_its_ack_also_in_a_journal_that_lost_bytes(
    desk: Desk, tmp_path: Path
) -> None:
    desk.write(B, line(-1, 1, who=2))
    for file in (desk.log.root / B).iterdir():
        file.unlink()
    desk.write(A, line(100, 10, Flag.CONTINUE) + ack(20, hints={B: 21}))
    desk.write(B, line(101, 11, Flag.CONTINUE) + line(1, 30, who=2))
    crew = JournalCrew(tmp_path / "crew", "ann", all=over(desk.log.root, on_gap="skip"))
    crew.epochs(8)
    assert 100 not in crew.ids()
    desk.write(B, ack(21, hints={A: 20}))
    crew.epochs(4)
    epochs = dict(crew.shown())
    assert epochs.keys() == {1, 100, 101}
    assert epochs[100] == epochs[101]


def test_what_was_open_before_a_gap_is_dropped(desk: Desk, tmp_path: Path) -> None:
    desk.write(A, line(1, 1, Flag.CONTINUE))
    crew = JournalCrew(tmp_path / "crew", "ann", all=over(desk.log.root, on_gap="skip"))
    crew.epochs(3)
    known = set((desk.log.root / A).iterdir())
    desk.write(A, ack(2))
    for file in set((desk.log.root / A).iterdir()) - known:
        file.unlink()
    desk.write(A, line(2, 3))
    crew.epochs(3)
    assert crew.ids() == [2]


def test_a_full_queue_stops_reading_whatever_waits(root: Path, tmp_path: Path) -> None:
    dice = Random(1)
    journals = [f"s/j{number}/pivot=00" for number in range(4)]
    with JournalWriter(root, sync=False, roll_bytes=1 << 30) as writer:
        for number in range(4_000):
            with writer.transaction() as transaction:
                for journal in dice.sample(journals, 2):
                    transaction.append(journal, [{"id": number}])
    cap = 64 << 10
    crew = JournalCrew(tmp_path / "work", "ann", cap=cap, all=over(root))
    crew.epochs(40)
    size = crew.queue_bytes()
    assert size > 0
    crew.epochs(40)
    assert crew.queue_bytes() == size


def test_few_files_wait_however_long_a_hint_is_not_reached(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffling, "_FILES", 5)
    desk.write(A, line(100, 10, Flag.CONTINUE) + ack(20, hints={B: 21}))
    crew = JournalCrew(tmp_path / "crew", "ann", all=over(desk.log.root))
    for number in range(20):
        desk.write("s/c/pivot=00", line(number, 30 + number, who=2))
        crew.epoch()
    assert len(crew.workers["ann"].shuffle.session.waiting) <= 6
    assert crew.ids() == []
    desk.write(B, line(101, 11, Flag.CONTINUE) + ack(21, hints={A: 20}))
    crew.epochs(12)
    assert crew.ids() == [*range(20), 100, 101]
