"""The writer: order, transactions, roll-over, full disks, threads."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, CorruptFile, JournalError, StorageFull, UsageError
from penstock.journals import Ack, Journals, JournalWriter, Stamp
from penstock.journals.format.documents import stamp_of
from penstock.journals.format.hints import Hint, decode_hints
from penstock.journals.format.spool import HEADER, SpoolMark
from penstock.journals.format.uuids import Flag, Ticker
from penstock.journals.reader.verify import verify
from tests.journals.support import PRODUCER, documents, lines, numbers, put, read_all
from tests.storage.test_storage import tiny_disk


def n(*values: Any) -> list[dict[str, Any]]:
    return [{"n": value} for value in values]


def stamps(journals: Journals, journal: str) -> list[Stamp]:
    return [stamp_of(document) for document in documents(journals, journal)]


def spool(root: Path, journal: str = "j") -> Path:
    (found,) = (root / journal).glob(".*.spool")
    return found


def left_undecided(writer: JournalWriter, *journals: str) -> tuple[Ack, ...]:
    """The acknowledgements of a transaction that failed after it was prepared."""
    acks: tuple[Ack, ...] = ()
    with suppress(ZeroDivisionError), writer.transaction() as transaction:
        for journal in journals:
            transaction.append(journal, n(1))
        acks = transaction.prepare()
        assert transaction.prepare() == acks == transaction.pending_acks
        with pytest.raises(UsageError, match="is prepared"):
            transaction.append(journals[0], n(3))
        raise ZeroDivisionError
    return acks


def commit(writer: JournalWriter, documents: dict[str, list[dict[str, Any]]]) -> None:
    with writer.transaction() as transaction:
        for journal, each in documents.items():
            transaction.append(journal, each)


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    return Journals(tmp_path)


def test_documents_outside_a_transaction(tmp_path: Path, journals: Journals) -> None:
    with JournalWriter(tmp_path, producer=PRODUCER) as writer:
        done = writer.append("a/b=1/pivot=00", n(1, 2))
        again = writer.append("a/b=1/pivot=00", n(3))
    assert (done.begin, done.documents, done.end) == (0, 2, again.begin)
    assert numbers(journals, "a/b=1/pivot=00") == [1, 2, 3]
    found = stamps(journals, "a/b=1/pivot=00")
    assert {stamp.producer for stamp in found} == {PRODUCER} and {stamp.kind for stamp in found} == {
        Flag.OUTSIDE
    }
    assert [stamp.clock for stamp in found] == sorted({stamp.clock for stamp in found})
    assert journals.head("a/b=1/pivot=00") == again.end
    with JournalWriter(tmp_path) as other:
        assert other.append("a/b=1/pivot=00", n(4)).begin == again.end


def test_a_bad_document_leaves_nothing(tmp_path: Path, journals: Journals) -> None:
    writer = JournalWriter(tmp_path)
    with pytest.raises(BadInput):
        writer.append("j", [{"n": 1}, {"n": object()}])
    with pytest.raises(UsageError, match="put it into a list"):
        writer.append("j", {"n": 1})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="cannot be the name"):
        writer.append("../j", n(1))
    assert journals.list() == []
    assert writer.append("j", []).documents == 0
    assert (journals.list(), journals.head("j")) == (["j"], 0)


def test_ready_lines(tmp_path: Path, journals: Journals) -> None:
    writer = JournalWriter(tmp_path)
    writer.append_lines("j", lines(0, 3))
    for bad in (b"x\n", lines(0, 1)[:-1], lines(0, 1) + b"{}\n", b"\n"):
        with pytest.raises(BadInput, match="line"):
            writer.append_lines("j", bad)
    assert read_all(journals, "j") == lines(0, 3)


@pytest.mark.parametrize("options", [{"compression": "lz4"}, {"roll_bytes": 0}, {"roll_age": 0}])
def test_wrong_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        JournalWriter(tmp_path, **options)
    with pytest.raises(BadInput, match="multicast"):
        JournalWriter(tmp_path, producer=5)


@pytest.mark.parametrize("compression", ["raw", "gz", "zst"])
def test_roll_over_by_size(tmp_path: Path, journals: Journals, compression: Any) -> None:
    writer = JournalWriter(tmp_path, roll_bytes=500, compression=compression)
    reader, followed = journals.reader("j"), b""
    for value in range(60):
        writer.append("j", n(value))
        if value % 7 == 0:
            while chunk := reader.read(200):
                followed += chunk.data
    while chunk := reader.read(200):
        followed += chunk.data
    fragments = journals.fragments("j")
    assert len(fragments) >= 7
    assert all(f.end - f.begin <= 500 and f.extension == f".{compression}" for f in fragments)
    assert followed == read_all(journals, "j")
    assert numbers(journals, "j") == list(range(60))
    assert len(list((tmp_path / "j").glob(".*"))) == 2, "lock and spool"
    assert writer.roll("j") and not writer.roll("j")
    assert journals.fragments("j")[-1].end == journals.head("j")
    report = verify(journals, "j")
    assert report.is_right and report.documents == 60


def test_roll_over_by_age(tmp_path: Path, journals: Journals) -> None:
    now = [1000.0]
    writer = JournalWriter(tmp_path, roll_age=60, now=lambda: now[0])
    for value, passed in enumerate([0, 59, 0, 1, 59, 100]):
        now[0] += passed
        writer.append("j", n(value))
    assert len(journals.fragments("j")) == 2
    assert numbers(journals, "j") == list(range(6))


def test_a_transaction_over_several_journals(tmp_path: Path, journals: Journals) -> None:
    writer = JournalWriter(tmp_path, producer=PRODUCER)
    writer.append("a", n(0))
    with writer.transaction() as transaction:
        transaction.append("a", n(1, 2))
        transaction.append("b", n(3))
        transaction.append("c", [])
        transaction.append("a", n(4))
        assert journals.list() == ["a"]
    assert journals.list() == ["a", "b"]
    assert numbers(journals, "a") == [0, 1, 2, 4]
    assert [s.kind for s in stamps(journals, "a")] == [Flag.OUTSIDE, *[Flag.CONTINUE] * 3, Flag.ACK]
    first, second = documents(journals, "a")[-1], documents(journals, "b")[-1]
    assert first["_meta"]["ack"] is True
    assert decode_hints(first, "a") == [Hint("b", PRODUCER, stamp_of(second).clock)]
    assert decode_hints(second, "b") == [Hint("a", PRODUCER, stamp_of(first).clock)]
    assert stamp_of(first).clock > stamps(journals, "a")[-2].clock
    with pytest.raises(UsageError, match="has ended"):
        transaction.append("a", n(5))


def test_a_roll_back(tmp_path: Path, journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.journals.writer.transactions._BUFFER", 0)
    writer = JournalWriter(tmp_path, producer=PRODUCER)
    writer.append("a", n(0))

    def fail() -> None:
        with writer.transaction() as transaction:
            transaction.append("a", n(1))
            transaction.append("b", n(2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    outside, _, back = stamps(journals, "a")
    assert back == Stamp(PRODUCER, outside.clock, Flag.ACK), "the clock of the last commit"
    assert stamps(journals, "b")[-1] == Stamp(PRODUCER, 0, Flag.ACK), "nothing was ever committed"
    with writer.transaction() as transaction:
        transaction.append("a", n(3))
    committed = stamps(journals, "a")[-1]
    with pytest.raises(ZeroDivisionError):
        fail()
    assert stamps(journals, "a")[-1] == committed
    monkeypatch.setattr("penstock.journals.writer.transactions._BUFFER", 1 << 20)
    before = journals.head("a")
    with pytest.raises(ZeroDivisionError):
        fail()
    assert journals.head("a") == before, "what was never written needs no roll-back"
    writer.roll_back("a")
    assert stamps(journals, "a")[-1] == committed


def test_acks_can_be_stored_and_sent_by_another_process(tmp_path: Path, journals: Journals) -> None:
    writer = JournalWriter(tmp_path, producer=PRODUCER)
    acks = left_undecided(writer, "a", "b")
    stored = json.dumps([[ack.journal, ack.document] for ack in acks])
    assert numbers(journals, "a") == [1] and len(documents(journals, "a")) == 1, "durable, not acknowledged"
    assert writer.pending_acks == acks
    with pytest.raises(JournalError, match="is not finished"):
        writer.append("a", n(4))
    other = JournalWriter(tmp_path)
    other.recover(Ack(*each) for each in json.loads(stored))
    other.recover(acks)
    assert [s.kind for s in stamps(journals, "a")] == [Flag.CONTINUE, Flag.ACK, Flag.ACK]
    writer.recover()
    assert writer.pending_acks == ()
    assert len(set(stamps(journals, "b")[1:])) == 1, "always the same one"
    writer.append("a", n(4))
    with pytest.raises(BadInput, match="no acknowledgement"):
        other.recover([Ack("a", lines(0, 1).decode().strip())])


def test_what_is_undecided_can_be_dropped(tmp_path: Path, journals: Journals) -> None:
    writer = JournalWriter(tmp_path, producer=PRODUCER)
    left_undecided(writer, "a")
    writer.abandon()
    assert stamps(journals, "a")[-1] == Stamp(PRODUCER, 0, Flag.ACK)
    assert writer.append("a", n(2)).documents == 1


def test_acks_that_could_not_be_written_are_known(
    tmp_path: Path, journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = JournalWriter(tmp_path)
    put_ack = writer._producer.put_ack

    def full(ack: Ack) -> None:
        if ack.journal == "b":
            raise StorageFull("no space")
        put_ack(ack)

    monkeypatch.setattr(writer._producer, "put_ack", full)
    with pytest.raises(StorageFull, match="1 of 3 journals have their acknowledgement"):
        commit(writer, {journal: n(1) for journal in "abc"})
    assert [ack.journal for ack in writer.pending_acks] == ["b", "c"]
    with pytest.raises(JournalError, match="can be dropped in none"):
        writer.abandon()
    monkeypatch.undo()
    writer.recover()
    assert [len(documents(journals, journal)) for journal in "abc"] == [2, 2, 2]


def test_clocks_go_on_behind_those_of_an_earlier_process(tmp_path: Path, journals: Journals) -> None:
    late = Ticker(lambda: 2_000_000_000_000_000_000)
    writer = JournalWriter(tmp_path, producer=PRODUCER, ticker=late)
    acks = left_undecided(writer, "j")
    again = JournalWriter(tmp_path, producer=PRODUCER, ticker=Ticker(lambda: 0))
    again.recover(acks)
    again.append("j", n(2))
    clocks = [stamp.clock for stamp in stamps(journals, "j")]
    assert clocks == sorted(set(clocks))


def test_threads_share_a_writer(tmp_path: Path, journals: Journals) -> None:
    writer = JournalWriter(tmp_path, roll_bytes=2000, sync=False)

    def work(name: int) -> None:
        for value in range(30):
            if value % 3:
                writer.append("j", n(f"{name}-{value}"))
            else:
                with writer.transaction() as transaction:
                    transaction.append("j", n(f"{name}-{value}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = numbers(journals, "j")
    assert len(found) == len(set(found)) == 120
    clocks = [stamp.clock for stamp in stamps(journals, "j")]
    assert clocks == sorted(set(clocks)), "one producer, in order"
    open_one = False
    for stamp in stamps(journals, "j"):
        assert not (open_one and stamp.kind is Flag.OUTSIDE)
        open_one = stamp.kind is Flag.CONTINUE


def test_a_thread_appends_through_its_transaction(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    with writer.transaction(), pytest.raises(UsageError, match=r"transaction\.append"):
        writer.append("j", n(1))


def test_many_journals_need_few_files(
    tmp_path: Path, journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.journals.writer.producer._MOST_OPEN", 3)
    writer = JournalWriter(tmp_path, sync=False)
    for value in range(30):
        writer.append(f"j{value % 10}", n(value))
    assert len(writer._producer._appenders) == 3
    assert numbers(journals, "j7") == [7, 17, 27]


def test_a_full_disk_leaves_no_torn_line(tmp_path: Path) -> None:
    with tiny_disk(tmp_path) as place:
        writer, journals = JournalWriter(place, compression="raw"), Journals(place)
        writer.append("j", [{"n": 1, "x": "x" * 300_000}])
        with pytest.raises(StorageFull, match="no space left") as caught:
            writer.append("j", [{"n": 2}, {"n": 3, "x": "x" * 900_000}])
        assert caught.value.left == "what was appended before; of this, nothing"
        assert numbers(journals, "j") == [1]
        writer.append("j", n(4))
        writer.append("j", [{"n": 5, "x": "x" * 300_000}])
        with pytest.raises(StorageFull):
            writer.roll("j")
        assert not list((place / "j").glob("*.tmp")) and journals.fragments("j") == ()
        assert numbers(journals, "j") == [1, 4, 5]
        with pytest.raises(StorageFull):
            commit(writer, {"j": n(6), "k": [{"n": 7, "x": "x" * 900_000}]})
        assert writer.pending_acks == ()
        writer.append("j", n(8))
        assert [s.kind for s in stamps(journals, "j")][-3:] == [Flag.CONTINUE, Flag.ACK, Flag.OUTSIDE]
        assert verify(journals, "j").is_right


def test_a_journal_that_is_removed_while_it_is_written(tmp_path: Path, journals: Journals) -> None:
    writer = JournalWriter(tmp_path)
    writer.append("j", n(1))
    for file in (tmp_path / "j").iterdir():
        file.unlink()
    (tmp_path / "j").rmdir()
    assert writer.append("j", n(2)).begin == 0
    assert numbers(journals, "j") == [2]


def test_the_writer_goes_on_behind_fragments_of_others(tmp_path: Path, journals: Journals) -> None:
    put(tmp_path / "j", 0, lines(0, 5), ".gz")
    put(tmp_path / "k", 777, b"", ".zst")
    writer = JournalWriter(tmp_path)
    assert writer.append("j", n(5)).begin == len(lines(0, 5))
    assert numbers(journals, "j") == list(range(6))
    assert writer.append("k", n(0)).begin == 777


def test_bytes_that_were_not_announced_are_not_read(tmp_path: Path, journals: Journals) -> None:
    writer = JournalWriter(tmp_path)
    end = writer.append("j", n(1)).end
    with spool(tmp_path).open("ab") as file:
        file.write(lines(2, 3) + lines(3, 4)[:20])
    assert numbers(journals, "j") == [1]
    reader = journals.reader("j", end + len(lines(2, 3)))
    assert reader.read(100) is None, "there, but a power failure took its announcement"
    assert verify(journals, "j").is_right
    writer.append("j", n(4))
    assert numbers(journals, "j") == [1, 2, 4], "a whole line may have been promised; a torn one was not"
    assert verify(journals, "j").is_right


@pytest.mark.parametrize("header", [b"", b"\0" * HEADER, b"x" * HEADER])
def test_a_header_that_a_power_failure_took(tmp_path: Path, journals: Journals, header: bytes) -> None:
    JournalWriter(tmp_path).append("j", n(1))
    path = spool(tmp_path)
    data = path.read_bytes()
    path.write_bytes(header + data[HEADER:] + b"\0" * 100 if header else b"")
    assert journals.head("j") == 0
    JournalWriter(tmp_path).append("j", n(2))
    assert numbers(journals, "j") == ([1, 2] if header else [2])


def test_a_spool_that_lost_bytes_is_not_written_to(tmp_path: Path, journals: Journals) -> None:
    JournalWriter(tmp_path).append("j", n(1, 2))
    path = spool(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CorruptFile, match="was announced"):
        JournalWriter(tmp_path).append("j", n(3))
    assert [problem.kind for problem in verify(journals, "j").problems] == ["truncated", "content"]
    with pytest.raises(CorruptFile, match="was announced"):
        read_all(journals, "j")


def test_a_spool_beside_fragments_that_do_not_fit(tmp_path: Path) -> None:
    end = JournalWriter(tmp_path).append("j", n(1, 2)).end
    put(tmp_path / "j", end - 5, lines(0, 9))
    with pytest.raises(CorruptFile, match="does not fit"):
        JournalWriter(tmp_path).append("j", n(3))


def test_marks() -> None:
    mark = SpoolMark(1 << 60, 1_800_000_000)
    header = mark.encode()
    assert len(header) == HEADER and SpoolMark.decode(header) == mark
    for at in range(60):
        assert SpoolMark.decode(header[:at] + bytes([header[at] ^ 1]) + header[at + 1 :]) != mark or at > 58
