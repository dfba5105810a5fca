"""Arrow tables and DataFrames become files of our own, so that their rows can be numbered."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.batch.inputs.model import folder
from penstock.spark import records
from penstock.spark.faults import carried, decode
from penstock.spark.flow import Batches
from penstock.storage import FileRecord, Storage
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_BATCH_ROWS = 65_536
_FILE_ROWS = 64 * _BATCH_ROWS


def write_table(storage: Storage, name: str, table: pa.Table) -> list[FileRecord]:
    """The table as Arrow IPC files, in row order."""
    place = _new_place(name)
    written = []
    # A table without rows is one file, which tells its columns.
    for number, begin in enumerate(range(0, max(table.num_rows, 1), _FILE_ROWS)):
        # Equal tables give equal files, however their columns were cut into chunks.
        part = table.slice(begin, _FILE_ROWS).combine_chunks()
        batches = iter(part.to_batches(max_chunksize=_BATCH_ROWS))
        written.append(_write(storage, f"{place}/{number:05d}.arrow", table.schema, batches))
    return written


def write_frame(storage: Storage, name: str, frame: DataFrame) -> list[FileRecord]:
    """The DataFrame as Arrow IPC files, written by the executors: no row passes the driver.

    Rows keep their order within a Spark partition, and partitions are taken in order. Each task
    attempt writes under a name of its own; what counts is what the answers of the job name.
    """
    place = _new_place(name)
    try:
        task = _Writer(storage, place)
        written = records.collected(frame.mapInArrow(task, spark_schema(records.SCHEMA)).collect())
    except Exception as error:
        raise decode(error) from error
    if not written:
        # A frame without rows is one file, which tells its columns.
        return [_write(storage, f"{place}/empty.arrow", frame.limit(0).toArrow().schema, iter(()))]
    kept = {record.path for record in written}
    for path, _ in storage.list(place):
        if path not in kept:
            storage.delete(path)
    return list(written)


@dataclass(frozen=True, slots=True)
class _Writer:
    """A task that writes its rows to one file, with the schema that they have."""

    storage: Storage
    place: str

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with carried("materialising"):
            first = next((batch for batch in batches if batch.num_rows), None)
            if first is None:
                return
            task = context.partitionId()
            path = f"{self.place}/{task:05d}-{context.taskAttemptId()}.arrow"
            record = _write(self.storage, path, first.schema, chain([first], batches))
            yield records.batch([(task, record)])


def _write(storage: Storage, path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> FileRecord:
    rows = 0
    with storage.create(path) as sink:
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        return sink.record(path, rows)


def _new_place(name: str) -> str:
    return f"{folder(name)}/data-{uuid.uuid4().hex[:12]}"
