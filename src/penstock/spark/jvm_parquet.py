"""Parquet files: Spark's own writer for rows that are in the JVM, and what a footer tells.

That takes a third less time than to bring the rows back to Python workers and write them there.

What Spark wrote is then *sealed*: made durable, hashed and counted. A null where none is allowed is
found in the footers, where it costs nothing; only nested types need an expression in the plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import CorruptFile, NullInField
from penstock.spark import records
from penstock.spark.faults import encode
from penstock.spark.flow import Flow
from penstock.spark.paths import for_spark
from penstock.spark.session import is_local
from penstock.storage import FileRecord, Storage

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_PART = re.compile(r"part-(\d+)-")
# Spark's local file system puts a checksum file beside each file. Ours is in the record.
_NO_CRC_FILES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


def write(
    spark: SparkSession, flow: Flow, storage: Storage, folders: Sequence[str]
) -> list[tuple[int, FileRecord]]:
    """Write a flow whose rows are in the JVM, with the number of the task that wrote each file.

    There is a folder for each task, or one for all. Files without rows are left out.
    """
    guarded = _guarded(flow.frame(spark), flow.schema, flow.table)
    first = folders[0]
    place = for_spark(storage.location(first))
    guarded.write.mode("error").options(**_NO_CRC_FILES).parquet(place)
    paths = [path for path, _ in storage.list(first) if path.endswith(".parquet")]
    if not paths:  # Spark writes a file even where there are no rows
        raise CorruptFile(f"Spark wrote to {place}, but nothing can be seen there from this machine")
    tasks = [_task(path) for path in paths]
    if len(folders) > 1:
        moved = [f"{folders[n]}/{path.rpartition('/')[2]}" for n, path in zip(tasks, paths, strict=True)]
        storage.move([both for both in zip(paths, moved, strict=True) if both[0] != both[1]])
        paths = moved
    sealed = zip(tasks, _sealed(spark, storage, paths, flow), strict=True)
    return [(task, record) for task, record in sealed if record.rows]


def _task(path: str) -> int:
    """The number of the task that wrote a file: Spark's names have it."""
    found = _PART.match(path.rpartition("/")[2])
    if found is None:
        raise CorruptFile(f"{path} is not named as Spark names files")
    return int(found[1])


def _sealed(spark: SparkSession, storage: Storage, paths: Sequence[str], flow: Flow) -> Sequence[FileRecord]:
    """Records of Parquet files that Spark wrote; on a cluster, they are not read by the driver."""
    required = tuple(f.name for f in flow.schema if not f.nullable and not pa.types.is_nested(f.type))
    seal = _Seal(storage, flow.table, required)
    if not is_local(spark):
        return records.on_executors(spark, seal, paths)
    with ThreadPoolExecutor(min(4, len(paths) or 1)) as pool:
        return list(pool.map(seal, paths))


@dataclass(frozen=True, slots=True)
class _Seal:
    """Describe a Parquet file that Spark wrote, and make it durable."""

    storage: Storage
    table: str
    required: tuple[str, ...]

    def __call__(self, path: str) -> FileRecord:
        import pyarrow.parquet as pq

        with self.storage.open(path) as file:
            parquet = pq.ParquetFile(file)
            for column in self.required:
                if _any_null(parquet, column):
                    raise _null(self.table, column)
            rows = parquet.metadata.num_rows
        size, sha256 = self.storage.seal(path)
        return FileRecord(path, rows, size, sha256)


def _any_null(parquet: pq.ParquetFile, column: str) -> bool:
    known = has_nulls(parquet.metadata, column)
    if known is not None:
        return known
    return any(batch.column(0).null_count for batch in parquet.iter_batches(columns=[column]))


def _null(table: str, field: str) -> NullInField:
    return NullInField(
        f"{table}.{field} is null in some row, but it is declared without `| None`",
        hint=f"fill the value in the transform that writes it, or declare {field} as nullable",
    )


def _guarded(frame: DataFrame, schema: pa.Schema, table: str) -> DataFrame:
    """Columns in declared order; a forbidden null in a nested one fails the job with a readable error."""
    nested = [f for f in schema if pa.types.is_nested(f.type)]
    guards = {f.name: guard for f in nested if (guard := _guard(frame, f, table)) is not None}
    if not guards and frame.columns == schema.names:
        return frame
    return frame.select(*(guards.get(name, name) for name in schema.names))


def _guard(frame: DataFrame, field: pa.Field, table: str) -> Column | None:
    from pyspark.sql import functions as F

    column, have = F.col(field.name), frame.schema[field.name]
    forbidden = _forbidden_null(column, have.dataType, have.nullable, field)
    if forbidden is None:
        return None
    error = _null(table, field.name)
    stop = F.raise_error(f"{error}\n{encode(error)}").cast(have.dataType)
    return F.when(forbidden, stop).otherwise(column).alias(field.name)


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


def has_nulls(metadata: pq.FileMetaData, column: str) -> bool | None:
    """Whether a column that is not nested has nulls; None where the footer does not tell.

    Writers leave the count out with the other statistics, for example when values are very long.
    """
    answer: bool | None = False
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = (group.column(i) for i in range(group.num_columns))
        statistics = next(c for c in chunks if c.path_in_schema == column).statistics
        if statistics is None or not statistics.has_null_count:
            answer = None
        elif statistics.null_count:
            return True
    return answer
