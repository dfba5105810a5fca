"""Which columns of PostgreSQL take which values, and which give them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.types import postgres

INTEGERS, FLOATS = {"int2", "int4", "int8"}, {"float4", "float8"}
JSONS = {"json", "jsonb"}
TEXTS = {"text", "varchar", "bpchar", "name", "citext"}
NAMES = {
    *INTEGERS,
    *FLOATS,
    *JSONS,
    *TEXTS,
    *("numeric", "bool", "bytea", "date", "time", "timetz", "timestamp", "timestamptz", "interval", "uuid"),
    *("xml", "oid", "money", "inet", "mood", "_int4", "int4range", "point"),
}
CATEGORIES = {**dict.fromkeys(TEXTS, "S"), "mood": "E", "inet": "I"}

# Arrow's type, columns that take its values, columns whose values it can be.
MATCHES = [
    (pa.int64(), INTEGERS | {"numeric"}, INTEGERS),
    (pa.int16(), INTEGERS | {"numeric"}, INTEGERS),
    (pa.float64(), FLOATS, FLOATS),
    (pa.decimal128(18, 4), {"numeric"}, {"numeric"}),
    (pa.bool_(), {"bool"}, {"bool"}),
    (pa.binary(), {"bytea"}, {"bytea"}),
    (pa.date32(), {"date"}, {"date"}),
    (pa.timestamp("us"), {"timestamp"}, {"timestamp"}),
    (pa.timestamp("us", "UTC"), {"timestamptz"}, {"timestamptz"}),
    (pa.string(), NAMES, TEXTS | JSONS | {"uuid", "xml", "mood", "inet"}),
    (pa.list_(pa.int64()), JSONS, set()),
    (pa.struct([("a", pa.int64())]), JSONS, set()),
]


@pytest.mark.parametrize(("arrow", "taking", "giving"), MATCHES, ids=[str(match[0]) for match in MATCHES])
def test_columns_take_and_give(arrow: pa.DataType, taking: set[str], giving: set[str]) -> None:
    assert {name for name in NAMES if postgres.takes(name, arrow)} == taking
    assert {name for name in NAMES if postgres.gives(name, CATEGORIES.get(name, "U"), arrow)} == giving


@pytest.mark.parametrize("oid", sorted(set(postgres.OIDS.values()) - {postgres.NUMERIC}))
def test_there_and_back(oid: int) -> None:
    arrow = postgres.arrow_type(oid)
    shared = {pa.string(): postgres.TEXT, pa.int64(): postgres.INT8}
    assert postgres.column("x", arrow).oid == shared.get(arrow, oid)


@pytest.mark.parametrize(
    ("name", "oid"),
    [
        ("int4", postgres.INT4),
        ("integer", postgres.INT4),
        ("timestamptz", postgres.TIMESTAMPTZ),
        ("timestamp without time zone", postgres.TIMESTAMP),
        ("char", postgres.BPCHAR),
        ("uuid", postgres.UUID),
        ("record", None),
        ("xml", None),
    ],
)
def test_names(name: str, oid: int | None) -> None:
    assert postgres.OIDS.get(name) == oid
