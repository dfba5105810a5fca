"""The tables of the generated statements, with values at the edges, in PostgreSQL and in files."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

# A few rows are computed sooner than code for them is compiled.
_SPARK = """
[spark]
master = "local[2]"
fast_start = true
memory = "3g"
[spark.conf]
"spark.sql.codegen.wholeStage" = "false"
"spark.sql.codegen.factoryMode" = "NO_CODEGEN"
"spark.sql.shuffle.partitions" = "1"
# Each sort takes a page; by default they are so large that they fill the heap.
"spark.buffer.pageSize" = "1m"
"""
_NAN, _INF = float("nan"), float("inf")


def _ts(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def _tz(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


Columns = dict[str, tuple[pa.DataType, str, list[Any]]]

T: Columns = {
    "id": (pa.int32(), "int4", [1, 2, 3, 4, 5, 6, 7, 8]),
    "s2": (pa.int16(), "int2", [3, -7, 0, None, 12, 1, 32767, -32768]),
    "i": (pa.int32(), "int4", [10, -7, 3, None, 10, 0, 2147483647, -2147483648]),
    "b": (pa.int64(), "int8", [10**10, -5, 7, None, 3, 0, 2**63 - 1, -(2**63)]),
    "n": (
        pa.decimal128(12, 3),
        "numeric(12,3)",
        [None if x is None else Decimal(x).quantize(Decimal("0.001"))
         for x in ("1.5", "-2.25", "0", None, "2.5", "99.995", "999999999.999", "-999999999.999")],
    ),
    "r": (pa.float32(), "float4", [0.5, -1.25, 1e10, None, 0.1, -0.0, _INF, _NAN]),
    "f": (pa.float64(), "float8", [0.5, -1.25, 1e10, None, 2.5, -0.0, _NAN, -_INF]),
    "s": (
        pa.string(), "text",
        ["apple", "Banana", "äpfel 12", None, "a,b;c", "", "it's 100% \\ok_\n\t👍", "   ÉCOLE  x"],
    ),
    "g": (pa.string(), "text", ["x", "y", "x", None, "y", "x", "z", None]),
    "d": (
        pa.date32(), "date",
        [None if x is None else dt.date.fromisoformat(x)
         for x in ("2020-01-31", "2020-02-29", "2019-12-31", None, "2021-01-03", "1970-01-01", "0001-01-01",
                   "9999-12-31")],
    ),
    "ts": (
        pa.timestamp("us"), "timestamp",
        [_ts("2020-01-31 10:20:30.5"), _ts("2020-02-29 23:59:59.999999"), _ts("2019-12-31"), None,
         _ts("2021-03-28 02:30:00"), _ts("1969-12-31 12:00:00.000001"), _ts("0001-01-01 00:00:00"),
         _ts("9999-12-31 23:59:59")],
    ),
    "tz": (
        pa.timestamp("us", "UTC"), "timestamptz",
        [_tz("2020-01-31 10:20:30.5"), _tz("2020-02-29 23:59:59"), _tz("2019-12-31"), None,
         _tz("2021-03-28 01:30:00"), _tz("1969-12-31 23:00:00"), _tz("1900-01-01"),
         _tz("2199-12-31 23:59:59")],
    ),
    "ok": (pa.bool_(), "bool", [True, False, None, None, True, False, True, False]),
    "a": (
        pa.list_(pa.int32()), "int4[]",
        [[1, 2, 3], [], [5, None], None, [3], [7, 7], [2147483647], [None]],
    ),
    "w": (
        pa.list_(pa.string()), "text[]",
        [["1", "2"], [], ["3", None], None, ["40"], ["7", "7"], ['q"\\', "NULL", ""], ["a b", "{}"]],
    ),
    "y": (pa.binary(), "bytea", [b"\x00\xff", b"", b"abc", None, b"\\x", b"\xc3\xa9", b"\x80" * 5, b"'"]),
    "j": (
        pa.string(), "text",
        ['{"a": 1, "b": "x", "c": [1.50, null]}', '{"c": {"b":2}, "a": "12"}', "[]", None,
         '{"a": null, "n": 1e2}', '{"b":true, "a" : [1, 2] }', '{"a":"\\u00e9\\n","n":-0.0}', '"x"'],
    ),
}  # fmt: skip

U: Columns = {
    "id": (pa.int32(), "int4", [1, 2, 3, 4, 5, 6]),
    "t_id": (pa.int32(), "int4", [1, 1, 2, None, 99, 3]),
    "name": (pa.string(), "text", ["one", "two", "apple", "four", "", None]),
    "v": (
        pa.decimal128(12, 3), "numeric(12,3)",
        [None if x is None else Decimal(x).quantize(Decimal("0.001"))
         for x in ("1.125", "2.5", None, "4", "-5.005", "0")],
    ),
}  # fmt: skip

TABLES: dict[str, Columns] = {"t": T, "u": U}


def create(postgres: psycopg.Connection[Any]) -> None:
    for name, columns in TABLES.items():
        listed = ", ".join(f"{column} {kind}" for column, (_, kind, _) in columns.items())
        postgres.execute(f"CREATE TABLE {name} ({listed})")
        places = ", ".join(f"%s::{kind}" for _, kind, _ in columns.values())
        for row in zip(*(values for _, _, values in columns.values()), strict=True):
            postgres.execute(f"INSERT INTO {name} VALUES ({places})", row)


def write(folder: Path) -> None:
    """The files, and a ``penstock.toml`` that names them."""
    (folder / "data").mkdir()
    settings = _SPARK
    for name, columns in TABLES.items():
        table = pa.table({column: pa.array(values, kind) for column, (kind, _, values) in columns.items()})
        pq.write_table(table, folder / "data" / f"{name}.parquet")
        settings += f'\n[[tables]]\nname = "{name}"\npath = "data/{name}.parquet"\n'
    (folder / "penstock.toml").write_text(settings)
