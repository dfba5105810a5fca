"""Lines of journals as columns, and what is said of lines that are no documents."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest

from penstock.batch.inputs.conform import conform
from penstock.batch.inputs.formats.jsonl import JsonLines, readable_schema
from penstock.errors import BadInput, PenstockError
from penstock.journals.format.uuids import Flag, Stamp, encode
from penstock.journals.shuffle.sequencing.columns import JournalLines, Lines, Parser
from penstock.types.tables import Precision, Table

PRODUCER = 1 << 40 | 7


class Inner(Table):
    x: int
    y: str | None


class Wide(Table):
    id: int
    name: str | None
    price: Annotated[Decimal | None, Precision(10, 2)]
    day: date | None
    at: datetime | None
    share: float | None
    is_new: bool | None
    inner: Inner | None
    tags: list[str] | None


def uuid(clock: int, flag: Flag = Flag.OUTSIDE) -> str:
    return encode(Stamp(PRODUCER, clock, flag))


def line(clock: int = 16, **members: Any) -> bytes:
    return json.dumps({"_meta": {"uuid": uuid(clock)}, **members}).encode() + b"\n"


def raw(members: bytes, clock: int = 16) -> bytes:
    return b'{"_meta":{"uuid":"' + uuid(clock).encode() + b'"},' + members + b"}\n"


def parse(*pieces: JournalLines) -> Lines:
    return Parser(Wide.input_schema()).parse(pieces)


def one(*lines: bytes) -> Lines:
    return parse(JournalLines("a/b", 100, b"".join(lines)))


def test_documents_of_several_journals_know_where_they_stand() -> None:
    first, second, third = line(16, id=1), line(32, id=2, name="ü"), line(48, id=3)
    found = parse(
        JournalLines("a", 1000, first + second), JournalLines("b", 0, third), JournalLines("c", 7, first)
    )
    assert [found.journals[n] for n in found.journal] == ["a", "a", "b", "c"]
    assert found.offset.tolist() == [1000, 1000 + len(first), 0, 7]
    assert found.end.tolist() == [1000 + len(first), 1000 + len(first + second), len(third), 7 + len(first)]
    assert found.stamps.clock.tolist() == [16, 32, 48, 16]
    assert found.fields.column("id").to_pylist() == [1, 2, 3, 1]
    assert found.line(1) == second
    assert found.where(1) == f"journal a, offset {1000 + len(first)}"
    assert not found.unfit


def test_some_documents_keep_what_is_known_of_them() -> None:
    bad = raw(b'"id":"x"', 32)
    lines = one(line(16, id=1), bad, line(48, id=3))
    chosen = lines.select(pa.array([1, 2]).to_numpy())
    assert chosen.fields.column("id").to_pylist() == [None, 3]
    assert chosen.uuids.to_pylist() == [uuid(32), uuid(48)]
    assert list(chosen.unfit) == [0]
    assert chosen.line(0) == bad
    assert len(lines.select(pa.array([], pa.int64()).to_numpy())) == 0


GOOD = line(16, id=1)
NO_DOCUMENTS = {
    "not JSON": (b'{"id":1\n', "not JSON"),
    "a rest": (b"1}\n", "not JSON"),
    "empty": (b"\n", "the line is empty"),
    "blanks": (b" \t\r\n", "the line is empty"),
    "a null": (b"null\n", "not an object"),
    "a null behind a blank": (b" null\n", "not an object"),
    "a list": (b"[1]\n", "not an object"),
    "a number": (b"1\n", "not an object"),
    "a text": (b'"x"\n', "not an object"),
    "two documents": (GOOD[:-1] + GOOD, "not JSON"),
    "a document and a null": (GOOD[:-1] + b"null\n", "not JSON"),
    "a null between": (GOOD[:-1] + b"null" + GOOD, "not JSON"),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD, "not JSON"),
    "another encoding": ('{"id":1}'.encode("utf-16-le") + b"\n", "not"),
    "no meta": (b'{"id":1}\n', "no _meta.uuid"),
    "null meta": (b'{"_meta":null,"id":1}\n', "no _meta.uuid"),
    "meta of another type": (b'{"_meta":3,"id":1}\n', "no _meta.uuid"),
    "no uuid": (b'{"_meta":{},"id":1}\n', "no _meta.uuid"),
    "null uuid": (b'{"_meta":{"uuid":null},"id":1}\n', "'None' is not a UUID"),
    "a number as uuid": (b'{"_meta":{"uuid":3},"id":1}\n', "'3' is not a UUID"),
    "no UUID": (b'{"_meta":{"uuid":"abc"},"id":1}\n', "'abc' is not a UUID"),
    "version 4": (b'{"_meta":{"uuid":"7f0c0d52-0b7c-4c3e-8f0a-01b2c3d4e5f6"}}\n', "version 4"),
    "meta twice": (GOOD[:-2] + b',"_meta":{"uuid":"x"}}\n', "is not a UUID"),
    "the same meta twice": (GOOD[:-2] + b"," + GOOD[1:], "_meta twice"),
    "uuid twice": (
        b'{"_meta":{"uuid":"%b","uuid":"%b"},"id":1}\n' % (uuid(16).encode(), uuid(32).encode()),
        "uuid twice",
    ),
    "no UTF-8 in a field": (raw(b'"name":"a\xff"'), "not UTF-8"),
    "no UTF-8 elsewhere": (raw(b'"other":"a\xc3"'), "not UTF-8"),
    "half a character": (raw(b'"name":"\xed\xa0\x80"'), "not UTF-8"),
    "a control character": (raw(b'"name":"a\x01"'), "not JSON"),
    "a comma too many": (raw(b'"id":1,'), "not JSON"),
    "a zero byte behind": (GOOD[:-1] + b"\x00\n", "not JSON"),
}


@pytest.mark.parametrize(("bad", "why"), NO_DOCUMENTS.values(), ids=NO_DOCUMENTS)
@pytest.mark.parametrize("before", [0, 1, 4])
def test_a_line_that_is_no_document_is_named(before: int, bad: bytes, why: str) -> None:
    lines = b"".join(line(16 * n + 16, id=n, name="ü") for n in range(before))
    pieces = [
        JournalLines("first", 0, GOOD * 3),
        JournalLines("second", 500, lines + bad + GOOD),
        JournalLines("third", 0, GOOD),
    ]
    with pytest.raises(BadInput, match=why) as caught:
        parse(*pieces)
    assert caught.value.what.startswith(f"journal second, offset {500 + len(lines)}: ")
    assert caught.value.hint


def test_lines_that_would_make_up_for_each_other_are_no_documents() -> None:
    """As many documents as lines, but not one on each."""
    with pytest.raises(BadInput, match=f"offset {99 + 2 * len(GOOD)}: the line is empty"):
        one(GOOD[:-1] + GOOD, b"\n")
    cut = GOOD.index(b",") + 1
    with pytest.raises(BadInput, match="offset 100: the line is not JSON"):
        one(GOOD[:cut] + b"\n", GOOD[cut:], GOOD[:-1] + GOOD)


def test_blanks_around_a_document_do_no_harm() -> None:
    found = one(b" " + GOOD, GOOD[:-1] + b" \r\n", b"\t" + GOOD)
    assert found.fields.column("id").to_pylist() == [1, 1, 1]


UNFIT = {
    "a text for a number": b'"id":"x"',
    "a fraction": b'"id":1.5',
    "a boolean": b'"id":true',
    "too large": b'"id":9223372036854775808',
    "an object for a text": b'"id":1,"name":{}',
    "too many digits": b'"id":1,"price":1.255',
    "too large a decimal": b'"id":1,"price":123456789',
    "no time": b'"id":1,"at":"noon"',
    "a time as a number": b'"id":1,"at":17',
    "nested": b'"id":1,"inner":{"x":"a"}',
    "a number for an object": b'"id":1,"inner":3',
    "an element": b'"id":1,"tags":["a",3]',
    "twice": b'"id":1,"id":2',
    "half a character": b'"id":1,"name":"\\ud800"',
    "too large a number": b'"id":1,"share":1e400',
}


@pytest.mark.parametrize("members", UNFIT.values(), ids=UNFIT)
def test_a_document_that_does_not_fit_the_table_is_told_apart(members: bytes) -> None:
    lines = [line(16 * n + 16, id=n, name="ü") for n in range(9)]
    bad = raw(members, 1600)
    found = one(*lines[:5], bad, *lines[5:], bad)
    assert sorted(found.unfit) == [5, 10]
    assert found.fields.column("id").to_pylist() == [0, 1, 2, 3, 4, None, 5, 6, 7, 8, None]
    assert found.stamps.clock.tolist()[5] == 1600
    assert found.where(5) == f"journal a/b, offset {100 + sum(map(len, lines[:5]))}"


def test_members_that_the_table_does_not_name_are_not_looked_at() -> None:
    deep = b'"deep":' + b"[" * 5000 + b"]" * 5000
    found = one(raw(b'"id":1,"z":1,"z":2'), raw(b'"id":2,' + deep), raw(b'"id":3,"hints":[{"j":[0,"a"]}]'))
    assert found.fields.column("id").to_pylist() == [1, 2, 3]
    assert not found.unfit


def test_a_document_that_is_nested_too_deeply_to_be_looked_at_is_named() -> None:
    deep = b'{"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    with pytest.raises(BadInput, match=f"offset {100 + len(GOOD)}: .*nested too deeply"):
        one(GOOD, deep)


FIELDS = [
    b'"day":"2024-02-29"',
    b'"day":"2024-02-30"',
    b'"day":"29.2.2024"',
    b'"day":"2024-02-29T00:00:00"',
    b'"day":19782',
    b'"at":"2024-02-29T12:30:00Z"',
    b'"at":"2024-02-29T12:30:00.123456Z"',
    b'"at":"2024-02-29T12:30:00.1234567Z"',
    b'"at":"2024-02-29T14:30:00+02:00"',
    b'"at":"2024-02-29 12:30:00"',
    b'"at":"2024-02-29"',
    b'"at":"yesterday"',
    b'"price":1.25',
    b'"price":"1.25"',
    b'"price":1e2',
    b'"price":-12',
    b'"price":1.255',
    b'"price":"a"',
    b'"share":1',
    b'"share":1e-3',
    b'"share":"1"',
    b'"is_new":true',
    b'"is_new":1',
    b'"inner":{"x":1}',
    b'"inner":{"x":1,"y":"a","z":3}',
    b'"inner":{"y":"a"}',
    b'"inner":{"x":1.5}',
    b'"tags":["a","b"]',
    b'"tags":[null]',
    b'"tags":[]',
    b'"name":null',
    b'"name":5',
]


@pytest.mark.parametrize("members", FIELDS, ids=lambda members: members.decode())
def test_fields_are_read_as_those_of_json_lines(members: bytes) -> None:
    """A document's members mean in a journal what they mean in a file."""
    text = raw(b'"id":1,' + members)
    schema = Wide.input_schema()
    try:
        table = JsonLines(readable_schema(schema), strict=False).parse(pa.py_buffer(text), schema.names)
        wanted = conform(table.combine_chunks().to_batches()[0], schema)
    except (PenstockError, pa.ArrowInvalid):
        wanted = None
    found = one(text)
    try:
        got = None if found.unfit else conform(found.fields, schema)
    except PenstockError:
        got = None
    assert got == wanted


def test_dates_times_decimals_and_nested_documents() -> None:
    found = one(
        line(
            id=1,
            price=1.25,
            day="2024-02-29",
            at="2024-02-29T14:30:00.5+02:00",
            share=0.5,
            is_new=True,
            inner={"x": 1, "y": None},
            tags=["a", "ü"],
        )
    )
    assert conform(found.fields, Wide.input_schema()).to_pylist() == [
        {
            "id": 1,
            "name": None,
            "price": Decimal("1.25"),
            "day": date(2024, 2, 29),
            "at": datetime(2024, 2, 29, 12, 30, 0, 500_000, tzinfo=UTC),
            "share": 0.5,
            "is_new": True,
            "inner": {"x": 1, "y": None},
            "tags": ["a", "ü"],
        }
    ]
