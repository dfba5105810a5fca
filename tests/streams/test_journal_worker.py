"""Workers that read journals: failing storage, changing members, lost bytes, a full queue, much at once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from penstock.control.cluster.rules.model import Outcome
from penstock.errors import LineUnfinished
from penstock.journals import Flag, JournalWriter
from penstock.journals.shuffle.slices import replays, slices
from penstock.sources import JournalSource
from penstock.storage import Storage
from penstock.streams.api.stream import SourceSpec
from penstock.streams.ingest import journal_shuffle
from penstock.streams.ingest.journal_states import position_of
from penstock.streams.ingest.shuffle_files import read_session, waiting_runs
from penstock.types.tables import Table
from tests.journals.shuffle.desk import Desk, ack, line
from tests.streams.journal_crew import JournalCrew
from tests.streams.support import LAYOUT

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
    # Two of them: what an instance wrote itself, it need not read.
    crew = JournalCrew(tmp_path / "work", "ann", "bob", all=over(root))
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
    monkeypatch.setattr(journal_shuffle, "_FILES", 5)
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


@pytest.fixture
def much(root: Path, monkeypatch: pytest.MonkeyPatch) -> range:
    """The documents of a transaction in two journals, of which a task reads little at a time."""
    monkeypatch.setattr(slices, "BLOCK", 4 << 10)
    monkeypatch.setattr(replays, "BLOCK", 4 << 10)
    monkeypatch.setattr(slices, "_PIECE", 4 << 10)
    ids = range(20_000)
    with JournalWriter(root, sync=False, roll_bytes=1 << 30) as writer, writer.transaction() as transaction:
        for journal, some in ((A, ids[:15_000]), (B, ids[15_000:])):
            transaction.append(journal, [{"id": number} for number in some])
    return ids


def test_a_large_transaction_is_handed_on_in_several_epochs_and_seen_in_one(
    root: Path, tmp_path: Path, much: range
) -> None:
    dice = Random(4)
    crew = JournalCrew(tmp_path / "work", "ann", all=over(root))
    held = set[int]()
    for _ in range(60):
        crew.end(crew.announce(), Outcome.ABORT if dice.random() < 0.1 else None)
        # Whatever nobody refers to is swept.
        named = waiting_runs(crew.storage, crew.standings())
        for path, _ in list(crew.storage.list(LAYOUT.runs)):
            if path not in named:
                crew.storage.delete(path)
        held.add(sum(len(report.held) for report in read_session(crew.storage, crew.standings())[2]))
        if dice.random() < 0.1:
            crew.move(*dice.sample(["ann", "bob"], dice.randint(1, 2)))
    assert max(held) > 2
    assert crew.ids() == list(much)
    assert len({epoch for _, epoch in crew.shown()}) == 1
    assert not list(crew.storage.list(LAYOUT.runs))


def test_a_transaction_that_is_larger_than_the_queue_goes_through(
    root: Path, tmp_path: Path, much: range
) -> None:
    crew = JournalCrew(tmp_path / "work", "ann", cap=64 << 10, all=over(root))
    crew.epochs(400)
    assert crew.ids() == list(much)


def test_the_more_becomes_visible_the_longer_an_epoch_may_take(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_shuffle, "_SHOWN_PER_SECOND", 10)
    crew = JournalCrew(tmp_path / "work", "ann", "bob", all=over(root))
    crew.epoch()
    write(root, range(1000))
    asked = []
    for _ in range(6):
        crew.epoch()
        asked.append([worker.patience() for worker in crew.workers.values()])
    assert crew.ids() == list(range(1000))
    assert all(one == other for one, other in asked), "all members say the same"
    assert max(one for one, _ in asked) > 100 and asked[-1] == [0.0, 0.0]


def test_a_journal_that_ends_in_the_middle_of_a_line_is_named(desk: Desk, tmp_path: Path) -> None:
    whole, half = line(1, 1), line(2, 2)
    desk.write(A, whole, half[:20])
    crew = JournalCrew(tmp_path / "crew", "ann", all=over(desk.log.root))
    crew.epochs(3)
    shuffle = crew.workers["ann"].shuffle
    assert crew.ids() == [1]
    shuffle.check_lines(60)
    with pytest.raises(LineUnfinished, match=rf"{A} \(offset {len(whole)}\)") as caught:
        shuffle.check_lines(0)
    assert caught.value.hint and "journal verify" in caught.value.hint
    desk.write(A, half[20:])
    crew.epochs(3)
    assert crew.ids() == [1, 2]
    shuffle.check_lines(0)


def test_a_producer_that_writes_no_transactions_can_be_passed_over(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk.write(A, line(1, 1), line(2, 2, Flag.CONTINUE), line(3, 3), line(4, 4, Flag.CONTINUE))
    desk.write(A, line(5, 5, Flag.CONTINUE), ack(4), line(6, 6), line(7, 7, who=2))
    crew = JournalCrew(tmp_path / "one", "ann", all=over(desk.log.root))
    crew.end(crew.announce())
    reason = crew.end(crew.announce()).reason
    assert reason and "outside of transactions" in reason and 'on_disorder="skip"' in reason
    crew = JournalCrew(tmp_path / "two", "ann", all=over(desk.log.root, on_disorder="skip"))
    crew.epochs(4)
    assert crew.ids() == [1, 3, 6, 7]
    [at] = [position_of(str(n), p.state) for n, p in crew.workers["ann"].holding.parts.items()]
    assert at.left_out == 2
    assert "commits only a part" in caplog.text and "is skipped" in caplog.text
