"""COPY sends what PostgreSQL sends, message by message."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.server.pgwire.session.copying import CopyEncoder
from penstock.server.session_settings import Settings
from penstock.sql.statements.classify import CopyOptions
from penstock.types import postgres
from tests.server.pgwire.wire import messages

if TYPE_CHECKING:
    import psycopg

NASTY = [
    "plain",
    "",
    None,
    "a,b",
    'say "x"',
    "l\nf",
    "c\rr",
    "t\tb",
    "\\",
    "\\N",
    "\\.",
    "NULL",
    "v\vf\fb\b",
    "é|",
    "x;y",
]
BATCH = pa.record_batch(
    {
        "Id": pa.array(range(len(NASTY))),
        "t": pa.array(NASTY),
        "d": pa.array([dt.date(2024, 2, 29), None] * 7 + [None], pa.date32()),
        "n": pa.array([Decimal("-1.50"), None] * 7 + [Decimal(0)], pa.decimal128(8, 2)),
        "b": pa.array([b"\\\x00", None] * 7 + [b""]),
        "f": pa.array([True, False, None] * 5),
    }
)
CSV: dict[str, Any] = {"format": "csv", "delimiter": ",", "null": ""}
CASES = [
    ("FORMAT text", CopyOptions()),
    ("FORMAT text, HEADER", CopyOptions(header=True)),
    ("FORMAT text, DELIMITER '|', NULL 'nothing'", CopyOptions(delimiter="|", null="nothing")),
    ("FORMAT text, DELIMITER '-'", CopyOptions(delimiter="-")),
    ("FORMAT csv", CopyOptions(**CSV)),
    ("FORMAT csv, HEADER", CopyOptions(**CSV, header=True)),
    ("FORMAT csv, NULL 'NULL'", CopyOptions(**{**CSV, "null": "NULL"})),
    (
        "FORMAT csv, DELIMITER ';', QUOTE '''', ESCAPE '\\'",
        CopyOptions(**{**CSV, "delimiter": ";"}, quote="'", escape="\\"),
    ),
    ("FORMAT csv, DELIMITER '-'", CopyOptions(**{**CSV, "delimiter": "-"})),
    ("FORMAT csv, FORCE_QUOTE *", CopyOptions(**CSV, force_quote=("*",))),
    ('FORMAT csv, FORCE_QUOTE (t, "Id")', CopyOptions(**CSV, force_quote=("t", "Id"))),
    ("FORMAT binary", CopyOptions(format="binary")),
]


@pytest.fixture(scope="module")
def table(real: psycopg.Connection) -> str:
    fields = ", ".join(f'"{field.name}" {postgres.pg_ddl(field.type)}' for field in BATCH.schema)
    real.execute(f"CREATE TABLE copied ({fields})")
    with real.cursor() as cursor:
        marks = ", ".join(["%s"] * len(BATCH.schema))
        cursor.executemany(
            f"INSERT INTO copied VALUES ({marks})", [tuple(row.values()) for row in BATCH.to_pylist()]
        )
    return "copied"


def theirs(real: psycopg.Connection, sql: str) -> list[bytes]:
    with real.cursor() as cursor, cursor.copy(sql) as copy:
        return [bytes(each) for each in copy]


def ours(batches: list[pa.RecordBatch], options: CopyOptions) -> list[bytes]:
    columns = [postgres.column(field.name, field.type) for field in batches[0].schema]
    encoder = CopyEncoder(columns, options, Settings())
    buffers: list[bytes | memoryview] = [encoder.begin()]
    for batch in batches:
        buffers += encoder.encode(batch)
    found = messages([*buffers, encoder.end()])
    assert {kind for kind, _ in found} <= {"d"}
    return [body for _, body in found]


@pytest.mark.parametrize(("written", "options"), CASES, ids=[written for written, _ in CASES])
def test_copy_is_as_postgres_does_it(
    real: psycopg.Connection, table: str, written: str, options: CopyOptions
) -> None:
    expected = theirs(real, f'COPY (SELECT * FROM {table} ORDER BY "Id") TO STDOUT ({written})')
    assert ours([BATCH], options) == expected
    assert ours([BATCH.slice(0, 4), BATCH.slice(4, 0), BATCH.slice(4)], options) == expected


@pytest.mark.parametrize(("written", "options"), CASES, ids=[written for written, _ in CASES])
def test_nothing_to_copy(real: psycopg.Connection, table: str, written: str, options: CopyOptions) -> None:
    expected = theirs(real, f"COPY (SELECT * FROM {table} WHERE false) TO STDOUT ({written})")
    assert ours([BATCH.slice(0, 0)], options) == expected


@pytest.mark.parametrize("options", [CopyOptions(), CopyOptions(**CSV)], ids=["text", "csv"])
def test_one_column(real: psycopg.Connection, table: str, options: CopyOptions) -> None:
    expected = theirs(real, f'COPY (SELECT t FROM {table} ORDER BY "Id") TO STDOUT (FORMAT {options.format})')
    assert ours([BATCH.select(["t"])], options) == expected
