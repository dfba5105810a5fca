"""Which producer a writer is: taken over with clocks that go on, fenced, and used again."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CorruptFile, FencedError, UsageError
from penstock.journals import Ack, Journals, JournalWriter, Stamp
from penstock.journals.format.documents import encode_ack, encode_document, stamp_of
from penstock.journals.format.hints import Hint
from penstock.journals.format.spool import HEADER
from penstock.journals.format.uuids import SECOND, UNIX, Flag, Ticker, encode, producer_text
from penstock.journals.shuffle.queues.run_files import RunWriter
from penstock.journals.shuffle.slices.positions import JournalPosition
from penstock.journals.shuffle.slices.slices import Slice, SliceLimits
from penstock.journals.writer import identity
from penstock.journals.writer.identity import FOLDER, ProducerRecord, ProducerState
from penstock.sources.base import PartName
from penstock.sources.journals import JournalSource
from penstock.storage import Storage
from penstock.types.tables import Table
from tests.journals.support import PRODUCER, documents, put

NOW = 1_800_000_000_000_000_000


class Numbers(Table):
    n: int


def ticker(seconds: float = 0.0) -> Ticker:
    """A wall clock that is behind or ahead by so much, and stands still."""
    return Ticker(lambda: NOW + round(seconds * 1e9))


def clock(seconds: float = 0.0) -> int:
    return (NOW // 100 + UNIX << 4) + round(seconds * SECOND)


def n(*values: int) -> list[dict[str, Any]]:
    return [{"n": value} for value in values]


def seen(root: Path, *journals: str) -> int:
    """How many documents a stream reads."""
    source = JournalSource(root, Numbers)
    with RunWriter(Storage(root.parent / "work"), f"runs/{time.monotonic_ns()}", 1, None) as writer:
        slice_ = Slice({"s": source}, writer, SliceLimits(1 << 30, 1 << 30, 60.0), clock(3600))
        slice_.read({PartName("s", journal): JournalPosition() for journal in journals})
    return slice_.rows


def record(root: Path, producer: int = PRODUCER) -> ProducerRecord | None:
    return ProducerRecord.decode((root / FOLDER / producer_text(producer)).read_bytes())


def forget(root: Path) -> None:
    """As written by a version that kept no records."""
    shutil.rmtree(root / FOLDER)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "journals"


# clocks go on


@pytest.mark.parametrize("has_record", [True, False])
@pytest.mark.parametrize("behind", [0.001, 5.0, 86_400.0])
def test_one_that_is_taken_over_by_a_machine_whose_clock_is_behind(
    root: Path, behind: float, has_record: bool
) -> None:
    with JournalWriter(root, producer=PRODUCER, ticker=ticker()) as writer:
        writer.append("a", n(1, 2))
        with writer.transaction() as transaction:
            transaction.append("a", n(3))
            transaction.append("b", n(4))
    if not has_record:
        forget(root)
    with JournalWriter(root, producer=PRODUCER, ticker=ticker(-behind)) as writer:
        writer.append("c", n(5))
        writer.append("b", n(6))
        with writer.transaction() as transaction:
            transaction.append("a", n(7))
            transaction.append("c", n(8))
    assert seen(root, "a", "b", "c") == 8


def by_fragments(root: Path, late: int) -> None:
    put(root / "j", 0, encode_document(Stamp(PRODUCER, late, Flag.OUTSIDE), {"n": 1}), ".zst")
    put(root / "other", 0, encode_document(Stamp(PRODUCER, late - 99, Flag.OUTSIDE), {"n": 1}), ".gz")


def by_capital_letters(root: Path, late: int) -> None:
    uuid = encode(Stamp(PRODUCER, late, Flag.OUTSIDE)).upper()
    put(root / "j", 0, json.dumps({"_meta": {"uuid": uuid}, "n": 1}).encode() + b"\n", ".raw")


def by_a_hint(root: Path, late: int) -> None:
    ack = encode_ack(Stamp(PRODUCER, late - 16, Flag.ACK), [Hint("not/written", PRODUCER, late)])
    put(root / "j", 0, ack)


def by_a_hint_of_another(root: Path, late: int) -> None:
    hints = [{"j": [-1, "not/written"], "p": [{"p": "Aaq7zN3u", "c": f"{late:016x}"}]}]
    meta = {"uuid": encode(Stamp(0x0123456789AB, 16, Flag.ACK))}
    put(root / "j", 0, json.dumps({"_meta": meta, "is_ack": True, "hints": hints}).encode() + b"\n")


def by_an_open_transaction(root: Path, late: int) -> None:
    put(root / "j", 0, encode_document(Stamp(PRODUCER, late, Flag.CONTINUE), {"n": 1}))


def by_lines_that_were_not_announced(root: Path, late: int) -> None:
    JournalWriter(root).append("j", n(1))
    (spool,) = (root / "j").glob(".*.spool")
    line = encode_document(Stamp(PRODUCER, late, Flag.OUTSIDE), {"n": 1})
    spool.write_bytes(spool.read_bytes() + line + line[:20])
    assert spool.stat().st_size > HEADER


def by_the_rest_of_a_journal(root: Path, late: int) -> None:
    put(root / "j", 7000, encode_document(Stamp(PRODUCER, late, Flag.OUTSIDE), {"n": 1}))


def by_what_came_after_lost_documents(root: Path, late: int) -> None:
    lines = [encode_document(Stamp(0x0123456789AB, late - 32 + at, Flag.OUTSIDE), {"n": 1}) for at in (0, 32)]
    put(root / "j", 7000, b"".join(lines))


def by_the_time_of_a_file_without_bytes(root: Path, late: int) -> None:
    path = put(root / "j", 7000, b"", ".zst")
    seconds = ((late >> 4) - UNIX) / 1e7 + 1
    os.utime(path, (seconds, seconds))


@pytest.mark.parametrize(
    "leave",
    [
        by_fragments,
        by_capital_letters,
        by_a_hint,
        by_a_hint_of_another,
        by_an_open_transaction,
        by_lines_that_were_not_announced,
        by_the_rest_of_a_journal,
        by_what_came_after_lost_documents,
        by_the_time_of_a_file_without_bytes,
    ],
)
def test_the_greatest_clock_is_found(root: Path, leave: Callable[[Path, int], None]) -> None:
    late = clock(100)
    leave(root, late)
    with JournalWriter(root, producer=PRODUCER, ticker=ticker()) as writer:
        writer.append("new", n(1))
    assert stamp_of(documents(Journals(root), "new")[0]).clock > late
    with JournalWriter(root, producer=0x0300000000AA, ticker=ticker(200)) as writer:
        writer.append("newer", n(1))
    assert stamp_of(documents(Journals(root), "newer")[0]).clock == clock(200) + 1


def test_what_cannot_be_read_is_not_taken_over(root: Path) -> None:
    put(root / "j", 0, b"{}\n", ".raw", stored=b"{]\n")
    for _ in range(2):
        with pytest.raises(CorruptFile):
            JournalWriter(root, producer=PRODUCER)


def test_a_record_outlives_the_journals(root: Path) -> None:
    with JournalWriter(root, producer=PRODUCER, ticker=ticker()) as writer:
        writer.append("j", n(1))
    shutil.rmtree(root / "j")
    with JournalWriter(root, producer=PRODUCER, ticker=ticker(-5)) as writer:
        writer.append("j", n(1))
    assert stamp_of(documents(Journals(root), "j")[0]).clock > clock()


def test_acks_that_were_promised_are_passed(root: Path) -> None:
    """They may be in the checkpoint of a program, and nowhere else."""
    writer = JournalWriter(root, producer=PRODUCER, ticker=ticker())
    acks: tuple[Ack, ...] = ()
    with suppress(ZeroDivisionError), writer.transaction() as transaction:
        transaction.append("j", n(1))
        transaction.append("k", n(2))
        acks = transaction.prepare()
        raise ZeroDivisionError
    again = JournalWriter(root, producer=PRODUCER, ticker=ticker(-5))
    again.recover(acks)
    again.append("j", n(3))
    assert stamp_of(documents(Journals(root), "j")[-1]).clock > max(ack.stamp.clock for ack in acks)
    assert seen(root, "j", "k") == 3


def test_a_clock_that_is_stepped_back_in_one_process(root: Path) -> None:
    now = [NOW]
    with JournalWriter(root, producer=PRODUCER, ticker=Ticker(lambda: now[0])) as writer:
        for step in (0, -5_000_000_000, 7, -1_000_000_000_000):
            now[0] += step
            writer.append("j", n(1))
    assert seen(root, "j") == 4


DYING = """
import sys
from penstock.journals import JournalWriter
from penstock.journals.format.uuids import Ticker

writer = JournalWriter(sys.argv[1], producer=int(sys.argv[2]), ticker=Ticker(lambda: int(sys.argv[3])))
writer.append("j", [{"n": 1}])
writer.append("j", [{"n": 2}])
"""


@pytest.mark.parametrize(
    "point",
    [
        "journal.producer.taken",
        "journal.producer.reserved",
        "journal.append.synced",
        "journal.append.announced",
    ],
)
def test_killed_on_the_way(root: Path, point: str) -> None:
    command = [sys.executable, "-c", DYING, str(root), str(PRODUCER), str(NOW)]
    environ = {**os.environ, "PENSTOCK_FAILPOINTS": f"{point}=kill"}
    subprocess.run(command, env=environ, check=False, timeout=60)
    found = record(root)
    assert found is not None and found.state is ProducerState.KEPT
    with JournalWriter(root, producer=PRODUCER, ticker=ticker(-5)) as writer:
        before = documents(Journals(root), "j") if writer.roll("j") else []
        writer.append("j", n(3))
    assert seen(root, "j") == len(before) + 1


def test_a_torn_record_is_found_again_in_the_journals(root: Path) -> None:
    with JournalWriter(root, producer=PRODUCER, ticker=ticker()) as writer:
        writer.append("j", n(1))
    path = root / FOLDER / producer_text(PRODUCER)
    path.write_bytes(path.read_bytes().replace(b"kept", b"kepT"))
    with JournalWriter(root, producer=PRODUCER, ticker=ticker(-5)) as writer:
        writer.append("j", n(2))
    assert seen(root, "j") == 2


def test_after_an_orderly_end_nobody_waits(root: Path) -> None:
    for _ in range(3):
        with JournalWriter(root, producer=PRODUCER, ticker=ticker()) as writer:
            writer.append("j", n(1))
    last = stamp_of(documents(Journals(root), "j")[-1]).clock
    assert last - clock() < 20
    found = record(root)
    assert found is not None and found.clock == last


# one writer at a time


def commit(writer: JournalWriter) -> None:
    with writer.transaction() as transaction:
        transaction.append("j", n(9))


def test_a_writer_that_was_taken_over_is_fenced(root: Path) -> None:
    first = JournalWriter(root, producer=PRODUCER, ticker=ticker())
    first.append("j", n(1))
    second = JournalWriter(root, producer=PRODUCER, ticker=ticker(-5))
    head = Journals(root).head("j")
    for _ in range(2):
        with pytest.raises(FencedError, match="01aabbccddee"):
            first.append("j", n(9))
        with pytest.raises(FencedError):
            commit(first)
    assert Journals(root).head("j") == head
    second.append("j", n(2))
    first.close()
    second.append("j", n(3))
    assert seen(root, "j") == 3


def test_a_transaction_is_fenced_in_the_middle(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.journals.writer.transactions._BUFFER", 0)
    first = JournalWriter(root, producer=PRODUCER, ticker=ticker())
    first.append("j", n(1))

    def fail() -> None:
        with first.transaction() as transaction:
            transaction.append("j", n(9))
            second = JournalWriter(root, producer=PRODUCER, ticker=ticker(-5))
            second.roll_back("j")
            second.append("j", n(2))
            transaction.append("j", n(9))

    with pytest.raises(FencedError):
        fail()
    assert seen(root, "j") == 2


def test_lines_of_another_producer_that_go_beyond_its_record(root: Path) -> None:
    """They take the producer from its writer, which does not know of their clocks."""
    first = JournalWriter(root, producer=PRODUCER, ticker=ticker())
    first.append("j", n(1))
    with JournalWriter(root) as other:
        other.append_lines("j", encode_document(Stamp(PRODUCER, clock(50), Flag.OUTSIDE), {"n": 2}))
    with pytest.raises(FencedError):
        first.append("j", n(9))
    with JournalWriter(root, producer=PRODUCER, ticker=ticker()) as writer:
        writer.append("j", n(3))
    assert seen(root, "j") == 3


def test_a_writer_is_not_used_after_a_fork(root: Path) -> None:
    writer = JournalWriter(root)
    writer.append("j", n(1))
    child = os.fork()
    if not child:  # pragma: no cover
        with suppress(BaseException):
            try:
                writer.append("j", n(2))
            except UsageError:
                os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    writer.append("j", n(3))
    assert seen(root, "j") == 2


# few producers


def producers(root: Path, journal: str = "j") -> set[int]:
    return {stamp_of(document).producer for document in documents(Journals(root), journal)}


def test_writers_that_come_one_after_the_other_are_one_producer(root: Path) -> None:
    for behind in range(40):
        with JournalWriter(root, ticker=ticker(-behind), sync=False) as writer:
            writer.append("j", n(1))
            with writer.transaction() as transaction:
                transaction.append("j", n(2))
    assert len(producers(root)) == 1
    assert len(list((root / FOLDER).iterdir())) == 1
    assert seen(root, "j") == 80


def test_writers_that_are_there_at_once_are_several(root: Path) -> None:
    for _ in range(3):
        writers = [JournalWriter(root, sync=False) for _ in range(4)]
        for writer in writers:
            writer.append("j", n(1))
        for writer in writers:
            writer.close()
    assert len(producers(root)) == 4
    assert seen(root, "j") == 12


def test_a_closed_writer_goes_on_as_whoever_is_free(root: Path) -> None:
    one, two = JournalWriter(root), JournalWriter(root)
    one.append("j", n(1))
    one.close()
    two.append("j", n(2))
    assert two.producer == one.producer
    one.append("j", n(3))
    assert two.producer != one.producer
    two.append("j", n(4))
    assert seen(root, "j") == 4


def test_one_that_left_something_open_is_not_used_again(root: Path) -> None:
    writer = JournalWriter(root)
    with suppress(ZeroDivisionError), writer.transaction() as transaction:
        transaction.append("j", n(1))
        transaction.prepare()
        raise ZeroDivisionError
    writer.close()
    with JournalWriter(root) as other:
        assert other.producer != writer.producer
    writer.recover()
    assert seen(root, "j") == 1


def test_records_of_writers_that_were_killed_do_not_stay_for_ever(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = JournalWriter(root)
    left.append("j", n(1))
    named = JournalWriter(root, producer=PRODUCER)
    for path in (root / FOLDER).iterdir():
        os.utime(path, (1, 1))
    with JournalWriter(root) as other:
        other.append("j", n(2))
    assert {path.name for path in (root / FOLDER).iterdir()} == {
        producer_text(PRODUCER),
        producer_text(other.producer),
    }
    left.append("j", n(3))
    named.append("j", n(4))
    assert seen(root, "j") == 4


def test_one_that_was_free_waits_for_its_lock_like_any_other(root: Path) -> None:
    with JournalWriter(root) as before:
        before.append("j", n(1))
    with JournalWriter(root) as writer:
        writer.append("j", n(2))
        assert writer.producer == before.producer
        with (root / FOLDER / producer_text(writer.producer)).open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            release = threading.Timer(0.2, fcntl.flock, (other, fcntl.LOCK_UN))
            release.start()
            writer.append("j", n(3))
            release.join()
    assert seen(root, "j") == 3


def test_free_ones_are_found_among_many_of_writers_that_were_killed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_TRIES", 10)
    monkeypatch.setattr(random, "sample", random.Random(1).sample)
    (root / FOLDER).mkdir(parents=True)
    for number in range(40):
        busy = ProducerRecord(1, number, ProducerState.BUSY)
        (root / FOLDER / producer_text(1 << 40 | number)).write_bytes(busy.encode())
    for _ in range(100):
        with JournalWriter(root, sync=False) as writer:
            writer.append("j", n(1))
    assert len(producers(root)) < 25
    assert seen(root, "j") == 100
