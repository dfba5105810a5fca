"""Types of Arrow, PostgreSQL and Spark match."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.types import postgres

if TYPE_CHECKING:
    import psycopg

MATCHES = [
    (pa.bool_(), "boolean", postgres.BOOL),
    (pa.int8(), "smallint", postgres.INT2),
    (pa.uint16(), "integer", postgres.INT4),
    (pa.uint32(), "bigint", postgres.INT8),
    (pa.uint64(), "numeric", postgres.NUMERIC),
    (pa.float32(), "real", postgres.FLOAT4),
    (pa.float64(), "double precision", postgres.FLOAT8),
    (pa.decimal128(12, 2), "numeric(12,2)", postgres.NUMERIC),
    (pa.decimal256(50, 2), "numeric(50,2)", postgres.NUMERIC),
    (pa.string(), "text", postgres.TEXT),
    (pa.large_string(), "text", postgres.TEXT),
    (pa.null(), "text", postgres.TEXT),
    (pa.large_binary(), "bytea", postgres.BYTEA),
    (pa.date32(), "date", postgres.DATE),
    (pa.time64("us"), "time without time zone", postgres.TIME),
    (pa.timestamp("us"), "timestamp without time zone", postgres.TIMESTAMP),
    (pa.timestamp("us", "UTC"), "timestamp with time zone", postgres.TIMESTAMPTZ),
    (pa.duration("us"), "interval", postgres.INTERVAL),
    (pa.month_day_nano_interval(), "interval", postgres.INTERVAL),
    (pa.uuid(), "uuid", postgres.UUID),
    (pa.dictionary(pa.int32(), pa.string()), "text", postgres.TEXT),
    (pa.struct([("a", pa.int32())]), "json", postgres.JSON),
    (pa.map_(pa.string(), pa.int32()), "json", postgres.JSON),
    (pa.list_(pa.int32()), "integer[]", postgres.INT4_ARRAY),
    (pa.large_list(pa.decimal128(8, 3)), "numeric(8,3)[]", postgres.NUMERIC_ARRAY),
    (pa.list_(pa.list_(pa.int32())), "json", postgres.JSON),
]


@pytest.mark.parametrize(("arrow", "ddl", "oid"), MATCHES, ids=[str(arrow) for arrow, _, _ in MATCHES])
def test_arrow_types_have_one_of_postgres(
    real: psycopg.Connection, arrow: pa.DataType, ddl: str, oid: int
) -> None:
    column = postgres.column("x", arrow, nullable=False)
    assert (column.oid, column.nullable) == (oid, False)
    assert postgres.pg_ddl(arrow) == ddl
    real.execute(f"CREATE TEMPORARY TABLE one (x {ddl})")
    row = real.execute(
        "SELECT atttypid::int, atttypmod, format_type(atttypid, NULL) FROM pg_attribute "
        "WHERE attrelid = 'one'::regclass AND attname = 'x'"
    ).fetchone()
    real.execute("DROP TABLE one")
    assert row == (oid, column.typmod, postgres.type_name(oid))


def test_oids_and_sizes_are_those_of_postgres(real: psycopg.Connection) -> None:
    found = real.execute("SELECT oid::int, typarray::int, typlen::int FROM pg_type").fetchall()
    known = {oid: (array, size) for oid, array, size in found}
    for name, oid in vars(postgres).items():
        if not name.isupper() or type(oid) is not int or name.startswith("_"):
            continue
        array, size = known[oid]
        assert postgres.type_size(oid) == size, name
        if postgres.element(oid) is None:
            assert (postgres.array_of(oid) or 0) == array, name
        else:
            assert known[postgres.element(oid) or 0][0] == oid, name


@pytest.mark.parametrize(
    ("oid", "typmod", "arrow", "spark"),
    [
        (postgres.INT4, -1, pa.int32(), "INT"),
        (postgres.NUMERIC, -1, pa.decimal128(38, 18), "DECIMAL(38,18)"),
        (postgres.NUMERIC, postgres.numeric_typmod(12, 2), pa.decimal128(12, 2), "DECIMAL(12,2)"),
        (postgres.NUMERIC, postgres.numeric_typmod(100, 50), pa.decimal128(38, 38), "DECIMAL(38,38)"),
        (postgres.UNKNOWN, -1, pa.string(), "STRING"),
        (postgres.JSONB, -1, pa.string(), "STRING"),
        (postgres.TIMESTAMPTZ, -1, pa.timestamp("us", "UTC"), "TIMESTAMP"),
        (postgres.TIMESTAMP, -1, pa.timestamp("us"), "TIMESTAMP_NTZ"),
        (postgres.INT8_ARRAY, -1, pa.list_(pa.int64()), "ARRAY<BIGINT>"),
        (600, -1, pa.string(), "STRING"),
    ],
)
def test_types_of_parameters(oid: int, typmod: int, arrow: pa.DataType, spark: str) -> None:
    assert postgres.arrow_type(oid, typmod) == arrow
    assert postgres.spark_type(oid, typmod) == spark
