"""Types of Arrow, PostgreSQL and Spark match."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.gateway import types

if TYPE_CHECKING:
    import psycopg

MATCHES = [
    (pa.bool_(), "boolean", types.BOOL),
    (pa.int8(), "smallint", types.INT2),
    (pa.uint16(), "integer", types.INT4),
    (pa.uint32(), "bigint", types.INT8),
    (pa.uint64(), "numeric", types.NUMERIC),
    (pa.float32(), "real", types.FLOAT4),
    (pa.float64(), "double precision", types.FLOAT8),
    (pa.decimal128(12, 2), "numeric(12,2)", types.NUMERIC),
    (pa.decimal256(50, 2), "numeric(50,2)", types.NUMERIC),
    (pa.string(), "text", types.TEXT),
    (pa.large_string(), "text", types.TEXT),
    (pa.null(), "text", types.TEXT),
    (pa.large_binary(), "bytea", types.BYTEA),
    (pa.date32(), "date", types.DATE),
    (pa.time64("us"), "time without time zone", types.TIME),
    (pa.timestamp("us"), "timestamp without time zone", types.TIMESTAMP),
    (pa.timestamp("us", "UTC"), "timestamp with time zone", types.TIMESTAMPTZ),
    (pa.duration("us"), "interval", types.INTERVAL),
    (pa.month_day_nano_interval(), "interval", types.INTERVAL),
    (pa.uuid(), "uuid", types.UUID),
    (pa.dictionary(pa.int32(), pa.string()), "text", types.TEXT),
    (pa.struct([("a", pa.int32())]), "json", types.JSON),
    (pa.map_(pa.string(), pa.int32()), "json", types.JSON),
    (pa.list_(pa.int32()), "integer[]", types.INT4_ARRAY),
    (pa.large_list(pa.decimal128(8, 3)), "numeric(8,3)[]", types.NUMERIC_ARRAY),
    (pa.list_(pa.list_(pa.int32())), "json", types.JSON),
]


@pytest.mark.parametrize(("arrow", "ddl", "oid"), MATCHES, ids=[str(arrow) for arrow, _, _ in MATCHES])
def test_arrow_types_have_one_of_postgres(
    real: psycopg.Connection, arrow: pa.DataType, ddl: str, oid: int
) -> None:
    column = types.column("x", arrow, nullable=False)
    assert (column.oid, column.nullable) == (oid, False)
    assert types.pg_ddl(arrow) == ddl
    real.execute(f"CREATE TEMPORARY TABLE one (x {ddl})")
    row = real.execute(
        "SELECT atttypid::int, atttypmod, format_type(atttypid, NULL) FROM pg_attribute "
        "WHERE attrelid = 'one'::regclass AND attname = 'x'"
    ).fetchone()
    real.execute("DROP TABLE one")
    assert row == (oid, column.typmod, types.type_name(oid))


def test_oids_and_sizes_are_those_of_postgres(real: psycopg.Connection) -> None:
    found = real.execute("SELECT oid::int, typarray::int, typlen::int FROM pg_type").fetchall()
    known = {oid: (array, size) for oid, array, size in found}
    for name, oid in vars(types).items():
        if not name.isupper() or type(oid) is not int or name.startswith("_"):
            continue
        array, size = known[oid]
        assert types.type_size(oid) == size, name
        if types.element(oid) is None:
            assert (types.array_of(oid) or 0) == array, name
        else:
            assert known[types.element(oid) or 0][0] == oid, name


@pytest.mark.parametrize(
    ("oid", "typmod", "arrow", "spark"),
    [
        (types.INT4, -1, pa.int32(), "INT"),
        (types.NUMERIC, -1, pa.decimal128(38, 18), "DECIMAL(38,18)"),
        (types.NUMERIC, types.numeric_typmod(12, 2), pa.decimal128(12, 2), "DECIMAL(12,2)"),
        (types.NUMERIC, types.numeric_typmod(100, 50), pa.decimal128(38, 38), "DECIMAL(38,38)"),
        (types.UNKNOWN, -1, pa.string(), "STRING"),
        (types.JSONB, -1, pa.string(), "STRING"),
        (types.TIMESTAMPTZ, -1, pa.timestamp("us", "UTC"), "TIMESTAMP"),
        (types.TIMESTAMP, -1, pa.timestamp("us"), "TIMESTAMP_NTZ"),
        (types.INT8_ARRAY, -1, pa.list_(pa.int64()), "ARRAY<BIGINT>"),
        (600, -1, pa.string(), "STRING"),
    ],
)
def test_types_of_parameters(oid: int, typmod: int, arrow: pa.DataType, spark: str) -> None:
    assert types.arrow_type(oid, typmod) == arrow
    assert types.spark_type(oid, typmod) == spark
