"""Bringing the rows of a batch into a table of PostgreSQL, from the tasks that have them.

Rows travel as CSV, which both Arrow and PostgreSQL handle by columns and without Python: nulls are empty,
texts are quoted. The server turns each value into what its column holds.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.sinks.postgres.errors import connected
from penstock.sinks.postgres.texts import check_texts
from penstock.spark.faults import decode
from penstock.spark.flow import Batches, Flow

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

ATTEMPT = "penstock_attempt"
"""The column that says which attempt of a task brought a row: only those that Spark took count."""

_ANSWER = pa.schema([("attempt", pa.int64()), ("rows", pa.int64())])


class Copied(NamedTuple):
    """The attempts that succeeded, and how many rows they brought."""

    attempts: list[int]
    rows: int


def copy(
    spark: SparkSession,
    flow: Flow,
    url: str,
    name: str,
    statement: str,
    keys: tuple[str, ...],
    connections: int,
) -> Copied:
    """Run ``COPY … (ATTEMPT, fields…) FROM STDIN (FORMAT csv)`` in at most so many tasks at once.

    A task without rows does not connect. The server shows its connection as ``name``; errors show a row by
    its ``keys``.
    """
    ready = _as_text(flow)
    few = replace(ready, origin=ready.frame(spark).coalesce(connections))
    try:
        answers = few.run(spark, (_Copy(url, name, statement, keys),), _ANSWER).collect()
    except PenstockError:
        raise
    except Exception as error:
        raise decode(error) from error
    return Copied([row["attempt"] for row in answers], sum(row["rows"] for row in answers))


@dataclass(frozen=True, slots=True)
class _Copy:
    """A step that sends the batches of its task in one transaction and yields how many rows they had."""

    url: str = field(repr=False)
    name: str
    statement: str
    keys: tuple[str, ...]

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        first = next(batches, None)
        if first is None:
            return
        context, rows = TaskContext.get(), 0
        attempt = context.taskAttemptId() if context else 0
        with (
            connected(self.url, self.name) as connection,
            connection.cursor() as cursor,
            cursor.copy(self.statement.encode()) as sink,
        ):
            for batch in chain([first], batches):
                check_texts(batch, self.keys)
                sink.write(_csv(batch, attempt))
                rows += batch.num_rows
        yield pa.RecordBatch.from_pylist([{"attempt": attempt, "rows": rows}], schema=_ANSWER)


def _csv(batch: pa.RecordBatch, attempt: int) -> bytes:
    from pyarrow import csv

    number = pa.repeat(pa.scalar(attempt, pa.int64()), batch.num_rows)
    numbered = pa.RecordBatch.from_arrays([number, *batch.columns], [ATTEMPT, *batch.schema.names])
    text = io.BytesIO()
    csv.write_csv(numbered, text, csv.WriteOptions(include_header=False))
    return text.getvalue()


def _as_text(flow: Flow) -> Flow:
    """What has no CSV of its own becomes a text: bytes as PostgreSQL spells them, what is nested as JSON."""
    fields: Sequence[pa.Field] = list(flow.schema)
    if not any(_is_spelled(f.type) for f in fields):
        return flow
    texts = [pa.field(f.name, pa.string(), f.nullable) if _is_spelled(f.type) else f for f in fields]
    frame = flow.origin.select(*(_spelled(f) for f in fields))  # type: ignore[arg-type]
    return replace(flow, origin=frame, schema=pa.schema(texts))


def _is_spelled(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind))


def _spelled(one: pa.Field) -> Column:
    from pyspark.sql import functions as F

    column = F.col(f"`{one.name}`")
    if pa.types.is_nested(one.type):
        return F.to_json(column, {"ignoreNullFields": "false"}).alias(one.name)
    if pa.types.is_binary(one.type):
        return F.concat(F.lit("\\x"), F.hex(column)).alias(one.name)
    return column
