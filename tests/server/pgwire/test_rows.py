"""Rows are byte for byte those of PostgreSQL."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SqlError
from penstock.server.pgwire.encode.rows import RowEncoder
from penstock.server.session_settings import Settings
from penstock.types import postgres
from penstock.types.postgres import Column
from tests.server.pgwire.wire import agree, data_rows, encoded, postgres_says

if TYPE_CHECKING:
    import psycopg

SEED = random.Random(6)
DAY = 86_400_000_000
FLOATS = [
    0.0, -0.0, 1.0, -1.5, 0.1, 1e-4, 9.9999e-5, 1e-5, -1.25e-7, 123456.789, 999999.0, 1e6, 1234567.0, 1e14,
    1e15, 1e12, 1.5e11, 12345678901.25,
    999999999999999.0, 123456789012345.6, 1234567890123456.0, 1e16, 1e20, 1e21, 1e22, 1e23, 9.5e22, 2.0**70,
    5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 1 / 3, 2 / 3e10,
    9007199254740993.0, 4503599627370496.5, 2.0**53, 2.0**63, 8.41e21, 2.0**-44, 1e-310,
]  # fmt: skip


def random_doubles(count: int) -> list[float]:
    numbers = (struct.unpack("<d", SEED.randbytes(8))[0] for _ in range(count))
    return [number for number in numbers if not math.isnan(number)]


def random_singles(count: int) -> list[float]:
    # There are many NaNs, and a text tells them not apart.
    numbers = (struct.unpack("<f", SEED.randbytes(4))[0] for _ in range(count))
    return [number for number in numbers if not math.isnan(number)]


def powers() -> list[float]:
    return [2.0**power for power in range(-1074, 1024, 7)] + [2.0**power for power in range(50, 90)]


def prices() -> list[float]:
    """Decimals of few digits, and floats beside them that need all of theirs."""
    short = [SEED.randrange(10 ** SEED.randrange(1, 16)) / 10 ** SEED.randrange(8) for _ in range(1000)]
    return [*short, *(-value for value in short[:100]), *np.nextafter(short[:200], np.inf).tolist()]


def moments() -> list[int]:
    fixed = [0, 1, -1, 10, 120_000, 999_999, DAY - 1, -DAY, 1_700_000_000_123_456, -62_135_596_800_000_000]
    far = [
        -62_135_596_800_000_001,
        253_402_300_800_000_000,
        -210_000_000_000_000_000,
        9_000_000_000_000_000_000,
    ]
    return fixed + far + [SEED.randrange(-(10**17), 10**17) for _ in range(200)]


def cases() -> Iterator[tuple[str, pa.Array]]:
    yield "bool", pa.array([True, None, False])
    yield "int8", pa.array([0, -128, 127, None], pa.int8())
    yield "uint8", pa.array([0, 255, None], pa.uint8())
    yield "int2", pa.array([0, -32768, 32767, None], pa.int16())
    yield "uint2", pa.array([0, 65535], pa.uint16())
    yield "int4", pa.array([0, -(2**31), 2**31 - 1, None], pa.int32())
    yield "uint4", pa.array([0, 2**32 - 1], pa.uint32())
    yield "int8", pa.array([0, -(2**63), 2**63 - 1, None])
    yield "uint8", pa.array([0, 2**64 - 1, 10**19, None], pa.uint64())
    yield "float8", pa.array([*FLOATS, None, *random_doubles(500), *powers()])
    singles = [value for value in FLOATS if abs(value) < 3e38 or not math.isfinite(value)]
    yield "float4", pa.array([*singles, None, *random_singles(500)], pa.float32())
    yield "float4 powers", pa.array([2.0**power for power in range(-149, 128)], pa.float32())
    yield "prices", pa.array([*prices(), None, *FLOATS, *random_doubles(50)])
    yield "float4 prices", pa.array([*prices(), None, *singles, *random_singles(50)], pa.float32())
    yield "float2", pa.array(np.array([0.5, -2, 65504, np.nan], np.float16))
    yield "text", pa.array(["", "é", None, "a\tb\n", "x" * 70_000, "NULL", "\U0001f600"])
    yield "large text", pa.array(["a", None, "bc"], pa.large_string())
    yield "text view", pa.array(["a", None, "a longer one than fits"], pa.string_view())
    yield "dictionary", pa.array(["a", None, "b", "a"]).dictionary_encode()
    yield "null", pa.nulls(3)
    yield "bytea", pa.array([b"", b"\0\xff\\'a", None])
    yield "fixed bytea", pa.array([b"abcd", None], pa.binary(4))
    yield "large bytea", pa.array([b"abcd", None], pa.large_binary())
    days = [0, -1, 10_957, 2_932_896, 2_932_897, -719_162, -719_163, -1_000_000, 20_000_000, None]
    yield "date", pa.array(days + [SEED.randrange(-800_000, 3_000_000) for _ in range(100)], pa.date32())
    yield "date64", pa.array([dt.date(2024, 2, 29), None], pa.date64())
    yield "time", pa.array([0, 1, 3_600_000_000, DAY - 1, 43_200_500_000, None], pa.time64("us"))
    yield "time s", pa.array([0, 86_399, None], pa.time32("s"))
    yield "time ns", pa.array([1_500_000_000, None], pa.time64("ns"))
    yield "timestamp", pa.array([*moments(), None], pa.timestamp("us"))
    yield "whole timestamp", pa.array([0, 10**9, None], pa.timestamp("s"))
    yield "ns timestamp", pa.array([1_500_000_000, -1000, None], pa.timestamp("ns"))
    yield "zoned", pa.array([*moments(), None], pa.timestamp("us", "UTC"))
    yield "duration", pa.array([0, 1, -1, DAY, -DAY - 1, 90_061_500_000, None], pa.duration("us"))
    yield "interval", pa.array(spans(), pa.month_day_nano_interval())
    yield "numeric(12,2)", pa.array(decimals(12, 2), pa.decimal128(12, 2))
    yield "numeric(18,18)", pa.array(decimals(18, 18), pa.decimal128(18, 18))
    yield "numeric(18,0)", pa.array(decimals(18, 0), pa.decimal128(18, 0))
    yield "numeric(38,10)", pa.array(decimals(38, 10), pa.decimal128(38, 10))
    yield "numeric(38,10) small", pa.array([Decimal("1E-10"), Decimal(0), None], pa.decimal128(38, 10))
    yield "numeric(38,37)", pa.array([*decimals(38, 37), Decimal("1E-37")], pa.decimal128(38, 37))
    yield "numeric(38,37) small", pa.array([Decimal("1E-37"), Decimal("-3E-20"), None], pa.decimal128(38, 37))
    yield "numeric(76,5)", pa.array(decimals(76, 5), pa.decimal256(76, 5))
    yield "numeric(9,3)", pa.array(decimals(9, 3), pa.decimal32(9, 3))
    yield "numeric(5,-2)", pa.array([Decimal(12300), Decimal(0), Decimal(-100), None], pa.decimal128(5, -2))
    yield "uuid", pa.array([uuid.UUID(int=1).bytes, uuid.uuid4().bytes, None], pa.uuid())
    yield from lists()


def spans() -> list[tuple[int, int, int] | None]:
    parts = [-14, -12, -1, 0, 1, 2, 12, 25]
    times = [
        0,
        1_000,
        -1_000,
        3_600_000_000_000,
        -3_661_500_000_000,
        400 * 3_600_000_000_000,
        2**62,
        -(2**63),
    ]
    return [(month, day, time) for month in parts for day in (-2, -1, 0, 1, 40) for time in times] + [None]


def decimals(precision: int, scale: int) -> list[Decimal | None]:
    largest = 10**precision - 1
    numbers = [0, 1, -1, 9999, 10_000, 10**scale, -(10**scale), largest, -largest, 10 ** (precision - 1)]
    numbers += [SEED.randrange(-largest, largest) for _ in range(50)]
    numbers += [SEED.randrange(-(10 ** SEED.randrange(1, precision)), 10**precision) for _ in range(50)]
    return [None] + [
        Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in numbers if abs(n) <= largest
    ]


def lists() -> Iterator[tuple[str, pa.Array]]:
    yield "int4[]", pa.array([[1, None, -3], [], None, [7]], pa.list_(pa.int32()))
    words = [
        "a",
        "",
        "NULL",
        "null",
        "nul",
        "two words",
        'q"',
        "b\\",
        "{",
        "}",
        "a,b",
        "\t",
        "\n",
        "\x0b",
        None,
        "é",
    ]
    yield "text[]", pa.array([words, [], None, ["x"]])
    yield "large text[]", pa.array([words, [], None], pa.large_list(pa.large_string()))
    yield "bool[]", pa.array([[True, None], [False]])
    yield "float8[]", pa.array([[1.5, math.nan, -math.inf, 1e-7, None]])
    yield (
        "numeric[]",
        pa.array([[Decimal("1.50"), None, Decimal("-0.01")], []], pa.list_(pa.decimal128(8, 2))),
    )
    yield "timestamp[]", pa.array([[0, None, 1_500_000], None], pa.list_(pa.timestamp("us")))
    yield "date[]", pa.array([[0, None], [20_000_000]], pa.list_(pa.date32()))
    yield "bytea[]", pa.array([[b"\0", None, b""], []])
    yield "interval[]", pa.array([[(1, 2, 3000), None]], pa.list_(pa.month_day_nano_interval()))
    yield "fixed[]", pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2))


CASES = list(cases())


@pytest.mark.parametrize("array", [array for _, array in CASES], ids=[name for name, _ in CASES])
def test_a_type_is_sent_as_postgres_sends_it(real: psycopg.Connection, array: pa.Array) -> None:
    agree(real, array)
    # A slice has buffers that begin elsewhere.
    if len(array) > 2:
        agree(real, array.slice(1, len(array) - 2))
    if not pa.types.is_null(array.type) and array.type != pa.string_view():
        agree(real, array.drop_null())


@pytest.mark.parametrize("array", [array for _, array in CASES], ids=[name for name, _ in CASES])
@pytest.mark.parametrize("code", [0, 1])
def test_a_row_alone_is_as_among_others(array: pa.Array, code: int) -> None:
    few = array.slice(0, 20)
    alone = [encoded(few.slice(at, 1), code)[0] for at in range(len(few))]
    assert alone == encoded(few, code)
    assert encoded(pa.nulls(1, array.type), code) == [None]


@pytest.mark.parametrize(
    "kind", sorted({str(array.type): array.type for _, array in CASES}.items()), ids=lambda it: it[0]
)
def test_arrays_without_an_element(real: psycopg.Connection, kind: tuple[str, pa.DataType]) -> None:
    array = pa.nulls(2, pa.list_(kind[1]))
    described = postgres.column("x", array.type)
    if postgres.element(described.oid) is not None:
        agree(real, pa.concat_arrays([array, pa.ListArray.from_arrays([0, 0], pa.nulls(0, kind[1]))]))


ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York", "Africa/Monrovia", "Australia/Lord_Howe",
         "Asia/Kathmandu", "Pacific/Apia", "Europe/Dublin", "America/Sao_Paulo"]  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
def test_timestamps_are_told_in_the_zone_of_the_session(real: psycopg.Connection, zone: str) -> None:
    years = [SEED.randrange(-4_500_000_000_000_000, 6_000_000_000_000_000) for _ in range(300)]
    array = pa.array([*moments(), *years, None], pa.timestamp("us", "UTC"))
    real.execute(f"SET TimeZone TO '{zone}'")
    agree(real, array, Settings({"TimeZone": zone}))
    real.execute("RESET TimeZone")


@pytest.mark.parametrize("zone", ["+05:30", "-3", "+02", "<+03>-03"])
def test_a_zone_may_be_an_offset(real: psycopg.Connection, zone: str) -> None:
    array = pa.array([0, 1_500_000, None], pa.timestamp("us", "UTC"))
    shown = zone if zone.startswith("<") else f"INTERVAL '{zone.replace('+', '')}' HOUR TO MINUTE"
    real.execute(f"SET TIME ZONE {shown}" if shown != zone else f"SET TIME ZONE '{zone}'")
    row = real.execute("SHOW TimeZone").fetchone()
    assert row is not None
    agree(real, array, Settings({"TimeZone": row[0]}))
    real.execute("RESET TimeZone")


@pytest.mark.parametrize("digits", [-15, -3, 0, 3])
def test_floats_follow_extra_float_digits(real: psycopg.Connection, digits: int) -> None:
    array = pa.array([*FLOATS, None])
    exact = encoded(array, 0)
    real.execute(f"SET extra_float_digits TO {digits}")
    shown = postgres_says(real, exact, postgres.FLOAT8, 0)
    real.execute("RESET extra_float_digits")
    assert encoded(array, 0, Settings({"extra_float_digits": str(digits)})) == shown


def test_bytes_can_be_escaped(real: psycopg.Connection) -> None:
    array = pa.array([bytes(range(256)), b"", None, b"plain"])
    hexadecimal = encoded(array, 0)
    real.execute("SET bytea_output TO escape")
    shown = postgres_says(real, hexadecimal, postgres.BYTEA, 0)
    real.execute("RESET bytea_output")
    assert encoded(array, 0, Settings({"bytea_output": "escape"})) == shown


@pytest.mark.parametrize("oid", [postgres.JSON, postgres.JSONB, postgres.VARCHAR, postgres.NAME])
def test_text_of_another_name(real: psycopg.Connection, oid: int) -> None:
    agree(real, pa.array(['{"a": 1}', None, "[]"]), oid=oid)


def test_uuids_may_come_as_text(real: psycopg.Connection) -> None:
    agree(real, pa.array([str(uuid.uuid4()), None, str(uuid.UUID(int=0))]), oid=postgres.UUID)


def test_oids_may_come_as_integers(real: psycopg.Connection) -> None:
    agree(real, pa.array([0, 2**32 - 1, None]), oid=postgres.OID)


def test_nested_values_are_json() -> None:
    struct_ = pa.array([{"a": 1, "b": [True, None]}, None])
    assert encoded(struct_, 0) == [b'{"a":1,"b":[true,null]}', None] == encoded(struct_, 1)
    assert encoded(pa.array([[[1], []], None]), 0) == [b"[[1],[]]", None]
    mapping = pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64()))
    assert encoded(mapping, 0) == [b'{"k":1}', None]
    assert encoded(pa.array([{"x": Decimal("1.5"), "d": dt.date(2020, 1, 2)}]), 0) == [
        b'{"x":1.5,"d":"2020-01-02"}'
    ]


def test_columns_have_formats_of_their_own() -> None:
    batch = pa.record_batch({"a": [1, None], "b": ["x", "yy"], "c": [True, False], "d": [2, 3]})
    columns = [postgres.column(field.name, field.type) for field in batch.schema]
    rows = data_rows(RowEncoder(columns, [1, 0, 0, 1], Settings()).encode(batch))
    assert rows == [
        [struct.pack(">q", 1), b"x", b"t", struct.pack(">q", 2)],
        [None, b"yy", b"f", struct.pack(">q", 3)],
    ]


def test_large_batches_come_in_buffers_of_moderate_size() -> None:
    count = 100_000
    batch = pa.record_batch({"a": np.arange(count), "t": pa.array(["x" * 100] * count)})
    columns = [postgres.column(field.name, field.type) for field in batch.schema]
    for code in (0, 1):
        buffers = RowEncoder(columns, [code], Settings()).encode(batch)
        assert max(map(len, buffers)) < 8 << 20
        rows = data_rows(buffers)
        assert len(rows) == count
        numbers = [int(row[0] or 0) if code == 0 else struct.unpack(">q", row[0] or b"")[0] for row in rows]
        assert numbers == list(range(count))


def test_no_rows_and_no_columns() -> None:
    empty = pa.record_batch({"a": pa.array([], pa.int64())})
    assert RowEncoder([postgres.column("a", pa.int64())], [], Settings()).encode(empty) == []
    nothing = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert data_rows(RowEncoder([], [], Settings()).encode(nothing)) == [[], []]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.none() | st.floats(), min_size=1), st.lists(st.none() | st.text(st.characters(codec="utf-8")))
)
def test_any_value_survives(numbers: list[float | None], words: list[str | None]) -> None:
    shown = encoded(pa.array(numbers, pa.float64()), 0)
    assert [None if text is None else repr(float(text)) for text in shown] == [
        None if number is None else repr(number) for number in numbers
    ]
    assert encoded(pa.array(words, pa.string()), 0) == [
        None if word is None else word.encode() for word in words
    ]


def test_a_column_that_was_described_otherwise_is_cast() -> None:
    array = pa.array([1, None], pa.int16())
    batch = pa.record_batch([array], names=["x"])
    rows = data_rows(RowEncoder([Column("x", pa.int16(), postgres.INT8)], [1], Settings()).encode(batch))
    assert rows == [[struct.pack(">q", 1)], [None]]


@pytest.mark.parametrize("micros", [-1, DAY + 1, 2**63 - 1])
@pytest.mark.parametrize("code", [0, 1])
def test_a_time_that_is_not_within_a_day_is_refused(micros: int, code: int) -> None:
    array = pa.array([0, micros]).view(pa.time64("us"))
    with pytest.raises(SqlError, match="time out of range"):
        encoded(array, code)


def test_the_first_and_the_last_of_all_numbers() -> None:
    least, most = -(2**63), 2**63 - 1
    assert encoded(pa.array([least], pa.duration("us")), 0) == [b"-106751991 days -04:00:54.775808"]
    array, tokyo = pa.array([least, most], pa.timestamp("us", "UTC")), Settings({"TimeZone": "Asia/Tokyo"})
    ends = [b"290309-12-22 05:18:04.224192+09:18:59 BC", b"294247-01-10 13:00:54.775807+09"]
    assert encoded(array, 0, tokyo) == ends
