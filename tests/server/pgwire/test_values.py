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
from penstock.server.pgwire.decode.values import decode
from penstock.sql.parse.interval_input import Parts
from penstock.types import postgres
from tests.server.pgwire.wire import postgres_says

if TYPE_CHECKING:
    import psycopg

UTC = dt.UTC
GOOD: list[tuple[int, str, object]] = [
    (postgres.BOOL, "t", True),
    (postgres.BOOL, " OFF ", False),
    (postgres.BOOL, "ye", True),
    (postgres.INT2, "-32768", -32768),
    (postgres.INT4, " 42 ", 42),
    (postgres.INT8, "+9223372036854775807", 2**63 - 1),
    (postgres.OID, "4294967295", 2**32 - 1),
    (postgres.FLOAT4, "1.5", 1.5),
    (postgres.FLOAT8, "1e-7", 1e-7),
    (postgres.FLOAT8, "-Infinity", -math.inf),
    (postgres.NUMERIC, "12345.6789", Decimal("12345.6789")),
    (postgres.NUMERIC, "-0.00010", Decimal("-0.00010")),
    (postgres.NUMERIC, "1e10", Decimal(10000000000)),
    (postgres.NUMERIC, "100000000.5", Decimal("100000000.5")),
    (postgres.NUMERIC, "0", Decimal(0)),
    (postgres.TEXT, "é\n", "é\n"),
    (postgres.VARCHAR, "", ""),
    (postgres.BYTEA, "\\x00ff41", b"\x00\xffA"),
    (postgres.BYTEA, "a\\\\b\\000", b"a\\b\x00"),
    (postgres.DATE, "2024-02-29", dt.date(2024, 2, 29)),
    (postgres.DATE, "20240229", dt.date(2024, 2, 29)),
    (postgres.TIME, "23:59:59.999999", dt.time(23, 59, 59, 999999)),
    (postgres.TIME, "12:30", dt.time(12, 30)),
    (postgres.TIMESTAMP, "2024-01-02 03:04:05.5", dt.datetime(2024, 1, 2, 3, 4, 5, 500000)),
    (postgres.TIMESTAMP, "2024-01-02T03:04:05+02", dt.datetime(2024, 1, 2, 3, 4, 5)),
    (postgres.TIMESTAMP, "2024-01-02", dt.datetime(2024, 1, 2)),
    (postgres.TIMESTAMPTZ, "2024-01-02 03:04:05+05:30", dt.datetime(2024, 1, 1, 21, 34, 5, tzinfo=UTC)),
    (postgres.TIMESTAMPTZ, "2024-01-02 03:04:05Z", dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (postgres.TIMESTAMPTZ, "2024-01-02 03:04:05 Europe/Berlin", dt.datetime(2024, 1, 2, 2, 4, 5, tzinfo=UTC)),
    (postgres.TIMESTAMPTZ, "2024-01-02 03:04:05", dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (postgres.INTERVAL, "1 day 02:03:04.5", Parts(0, 1, 7_384_500_000)),
    (postgres.INTERVAL, "-1 days +00:00:01", Parts(0, -1, 1_000_000)),
    (postgres.INTERVAL, "@ 2 hours 1 min ago", Parts(0, 0, -7_260_000_000)),
    (postgres.INTERVAL, "P1DT2H0.5S", Parts(0, 1, 7_200_500_000)),
    (postgres.INTERVAL, "3 weeks", Parts(0, 21)),
    (postgres.INTERVAL, "90", Parts(0, 0, 90_000_000)),
    (postgres.INTERVAL, "25:00", Parts(0, 0, 90_000_000_000)),
    (postgres.INTERVAL, "1 year -2 days", Parts(12, -2)),
    (
        postgres.UUID,
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ),
    (postgres.UUID, "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}", uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    (postgres.JSON, '{"a": [1]}', '{"a": [1]}'),
    (postgres.JSONB, "[1, 2]", "[1, 2]"),
    (postgres.INT4_ARRAY, "{1,NULL, 3 }", [1, None, 3]),
    (postgres.INT4_ARRAY, "{}", []),
    (postgres.INT4_ARRAY, "{{1,2},{3,4}}", [[1, 2], [3, 4]]),
    (postgres.TEXT_ARRAY, '{a b , "x\\"y", "NULL",null,\\ z}', ["a b", 'x"y', "NULL", None, " z"]),
    (postgres.NUMERIC_ARRAY, "{1.50,-2}", [Decimal("1.50"), Decimal(-2)]),
    (postgres.TIMESTAMP_ARRAY, '{"2024-01-02 00:00:00"}', [dt.datetime(2024, 1, 2)]),
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
    (postgres.BOOL, "o", "22P02"),
    (postgres.BOOL, "", "22P02"),
    (postgres.INT2, "32768", "22003"),
    (postgres.INT4, "4.0", "22P02"),
    (postgres.INT4, "", "22P02"),
    (postgres.INT8, "9" * 30, "22003"),
    (postgres.FLOAT8, "1e999", "22003"),
    (postgres.FLOAT4, "1e39", "22003"),
    (postgres.FLOAT8, "x", "22P02"),
    (postgres.NUMERIC, "1.2.3", "22P02"),
    (postgres.BYTEA, "\\xzz", "22023"),
    (postgres.BYTEA, "\\9", "22P02"),
    (postgres.DATE, "2024-13-01", "22008"),
    (postgres.TIME, "25:00", "22008"),
    (postgres.UUID, "a0eebc99", "22P02"),
    (postgres.JSON, "{", "22P02"),
    (postgres.INT4_ARRAY, "{1,", "22P02"),
    (postgres.INT4_ARRAY, "1", "22P02"),
    (postgres.INT4_ARRAY, "{1}x", "22P02"),
    (postgres.INT4_ARRAY, "{,}", "22P02"),
    (postgres.TIMESTAMPTZ, "2024-01-02 00:00:00 Nowhere/Else", "22023"),
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
        real.execute(f"SELECT %s::text::{postgres.type_name(oid)}", [text])
    assert theirs.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (postgres.DATE, "infinity"),
        (postgres.TIMESTAMP, "-infinity"),
        (postgres.TIMESTAMPTZ, "infinity"),
        (postgres.NUMERIC, "NaN"),
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
            decode(postgres.DATE, 0, text.encode())
        assert caught.value.sqlstate == "22008"


def test_a_time_stamp_without_offset_is_of_the_session() -> None:
    found = decode(postgres.TIMESTAMPTZ, 0, b"2024-07-01 12:00", zone="Europe/Berlin")
    assert found == dt.datetime(2024, 7, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "text", "hours"),
    [
        ("Europe/Berlin", "2020-10-25 02:30", 1.5),
        ("UTC", "2020-10-25 02:30 Europe/Berlin", 1.5),
        ("Europe/Berlin", "2020-10-25 01:59", -1 / 60),
        ("Europe/Berlin", "2020-10-25 03:00", 2),
        ("America/New_York", "2020-11-01 01:30", 6.5 + 7 * 24),
        ("Europe/Berlin", "2020-03-29 02:30", 1.5 - 210 * 24),
    ],
)
def test_of_an_hour_that_clocks_show_twice_the_second_is_meant(zone: str, text: str, hours: float) -> None:
    """And of one that they never show, what it would be without the change: so does PostgreSQL."""
    found = decode(postgres.TIMESTAMPTZ, 0, text.encode(), zone=zone)
    assert found == dt.datetime(2020, 10, 25, tzinfo=UTC) + dt.timedelta(hours=hours)


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (postgres.DATE, "2020-02-29Z1999"),
        (postgres.DATE, "2020-02-29-05:30"),
        (postgres.DATE, "2020-01-01T"),
        (postgres.TIMESTAMP, "2020-02-29 Nowhere/Else"),
        (postgres.TIMESTAMPTZ, "2020-02-29 +021002"),
        (postgres.TIMESTAMPTZ, "2020-07-01 12:00 CET"),
        (postgres.FLOAT8, "-+inf"),
        (postgres.FLOAT8, "1e-400"),
        (postgres.FLOAT8, "\u0663"),
        (postgres.NUMERIC, "\u00a01"),
        (postgres.INT4, "1\u00a0"),
        (postgres.BOOL, "\u00a0t"),
        (postgres.TIME, "10:2\uff12"),
    ],
)
def test_what_is_almost_a_value_is_refused(oid: int, text: str) -> None:
    with pytest.raises(SqlError):
        decode(oid, 0, text.encode())


def test_bytes_that_are_no_text() -> None:
    for data in (b"\xff", b"a\0b"):
        with pytest.raises(SqlError) as caught:
            decode(postgres.TEXT, 0, data)
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
        Parts,
        uuid.UUID,
        list,
    )
    for oid, text, _ in GOOD:
        assert isinstance(decode(oid, 0, text.encode()), taken)
