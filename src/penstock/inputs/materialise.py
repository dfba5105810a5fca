"""Arrow tables and DataFrames become files of our own, so that their rows can be numbered."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.inputs.model import folder
from penstock.storage import FileRecord, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

_BATCH_ROWS = 65_536
_FILE_ROWS = 64 * _BATCH_ROWS
_ANSWER = "task int, path string, rows long, bytes long, sha256 string"


def write_table(storage: Storage, name: str, table: pa.Table) -> list[FileRecord]:
    """The table as Arrow IPC files, in row order."""
    place = _new_place(name)
    written = []
    for number, begin in enumerate(range(0, table.num_rows, _FILE_ROWS)):
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
    answers = frame.mapInArrow(_writer(storage, place), _ANSWER).collect()
    chosen = sorted(answers, key=lambda a: a.task)
    kept = {answer.path for answer in chosen}
    for path, _ in storage.list(place):
        if path not in kept:
            storage.delete(path)
    return [FileRecord(a.path, a.rows, a.bytes, a.sha256) for a in chosen]


def _writer(storage: Storage, place: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        task = context.partitionId()
        path = f"{place}/{task:05d}-{context.taskAttemptId()}.arrow"

        def everything() -> Iterator[pa.RecordBatch]:
            yield first
            yield from batches

        record = _write(storage, path, first.schema, everything())
        yield pa.RecordBatch.from_pydict(
            {
                "task": pa.array([task], pa.int32()),
                "path": pa.array([record.path], pa.string()),
                "rows": pa.array([record.rows], pa.int64()),
                "bytes": pa.array([record.bytes], pa.int64()),
                "sha256": pa.array([record.sha256], pa.string()),
            }
        )

    return work


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
