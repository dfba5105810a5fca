"""Journals: lines, acknowledgements, names, spools, records of producers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.journals import JournalWriter
from penstock.journals.format import names
from penstock.journals.format.documents import encode_ack, encode_document, parse, stamp_of
from penstock.journals.format.fragments import Fragment, name_of, spool_name
from penstock.journals.format.fragments import parse as parse_name
from penstock.journals.format.hints import Hint, decode_hints, usual_hint
from penstock.journals.format.spool import SpoolMark
from penstock.journals.format.uuids import Flag, Stamp
from penstock.journals.reader.journals import Journals
from penstock.journals.writer.appending import Compression
from penstock.journals.writer.identity import ProducerRecord, ProducerState
from tests.golden.kit import Golden, Tree, replaced, text

PRODUCER = 0x0123_4567_89AB
CLOCK = 0x1EE8_33B0_4AFC_0001
DOCUMENT = {"_meta": {"kept": 1}, "id": 7, "text": "ä\n"}
HINTS = [Hint("orders/eu/pivot=00", PRODUCER, CLOCK), Hint("orders/us/pivot=00", PRODUCER, CLOCK + 1)]
JOURNAL = names.make("orders", {"region": "e/u"})
SHA1 = "0f" * 20
LINES: list[dict[str, Any]] = [{"id": 1, "text": "ä"}, {"id": 2}, {"id": 3}]


def _names() -> bytes:
    return text(JOURNAL, name_of(255, 4_096, SHA1, ".zst"), spool_name(255))


def _document(data: bytes) -> Any:
    found = parse(data)
    return stamp_of(found), found["id"], found["text"], found["_meta"]["kept"]


def _ack(data: bytes) -> Any:
    found = parse(data)
    return stamp_of(found), found["_meta"]["ack"], decode_hints(found, "orders/eu/pivot=00")


def _named(data: bytes) -> Any:
    journal, fragment, _ = data.decode().splitlines()
    found = parse_name(f"{journal}/{fragment}")
    return names.fields(journal), names.base(journal), found


def _flow() -> bytes:
    """As Estuary's Flow writes it; we only read these."""
    uuid = parse(encode_ack(Stamp(PRODUCER, CLOCK, Flag.ACK)))["_meta"]["uuid"]
    line = (
        '{"_meta":{"uuid":"' + uuid + '"},"is_ack":true,"hints":[{"j":[11,"us/pivot=00"],"p":[{}]},'
        '{"j":[-1,"other"],"p":[{"p":"ASNFZ4mr","c":"1ee833b04afc0002"}]}]}\n'
    )
    return str(line).encode()


def make_journals(folder: Path) -> None:
    """Three journals of one writer: fragments of each compression, and a spool."""
    each: tuple[Compression, ...] = ("raw", "gz", "zst")
    for compression in each:
        # Each append but the first makes a fragment of what was there before.
        with JournalWriter(folder, producer=PRODUCER, compression=compression, roll_bytes=1) as writer:
            writer.append(f"orders/{compression}", LINES[:2])
            with writer.transaction() as transaction:
                transaction.append(f"orders/{compression}", LINES[2:])
    for lock in folder.rglob(".lock"):
        lock.unlink()


def read_journals(folder: Path) -> Any:
    found = {}
    journals = Journals(folder)
    for journal in journals.list():
        with journals.reader(journal) as reader:
            chunk = reader.read(1 << 20)
            assert chunk is not None
            data = chunk.data
            while (chunk := reader.read(1 << 20)) is not None:
                data += chunk.data
        lines = [parse(line) for line in data.splitlines()]
        kinds = [stamp_of(line).kind for line in lines]
        assert kinds == [Flag.OUTSIDE, Flag.OUTSIDE, Flag.CONTINUE, Flag.ACK]
        assert {stamp_of(line).producer for line in lines} == {PRODUCER}
        found[journal] = [{k: v for k, v in line.items() if k != "_meta"} for line in lines[:3]]
    return found


def append_to_journals(folder: Path) -> None:
    """A later release goes on where the earlier one stopped: as the same producer, with later clocks."""
    before = _clocks(folder)
    with JournalWriter(folder, producer=PRODUCER) as writer:
        writer.append("orders/raw", [{"id": 4}])
    assert len(after := _clocks(folder)) == len(before) + 1
    assert after == sorted(after)


def _clocks(folder: Path) -> list[int]:
    with Journals(folder).reader("orders/raw") as reader:
        found = []
        while (chunk := reader.read(1 << 20)) is not None:
            found += [stamp_of(parse(line)).clock for line in chunk.data.splitlines()]
        return found


GOLDEN = [
    Golden(
        "journals/document.jsonl",
        (Stamp(PRODUCER, CLOCK, Flag.CONTINUE), 7, "ä\n", 1),
        _document,
        lambda: encode_document(Stamp(PRODUCER, CLOCK, Flag.CONTINUE), DOCUMENT),
    ),
    Golden(
        "journals/ack.jsonl",
        (Stamp(PRODUCER, CLOCK, Flag.ACK), True, HINTS),
        _ack,
        lambda: encode_ack(Stamp(PRODUCER, CLOCK, Flag.ACK), HINTS),
    ),
    Golden(
        "journals/ack-of-one.jsonl",
        ((b"orders/eu/pivot=00", b"0123456789ab"), CLOCK),
        usual_hint,
        lambda: encode_ack(Stamp(PRODUCER, CLOCK, Flag.ACK), HINTS[:1]),
    ),
    Golden(
        "journals/ack-of-flow.jsonl",
        [Hint("orders/us/pivot=00", PRODUCER, CLOCK), Hint("other", PRODUCER, CLOCK + 1)],
        lambda data: decode_hints(parse(data), "orders/eu/pivot=00"),
        _flow,
    ),
    Golden(
        "journals/names.txt",
        (
            {"region": "e/u"},
            "orders",
            Fragment(255, 4_096, SHA1, ".zst", f"{JOURNAL}/{name_of(255, 4096, SHA1, '.zst')}"),
        ),
        _named,
        _names,
    ),
    Golden(
        "journals/spool-header.txt",
        SpoolMark(4_096, 1_767_323_045),
        SpoolMark.decode,
        SpoolMark(4_096, 1_767_323_045).encode,
        newer=replaced(b"penstock-spool 1 ", b"penstock-spool 2 "),
    ),
    Golden(
        "journals/producer.txt",
        ProducerRecord(CLOCK, 0x5EED_0001, ProducerState.BUSY),
        ProducerRecord.decode,
        ProducerRecord(CLOCK, 0x5EED_0001, ProducerState.BUSY).encode,
        newer=replaced(b"penstock-producer 1 ", b"penstock-producer 2 "),
    ),
]

TREES = [
    Tree(
        "journals/root",
        {f"orders/{each}": LINES for each in ("gz", "raw", "zst")},
        make_journals,
        read_journals,
        append_to_journals,
    )
]
