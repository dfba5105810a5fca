"""Small answers from executors: one record for each file that a task wrote or looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.faults import carried, decode
from penstock.spark.flow import Batches
from penstock.spark.session import parallelism
from penstock.spark.worker import settle
from penstock.storage import FileRecord
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
    ]
)


def batch(records: Sequence[tuple[int, FileRecord]]) -> pa.RecordBatch:
    """Numbered records, as a task hands them to the driver."""
    rows = [{"part": part, **record.to_json()} for part, record in records]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def numbered(rows: Iterable[Row]) -> list[tuple[int, FileRecord]]:
    """What all tasks handed over, with their numbers, in the order of these."""
    ordered = sorted(rows, key=lambda r: r["part"])
    return [(r["part"], FileRecord(r["path"], r["rows"], r["bytes"], r["sha256"])) for r in ordered]


def collected(rows: Iterable[Row]) -> tuple[FileRecord, ...]:
    """What all tasks handed over, in the order of their numbers."""
    return tuple(record for _, record in numbered(rows))


def on_executors(
    spark: SparkSession, action: Callable[[Any], FileRecord], items: Sequence[Any]
) -> tuple[FileRecord, ...]:
    """Apply an action to every item, on the executors."""
    if not items:
        return ()
    tasks = min(len(items), max(1, parallelism(spark)))
    seed = spark.range(0, len(items), 1, tasks)
    try:
        return collected(seed.mapInArrow(_ForEach(action, tuple(items)), spark_schema(SCHEMA)).collect())
    except Exception as error:
        raise decode(error) from error


@dataclass(frozen=True, slots=True)
class _ForEach:
    """A task that applies an action to its share of the items and yields a record for each."""

    action: Callable[[Any], FileRecord]
    items: tuple[Any, ...]

    def __call__(self, seeds: Batches) -> Batches:
        settle()
        with carried("task"):
            for seed in seeds:
                numbers = seed.column(0).to_pylist()
                yield batch([(n, self.action(self.items[n])) for n in numbers])
