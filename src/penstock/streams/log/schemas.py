"""Schemas on their way through a Spark source, and rows that tell a watermark or the end of a stream.

On its own, Spark would follow the newest row, and drop rows of slower parts. So each batch ends with a row
that carries the watermark of its last epoch. Rows of later epochs were judged by a watermark that is at least
as high, so Spark never drops one that was on time. The end of a stream is told in the same way, and closes
all windows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import UsageError
from penstock.types.arrow import ZEROS, kind_of
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)
"""The event time of the row that stands for the end of a stream.

It is greater than that of any other row, so that Spark's watermark passes everything that is still open. Who
reads with event time drops the row after the watermark was taken: ``where(time < END_OF_TIME)``.
"""

END_MICROS = int(END_OF_TIME.timestamp()) * 1_000_000
SHIFT = 10**18
"""How far the event time of a row that tells a watermark is behind that watermark, in microseconds.

Such a row is later than `END_OF_TIME`, and tells a watermark to who asks for them (see `WATERMARK`).
"""
WATERMARK = "_penstock_watermark"
"""The column from which Spark takes its watermark."""

COUNT = "_penstock_count"
"""The column that says for how many equal rows a row stands, where they were counted while reading."""

_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def encode(schema: pa.Schema) -> str:
    """A schema as the option of a Spark source."""
    return spark_schema(schema).json()


def counted(schema: StructType | str) -> StructType:
    """The schema of rows that were counted while reading."""
    from pyspark.sql.types import LongType, StructType

    if not isinstance(schema, StructType):
        raise UsageError("option countBy needs a schema in JSON")
    return StructType(schema.fields).add(COUNT, LongType(), nullable=False)


def decode(text: str, columns: Sequence[str] | None) -> StructType | str:
    """What `encode` made, with only some columns; or the DDL that a person wrote instead."""
    if not text.lstrip().startswith("{"):
        if columns is not None:
            raise UsageError("option columns needs a schema in JSON", hint="name only the columns you want")
        return text
    from pyspark.sql.types import StructType

    found = StructType.fromJson(json.loads(text))
    if columns is None:
        return found
    missing = set(columns) - set(found.names)
    if missing:
        raise UsageError(
            f"there is no column {', '.join(sorted(missing))}", hint=f"columns: {', '.join(found.names)}"
        )
    return StructType([field for field in found if field.name in columns])


def end_row(schema: pa.Schema, event_time: str) -> pa.RecordBatch:
    """The row at `END_OF_TIME`; all other fields are null, or zero where they cannot be."""
    return _row_at(schema, event_time, END_MICROS)


def watermark_row(schema: pa.Schema, event_time: str, watermark: int) -> pa.RecordBatch:
    """The row that tells a watermark, in microseconds; that of the end is `END_MICROS`."""
    return _row_at(schema, event_time, watermark + SHIFT)


def _row_at(schema: pa.Schema, event_time: str, time: int) -> pa.RecordBatch:
    columns = [
        _time(field.type, time) if field.name == event_time else pa.array([_nothing(field)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_event_time(schema: pa.Schema, event_time: str) -> None:
    """Raise `UsageError` unless the field is there and is a time."""
    field = schema.field(event_time) if event_time in schema.names else None
    if field is None or not pa.types.is_timestamp(field.type):
        raise UsageError(
            f"option eventTime names {event_time!r}, which is not a column of times that is read",
            hint=f"columns: {', '.join(schema.names)}",
        )


def _time(kind: pa.DataType, micros: int) -> pa.Array:
    return pa.array([micros // _UNITS[kind.unit]], pa.int64()).cast(kind)


def _nothing(field: pa.Field) -> Any:
    """None, or the zero of a type."""
    if field.nullable:
        return None
    kind = field.type
    if pa.types.is_struct(kind):
        return {inner.name: _nothing(inner) for inner in kind}
    return ZEROS[kind_of(kind)]
