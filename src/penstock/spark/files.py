"""Writing a flow to files on the executors, and reading such files back.

Every file is named by the task attempt that wrote it, and the names come back in the result of the
same job: what a lost or repeated attempt left behind is never listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeVar

import pyarrow as pa

from penstock.core.arrow_data import sound
from penstock.errors import CorruptFile, PenstockError, UsageError
from penstock.spark import jvm_parquet, records
from penstock.spark.faults import decode
from penstock.spark.flow import Batches, Flow, Scan
from penstock.spark.session import is_local
from penstock.storage import FileRecord, FileWriter, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
Format = Literal["arrow", "parquet"]
Compression = Literal["auto", "none", "lz4", "zstd"]

_ROW_GROUP = 1 << 20
_ROW_GROUP_BYTES = 64 << 20


def write(
    spark: SparkSession,
    flow: Flow,
    storage: Storage,
    folder: str,
    *,
    format: Format,  # noqa: A002
    compression: Compression = "auto",
) -> tuple[FileRecord, ...]:
    """Write all rows below ``folder`` and return what was written, in row order.

    Tasks without rows write no file. A DataFrame goes to Parquet through Spark's own writer, since
    the rows are in the JVM already; everything else is written where the batches are.
    """
    return sum(write_each(spark, flow, storage, (folder,), format=format, compression=compression), ())


def write_each(
    spark: SparkSession,
    flow: Flow,
    storage: Storage,
    folders: Sequence[str],
    *,
    format: Format,  # noqa: A002
    compression: Compression = "auto",
) -> list[tuple[FileRecord, ...]]:
    """As `write`, with a folder for each task of the flow, or one for all; what there is below each."""
    try:
        if format == "parquet" and flow.in_jvm and storage.local:
            found = jvm_parquet.write(spark, flow, storage, folders)
        else:
            to = tuple(folders)
            task = _Writer(storage, to, format, codec(spark, storage, compression), flow.schema)
            found = records.numbered(flow.run(spark, (task,), records.SCHEMA).collect())
    except PenstockError:
        raise
    except Exception as error:
        raise decode(error) from error
    return by_folder(found, len(folders))


def folder_of(folders: Sequence[str], task: int) -> str:
    """Where a task writes to, if each has a folder, or all have one."""
    return folders[task if len(folders) > 1 else 0]


def by_folder(written: Iterable[tuple[int, T]], folders: int) -> list[tuple[T, ...]]:
    """What tasks have written, each to its folder, by the number of the folder."""
    found: list[list[T]] = [[] for _ in range(folders)]
    for task, each in written:
        found[task if folders > 1 else 0].append(each)
    return [tuple(each) for each in found]


def verify(spark: SparkSession, storage: Storage, written: Sequence[FileRecord]) -> None:
    """Check every file's bytes on the executors; `CorruptFile` names the first that is not right."""
    records.on_executors(spark, _Verify(storage), written)


def read(storage: Storage, table: str, schema: pa.Schema, written: Sequence[FileRecord]) -> Flow:
    """The rows of Arrow IPC files that `write` wrote, one task for each file."""

    def cut(columns: Sequence[str]) -> Sequence[IpcSplit]:
        return [IpcSplit(storage, record, tuple(columns)) for record in written]

    return Flow.scan(table, Scan(schema, cut, kept=tuple(written)))


@dataclass(frozen=True, slots=True)
class IpcSplit:
    """One Arrow IPC file."""

    storage: Storage
    record: FileRecord
    columns: tuple[str, ...]

    @property
    def rows(self) -> int:
        return self.record.rows

    def batches(self) -> Batches:
        where = self.storage.location(self.record.path)
        try:
            with self.storage.open(self.record.path) as file, pa.ipc.open_file(file) as reader:
                names = reader.schema.names
                options = pa.ipc.IpcReadOptions(included_fields=[names.index(c) for c in self.columns])
            with (
                self.storage.open(self.record.path) as file,
                pa.ipc.open_file(file, options=options) as reader,
            ):
                read = 0
                for number in range(reader.num_record_batches):
                    batch = sound(reader.get_batch(number))
                    read += batch.num_rows
                    yield batch.select(list(self.columns))
        except (OSError, pa.ArrowException, ValueError) as error:
            raise CorruptFile(f"{where} cannot be read: {error}") from error
        if read != self.record.rows:
            raise CorruptFile(f"{where} has {read} rows, not {self.record.rows}")


@dataclass(frozen=True, slots=True)
class _Writer:
    """A step that writes the batches of its task to one file and yields that file's record."""

    storage: Storage
    folders: tuple[str, ...]
    format: Format
    codec: str | None
    schema: pa.Schema

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        first = next(batches, None)
        if first is None:
            return
        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        path = f"{folder_of(self.folders, part)}/part-{part:05d}-{attempt}.{self.format}"
        with self.storage.create(path) as sink:
            rows = self._write(sink, first, batches)
        yield records.batch([(part, sink.record(path, rows))])

    def _write(self, sink: FileWriter, first: pa.RecordBatch, rest: Batches) -> int:
        rows = 0
        file = pa.PythonFile(sink, mode="w")
        if self.format == "arrow":
            options = pa.ipc.IpcWriteOptions(compression=self.codec)
            with pa.ipc.new_file(file, self.schema, options=options) as writer:
                for batch in chain([first], rest):
                    writer.write_batch(batch)
                    rows += batch.num_rows
        elif self.format == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetWriter(file, self.schema, compression="snappy") as parquet:
                for group in _row_groups(chain([first], rest)):
                    parquet.write_table(group, row_group_size=_ROW_GROUP)
                    rows += group.num_rows
        else:
            raise UsageError(f"{self.format!r} is not an output format", hint="use parquet or arrow")
        return rows


@dataclass(frozen=True, slots=True)
class _Verify:
    storage: Storage

    def __call__(self, record: FileRecord) -> FileRecord:
        self.storage.check(record)
        return record


def _row_groups(batches: Batches) -> Iterator[pa.Table]:
    """Tables of several batches: every one that is written becomes a row group of its own."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        full = sum(b.num_rows for b in gathered) >= _ROW_GROUP
        if full or sum(b.nbytes for b in gathered) >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered)


def codec(spark: SparkSession, storage: Storage, compression: Compression) -> str | None:
    """A disk of one's own is faster than any compression; what goes over a network is not."""
    if compression == "auto":
        return None if storage.local and is_local(spark) else "lz4"
    return None if compression == "none" else compression
