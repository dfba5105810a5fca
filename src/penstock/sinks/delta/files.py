"""Data files of a Delta table, written by the executors where the table is.

A file holds rows of one partition of the table, without the columns that say which. Its name is that of the
attempt that wrote it, and comes back in the answer of the same job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError, StreamError
from penstock.sinks.delta.stats import Statistics
from penstock.spark.faults import decode
from penstock.spark.flow import Batches, Flow
from penstock.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Values = tuple[tuple[str, str | None], ...]
"""The partition of the table that rows belong to: names and values as Delta spells them."""

_ANSWER = pa.schema(
    [("path", pa.string()), ("bytes", pa.int64()), ("values", pa.string()), ("stats", pa.string())]
)
_ROW_GROUP = 1 << 20


class DataFile(NamedTuple):
    """A file that is complete; ``stats`` is the JSON that Delta wants."""

    path: str
    bytes: int
    values: dict[str, str | None]
    stats: str


def write(
    spark: SparkSession, flow: Flow, storage: Storage, folder: str, partition_by: tuple[str, ...]
) -> list[DataFile]:
    """Write all rows below ``folder``. A task without rows writes nothing."""
    if partition_by:
        # So that a task has one file open at a time.
        flow = replace(flow, origin=flow.frame(spark).sortWithinPartitions(*partition_by))
    schema = pa.schema([field for field in loosened(flow.schema) if field.name not in partition_by])
    try:
        answers = flow.run(spark, (_Write(storage, folder, schema, partition_by),), _ANSWER).collect()
    except PenstockError:
        raise
    except Exception as error:
        raise decode(error) from error
    return [DataFile(row["path"], row["bytes"], json.loads(row["values"]), row["stats"]) for row in answers]


@dataclass(frozen=True, slots=True)
class _Write:
    """A step that writes the batches of its task and yields what it wrote."""

    storage: Storage
    folder: str
    schema: pa.Schema
    partition_by: tuple[str, ...]

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        pieces = (piece for batch in batches for piece in cut(batch, self.partition_by))
        for number, (values, group) in enumerate(groupby(pieces, key=lambda piece: piece[0])):
            path = f"{self.folder}/part-{part:05d}-{attempt}-{number:05d}.parquet"
            yield self._file(path, values, (piece for _, piece in group))

    def _file(self, path: str, values: Values, pieces: Batches) -> pa.RecordBatch:
        import pyarrow.parquet as pq

        statistics = Statistics(self.schema)
        with self.storage.create(path) as sink:
            file = pa.PythonFile(sink, mode="w")
            with pq.ParquetWriter(file, self.schema, compression="snappy") as writer:
                for table in _gathered(pieces, self.schema):
                    writer.write_table(table, row_group_size=_ROW_GROUP)
                    statistics.add(table)
        answer = {
            "path": path,
            "bytes": sink.size,
            "values": json.dumps(dict(values)),
            "stats": statistics.encode(),
        }
        return pa.RecordBatch.from_pylist([answer], schema=_ANSWER)


def cut(batch: pa.RecordBatch, names: tuple[str, ...]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The batch in pieces whose rows agree in the named columns, in the order of the rows."""
    if not names:
        yield (), batch
        return
    changes = np.zeros(batch.num_rows, dtype=bool)
    for name in names:
        codes = pc.fill_null(batch.column(name).dictionary_encode().indices, -1).to_numpy(
            zero_copy_only=False
        )
        changes[1:] |= codes[1:] != codes[:-1]
    begins = [0, *np.flatnonzero(changes).tolist(), batch.num_rows]
    for begin, end in pairwise(begins):
        values = tuple((name, spelled(name, batch.column(name)[begin].as_py())) for name in names)
        yield values, batch.slice(begin, end - begin).drop_columns(list(names))


def spelled(name: str, value: Any) -> str | None:
    """A value as Delta writes it into its log. An empty text would be read as null."""
    if value is None:
        return None
    if value == "":
        raise StreamError(
            f"{name} is an empty text in some row, which Delta cannot tell from null in a partition",
            left="nothing of the batch",
            hint=f"give such rows another {name}, or partition the table by something else",
        )
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _gathered(pieces: Batches, schema: pa.Schema) -> Iterator[pa.Table]:
    """Tables of several pieces: every one that is written becomes a row group of its own."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for piece in pieces:
        waiting.append(piece)
        rows += piece.num_rows
        if rows >= _ROW_GROUP:
            yield pa.Table.from_batches(waiting).cast(schema)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).cast(schema)


def loosened(schema: pa.Schema) -> pa.Schema:
    """The schema for files and readers: inside what is nested, everything may be null.

    Arrow takes the parts of a struct that is null for nulls of their own, and otherwise refuses to write or
    to read them. Rows that really have nulls where none are declared are found before they get here.
    """
    return pa.schema([field.with_type(_loosened(field.type)) for field in schema])


def _loosened(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _loosened(part.type)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _loosened(kind.value_type)))
    return kind
