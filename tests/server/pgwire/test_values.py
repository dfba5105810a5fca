"""Parameters mean what PostgreSQL takes them for."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SqlError
from penstock.gateway import types
from penstock.gateway.pgwire.values import decode
from tests.gateway.pgwire.wire import postgres_says

if TYPE_CHECKING:
    import psycopg

UTC = dt.UTC
GOOD: list[tuple[int, str, object]] = [
    (types.BOOL, "t", True),
    (types.BOOL, " OFF ", False),
    (types.BOOL, "ye", True),
    (types.INT2, "-32768", -32768),
    (types.INT4, " 42 ", 42),
    (types.INT8, "+9223372036854775807", 2**63 - 1),
    (types.OID, "4294967295", 2**32 - 1),
    (types.FLOAT4, "1.5", 1.5),
    (types.FLOAT8, "1e-7", 1e-7),
    (types.FLOAT8, "-Infinity", -math.inf),
    (types.NUMERIC, "12345.6789", Decimal("12345.6789")),
    (types.NUMERIC, "-0.00010", Decimal("-0.00010")),
    (types.NUMERIC, "1e10", Decimal(10000000000)),
    (types.NUMERIC, "100000000.5", Decimal("100000000.5")),
    (types.NUMERIC, "0", Decimal(0)),
    (types.TEXT, "é\n", "é\n"),
    (types.VARCHAR, "", ""),
    (types.BYTEA, "\\x00ff41", b"\x00\xffA"),
    (types.BYTEA, "a\\\\b\\000", b"a\\b\x00"),
    (types.DATE, "2024-02-29", dt.date(2024, 2, 29)),
    (types.DATE, "20240229", dt.date(2024, 2, 29)),
    (types.TIME, "23:59:59.999999", dt.time(23, 59, 59, 999999)),
    (types.TIME, "12:30", dt.time(12, 30)),
    (types.TIMESTAMP, "2024-01-02 03:04:05.5", dt.datetime(2024, 1, 2, 3, 4, 5, 500000)),
    (types.TIMESTAMP, "2024-01-02T03:04:05+02", dt.datetime(2024, 1, 2, 3, 4, 5)),
    (types.TIMESTAMP, "2024-01-02", dt.datetime(2024, 1, 2)),
    (types.TIMESTAMPTZ, "2024-01-02 03:04:05+05:30", dt.datetime(2024, 1, 1, 21, 34, 5, tzinfo=UTC)),
    (types.TIMESTAMPTZ, "2024-01-02 03:04:05Z", dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (types.TIMESTAMPTZ, "2024-01-02 03:04:05 Europe/Berlin", dt.datetime(2024, 1, 2, 2, 4, 5, tzinfo=UTC)),
    (types.TIMESTAMPTZ, "2024-01-02 03:04:05", dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (types.INTERVAL, "1 day 02:03:04.5", dt.timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
    (types.INTERVAL, "-1 days +00:00:01", dt.timedelta(days=-1, seconds=1)),
    (types.INTERVAL, "@ 2 hours 1 min ago", dt.timedelta(hours=-2, minutes=-1)),
    (types.INTERVAL, "P1DT2H0.5S", dt.timedelta(days=1, hours=2, seconds=0.5)),
    (types.INTERVAL, "3 weeks", dt.timedelta(weeks=3)),
    (types.INTERVAL, "90", dt.timedelta(seconds=90)),
    (types.UUID, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    (types.UUID, "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}", uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    (types.JSON, '{"a": [1]}', '{"a": [1]}'),
    (types.JSONB, "[1, 2]", "[1, 2]"),
    (types.INT4_ARRAY, "{1,NULL, 3 }", [1, None, 3]),
    (types.INT4_ARRAY, "{}", []),
    (types.INT4_ARRAY, "{{1,2},{3,4}}", [[1, 2], [3, 4]]),
    (types.TEXT_ARRAY, '{a b , "x\\"y", "NULL",null,\\ z}', ["a b", 'x"y', "NULL", None, " z"]),
    (types.NUMERIC_ARRAY, "{1.50,-2}", [Decimal("1.50"), Decimal(-2)]),
    (types.TIMESTAMP_ARRAY, '{"2024-01-02 00:00:00"}', [dt.datetime(2024, 1, 2)]),
]


def same(found: object, expected: object) -> bool:
    return repr(found) == repr(expected)


@pytest.mark.parametrize(("oid", "text", "expected"), GOOD, ids=[f"{oid} {text}" for oid, text, _ in GOOD])
def test_text_and_binary(real: psycopg.Connection, oid: int, text: str, expected: object) -> None:
    assert same(decode(oid, 0, text.encode()), expected)
    # PostgreSQL reads the same text: what it sends in binary is a parameter, too.
    real.execute("SET TimeZone TO UTC")
    packed = postgres_says(real, [text.encode()], oid, 1)[0]
    assert packed is not None
    assert same(decode(oid, 1, packed), expected)


BAD: list[tuple[int, str, str]] = [
    (types.BOOL, "o", "22P02"),
    (types.BOOL, "", "22P02"),
    (types.INT2, "32768", "22003"),
    (types.INT4, "4.0", "22P02"),
    (types.INT4, "", "22P02"),
    (types.INT8, "9" * 30, "22003"),
    (types.FLOAT8, "1e999", "22003"),
    (types.FLOAT4, "1e39", "22003"),
    (types.FLOAT8, "x", "22P02"),
    (types.NUMERIC, "1.2.3", "22P02"),
    (types.BYTEA, "\\xzz", "22023"),
    (types.BYTEA, "\\9", "22P02"),
    (types.DATE, "2024-13-01", "22008"),
    (types.TIME, "25:00", "22008"),
    (types.UUID, "a0eebc99", "22P02"),
    (types.JSON, "{", "22P02"),
    (types.INT4_ARRAY, "{1,", "22P02"),
    (types.INT4_ARRAY, "1", "22P02"),
    (types.INT4_ARRAY, "{1}x", "22P02"),
    (types.INT4_ARRAY, "{,}", "22P02"),
    (types.TIMESTAMPTZ, "2024-01-02 00:00:00 Nowhere/Else", "22023"),
]


@pytest.mark.parametrize(("oid", "text", "sqlstate"), BAD, ids=[f"{oid} {text}" for oid, text, _ in BAD])
def test_what_is_wrong_is_refused_as_postgres_does(
    real: psycopg.Connection, oid: int, text: str, sqlstate: str
) -> None:
    import psycopg

    with pytest.raises(SqlError) as caught:
        decode(oid, 0, text.encode())
    assert caught.value.sqlstate == sqlstate
    with pytest.raises(psycopg.Error) as theirs:
        real.execute(f"SELECT %s::text::{types.type_name(oid)}", [text])
    assert theirs.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (types.DATE, "infinity"),
        (types.TIMESTAMP, "-infinity"),
        (types.TIMESTAMPTZ, "infinity"),
        (types.NUMERIC, "NaN"),
        (types.INTERVAL, "1 year"),
        (types.INTERVAL, "P2M"),
    ],
)
def test_what_spark_does_not_have_is_refused_with_advice(
    real: psycopg.Connection, oid: int, text: str
) -> None:
    packed = postgres_says(real, [text.encode()], oid, 1)[0]
    assert packed is not None
    for code, data in ((0, text.encode()), (1, packed)):
        with pytest.raises(SqlError) as caught:
            decode(oid, code, data)
        assert caught.value.sqlstate == "0A000"
        assert caught.value.hint


def test_years_that_python_has_not() -> None:
    for text in ("0044-03-15 BC", "12024-01-01"):
        with pytest.raises(SqlError) as caught:
            decode(types.DATE, 0, text.encode())
        assert caught.value.sqlstate == "22008"


def test_a_time_stamp_without_offset_is_of_the_session() -> None:
    found = decode(types.TIMESTAMPTZ, 0, b"2024-07-01 12:00", zone="Europe/Berlin")
    assert found == dt.datetime(2024, 7, 1, 10, tzinfo=UTC)


def test_bytes_that_are_no_text() -> None:
    for data in (b"\xff", b"a\0b"):
        with pytest.raises(SqlError) as caught:
            decode(types.TEXT, 0, data)
        assert caught.value.sqlstate == "22021"


OIDS = sorted({oid for oid, _, _ in GOOD})


@given(st.sampled_from(OIDS), st.binary(max_size=80) | st.integers(0, 3).map(lambda n: bytes(n * 8)))
def test_no_bytes_raise_anything_else(oid: int, data: bytes) -> None:
    for code in (0, 1):
        with contextlib.suppress(SqlError):
            decode(oid, code, data)


@given(st.sampled_from(OIDS), st.text(alphabet='0123456789-+:.eTZP{}",\\ NULadyinf', max_size=30))
def test_no_text_raises_anything_else(oid: int, text: str) -> None:
    with contextlib.suppress(SqlError):
        decode(oid, 0, text.encode())


def test_values_have_the_types_that_the_engine_takes() -> None:
    taken: tuple[Any, ...] = (
        bool,
        int,
        float,
        Decimal,
        str,
        bytes,
        dt.date,
        dt.time,
        dt.timedelta,
        uuid.UUID,
        list,
    )
    for oid, text, _ in GOOD:
        assert isinstance(decode(oid, 0, text.encode()), taken)
