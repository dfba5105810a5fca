"""Writing a flow to files on the executors, and reading such files back.

Every file is named by the task attempt that wrote it, and the names come back in the result of the
same job: what a lost or repeated attempt left behind is never listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock.errors import CorruptFile, NullInField, PenstockError, UsageError
from penstock.spark.faults import carried, decode, encode
from penstock.spark.flow import Batches, Flow, Scan
from penstock.spark.session import is_local
from penstock.storage import FileRecord, Sink, Storage
from penstock.tables import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

Format = Literal["arrow", "parquet"]
Compression = Literal["none", "lz4", "zstd"]

_RECORD = pa.schema(
    [
        ("part", pa.int32()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
    ]
)
_ROW_GROUP = 1 << 20


def write(
    spark: SparkSession,
    flow: Flow,
    storage: Storage,
    folder: str,
    *,
    format: Format,  # noqa: A002
    compression: Compression = "lz4",
) -> tuple[FileRecord, ...]:
    """Write all rows below ``folder`` and return what was written, in row order.

    Tasks without rows write no file. A DataFrame goes to Parquet through Spark's own writer, since
    the rows are in the JVM already; everything else is written where the batches are.
    """
    try:
        if format == "parquet" and flow.in_jvm and storage.local:
            return _write_in_jvm(spark, flow, storage, folder)
        task = _Writer(storage, folder, format, compression, flow.schema)
        rows = flow.run(spark, (task,), _RECORD).collect()
    except PenstockError:
        raise
    except Exception as error:
        raise decode(error) from error
    return tuple(
        FileRecord(r["path"], r["rows"], r["bytes"], r["sha256"])
        for r in sorted(rows, key=lambda r: r["part"])
    )


def _write_in_jvm(spark: SparkSession, flow: Flow, storage: Storage, folder: str) -> tuple[FileRecord, ...]:
    frame: DataFrame = flow.frame(spark)
    _guarded(frame, flow.schema, flow.table).write.mode("errorifexists").parquet(storage.location(folder))
    paths = [path for path, _ in storage.list(folder) if path.endswith(".parquet")]
    return tuple(r for r in _sealed(spark, storage, paths) if r.rows)


def _sealed(spark: SparkSession, storage: Storage, paths: Sequence[str]) -> list[FileRecord]:
    """Records of Parquet files that Spark wrote; on a cluster, they are not read by the driver."""
    seal = _Seal(storage)
    if not is_local(spark):
        return _on_executors(spark, seal, paths)
    with ThreadPoolExecutor(min(4, len(paths) or 1)) as pool:
        return list(pool.map(seal, paths))


def _guarded(frame: DataFrame, schema: pa.Schema, table: str) -> DataFrame:
    """Columns in declared order; a null where none is allowed fails the job with a readable error."""
    from pyspark.sql import functions as F

    columns = []
    for field, have in zip(schema, (frame.schema[f.name] for f in schema), strict=True):
        column = F.col(field.name)
        forbidden = _forbidden_null(column, have.dataType, have.nullable, field)
        if forbidden is not None:
            error = NullInField(
                f"{table}.{field.name} is null in some row, but it is declared without `| None`",
                hint=f"fill the value in the transform that writes it, or declare {field.name} as nullable",
            )
            stop = F.raise_error(f"{error}\n{encode(error)}").cast(have.dataType)
            column = F.when(forbidden, stop).otherwise(column).alias(field.name)
        columns.append(column)
    return frame.select(*columns)


def _forbidden_null(column: Column, have: DataType, nullable: bool, want: pa.Field) -> Column | None:
    """Whether there is a null, at any depth, that the declaration forbids; None where there cannot be."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, StructType

    found = [column.isNull()] if nullable and not want.nullable else []
    if isinstance(have, StructType):
        for part in have:
            kind = want.type.field(part.name)
            inner = _forbidden_null(column[part.name], part.dataType, part.nullable, kind)
            if inner is not None:
                found.append(column.isNotNull() & inner)
    elif isinstance(have, ArrayType):
        of, holds_null, kind = have.elementType, have.containsNull, want.type.value_field
        if _forbidden_null(F.lit(None), of, holds_null, kind) is not None:
            found.append(F.exists(column, lambda e: _forbidden_null(e, of, holds_null, kind)))  # type: ignore[arg-type,return-value]
    return F.coalesce(reduce(or_, found), F.lit(False)) if found else None


def verify(spark: SparkSession, storage: Storage, records: Sequence[FileRecord]) -> None:
    """Check every file's bytes on the executors; `CorruptFile` names the first that is not right."""
    _on_executors(spark, _Verify(storage), records)


def _on_executors(
    spark: SparkSession, action: Callable[[Any], FileRecord], items: Sequence[Any]
) -> list[FileRecord]:
    if not items:
        return []
    tasks = min(len(items), max(1, spark_parallelism(spark)))
    seed = spark.range(0, len(items), 1, tasks)
    try:
        rows = seed.mapInArrow(_ForEach(action, tuple(items)), spark_schema(_RECORD)).collect()
    except Exception as error:
        raise decode(error) from error
    return [
        FileRecord(r["path"], r["rows"], r["bytes"], r["sha256"])
        for r in sorted(rows, key=lambda r: r["part"])
    ]


def spark_parallelism(spark: SparkSession) -> int:
    """How many tasks can run at once."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context to ask
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 8)


def read(storage: Storage, table: str, schema: pa.Schema, records: Sequence[FileRecord]) -> Flow:
    """The rows of Arrow IPC files that `write` wrote, one task for each file."""

    def cut(columns: Sequence[str]) -> Sequence[IpcSplit]:
        return [IpcSplit(storage, record, tuple(columns)) for record in records]

    return Flow.scan(table, Scan(schema, cut, kept=tuple(records)))


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
                    batch = reader.get_batch(number)
                    read += batch.num_rows
                    yield batch.select(list(self.columns))
        except (OSError, pa.ArrowInvalid, ValueError) as error:
            raise CorruptFile(f"{where} cannot be read: {error}") from error
        if read != self.record.rows:
            raise CorruptFile(f"{where} has {read} rows, not {self.record.rows}")


@dataclass(frozen=True, slots=True)
class _Writer:
    """A step that writes the batches of its task to one file and yields that file's record."""

    storage: Storage
    folder: str
    format: Format
    compression: Compression
    schema: pa.Schema

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        first = next(batches, None)
        if first is None:
            return
        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        path = f"{self.folder}/part-{part:05d}-{attempt}.{self.format}"
        with self.storage.create(path) as sink:
            rows = self._write(sink, first, batches)
        yield _batch([(part, sink.record(path, rows))])

    def _write(self, sink: Sink, first: pa.RecordBatch, rest: Batches) -> int:
        rows = 0
        file = pa.PythonFile(sink, mode="w")
        if self.format == "arrow":
            codec = None if self.compression == "none" else self.compression
            options = pa.ipc.IpcWriteOptions(compression=codec)
            with pa.ipc.new_file(file, self.schema, options=options) as writer:
                for batch in _chain(first, rest):
                    writer.write_batch(batch)
                    rows += batch.num_rows
        elif self.format == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetWriter(file, self.schema, compression="snappy") as parquet:
                for batch in _chain(first, rest):
                    parquet.write_batch(batch, row_group_size=_ROW_GROUP)
                    rows += batch.num_rows
        else:
            raise UsageError(f"{self.format!r} is not an output format", hint="use parquet or arrow")
        return rows


@dataclass(frozen=True, slots=True)
class _ForEach:
    """A task that applies an action to its share of the items and yields a record for each."""

    action: Callable[[Any], FileRecord]
    items: tuple[Any, ...]

    def __call__(self, seeds: Batches) -> Batches:
        with carried("task"):
            for seed in seeds:
                numbers = seed.column(0).to_pylist()
                yield _batch([(n, self.action(self.items[n])) for n in numbers])


@dataclass(frozen=True, slots=True)
class _Seal:
    """Describe a Parquet file that Spark wrote."""

    storage: Storage

    def __call__(self, path: str) -> FileRecord:
        import pyarrow.parquet as pq

        size, sha256 = self.storage.seal(path)
        with self.storage.open(path) as file:
            return FileRecord(path, pq.ParquetFile(file).metadata.num_rows, size, sha256)


@dataclass(frozen=True, slots=True)
class _Verify:
    storage: Storage

    def __call__(self, record: FileRecord) -> FileRecord:
        self.storage.check(record)
        return record


def _batch(records: Sequence[tuple[int, FileRecord]]) -> pa.RecordBatch:
    rows = [{"part": part, **record.to_json()} for part, record in records]
    return pa.RecordBatch.from_pylist(rows, schema=_RECORD)


def _chain(first: pa.RecordBatch, rest: Batches) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
