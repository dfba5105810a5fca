"""A table on its way: where its rows come from, and the Arrow steps still to be applied.

Crossing between the JVM and a Python worker is the dearest thing that happens to a row. A `Flow`
therefore puts work off until it knows what comes next: a scan, the Arrow steps after it and the
write at the end run in one task inside one Python worker; only a DataFrame operation in between
moves the rows into the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.spark.faults import carried
from penstock.spark.fitting import fit
from penstock.spark.worker import settle
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]
Step = Callable[[Batches], Batches]


class ScanSplit(Protocol):
    """The share of a scan that one task reads. It travels to the executor pickled."""

    @property
    def rows(self) -> int: ...

    def batches(self) -> Batches: ...


@dataclass(frozen=True, slots=True)
class Splits:
    """Several splits, or none, that one task reads one after the other."""

    splits: tuple[ScanSplit, ...]

    @property
    def rows(self) -> int:
        return sum(split.rows for split in self.splits)

    def batches(self) -> Batches:
        for split in self.splits:
            yield from split.batches()


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows that are read inside Python workers: ``cut`` gives the splits for the wanted columns.

    ``native`` gives the same rows as a DataFrame that Spark reads by itself, where that is possible:
    rows that go into the JVM anyway need not pass through a Python worker.
    ``kept`` says that the rows are durable where they are, so that nobody needs to write them again:
    it is whatever the maker of the scan wants to find them by.
    ``hint`` is how Spark shall join the rows: it takes what comes out of a Python worker for a few bytes, and
    would send all of it to every task.
    """

    schema: pa.Schema
    cut: Callable[[Sequence[str]], Sequence[ScanSplit]]
    kept: object = None
    native: Callable[[SparkSession, Sequence[str]], DataFrame] | None = None
    hint: str | None = None

    def select(self, columns: Sequence[str]) -> Scan:
        wanted = set(columns)
        return replace(self, schema=pa.schema([f for f in self.schema if f.name in wanted]))

    def splits(self) -> Sequence[ScanSplit]:
        return self.cut(self.schema.names)


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows of one table, with the schema they have after all steps."""

    table: str
    origin: Scan | DataFrame
    schema: pa.Schema
    steps: tuple[Step, ...] = ()

    @classmethod
    def scan(cls, table: str, scan: Scan) -> Flow:
        return cls(table, scan, scan.schema)

    @property
    def in_jvm(self) -> bool:
        """Whether the rows are in the JVM at this point."""
        return not self.steps and not isinstance(self.origin, Scan)

    @property
    def kept(self) -> object:
        """What the untouched rows of a durable scan are found by, or None."""
        return self.origin.kept if isinstance(self.origin, Scan) and not self.steps else None

    def then(self, step: Step, schema: pa.Schema) -> Flow:
        """Apply an Arrow step, later."""
        return replace(self, steps=(*self.steps, step), schema=schema)

    def select(self, columns: Iterable[str]) -> Flow:
        """Keep these columns only, in the order of the schema; pruned in the scan where possible."""
        wanted = set(columns)
        names = [name for name in self.schema.names if name in wanted]
        if names == self.schema.names:
            return self
        schema = pa.schema([self.schema.field(name) for name in names])
        if self.steps:
            return self.then(SelectColumns(tuple(names)), schema)
        if isinstance(self.origin, Scan):
            return Flow(self.table, self.origin.select(names), schema)
        return Flow(self.table, self.origin.select(*names), schema)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame."""
        if self.in_jvm:
            return self.origin  # type: ignore[return-value]
        if isinstance(self.origin, Scan) and self.origin.native and not self.steps:
            frame = self.origin.native(spark, self.schema.names)
        else:
            frame = self.run(spark, (), self.schema)
        return frame.hint(self.origin.hint) if isinstance(self.origin, Scan) and self.origin.hint else frame

    def run(self, spark: SparkSession, after: Sequence[Step], schema: pa.Schema) -> DataFrame:
        """A DataFrame of what all steps, and then those in ``after``, make of the origin's batches."""
        steps: tuple[Step, ...] = (*self.steps, Fit(self.table, self.schema), *after)
        if not isinstance(self.origin, Scan):
            return self.origin.mapInArrow(_Task(steps), spark_schema(schema))
        splits = tuple(self.origin.splits())
        seeds = spark.range(0, len(splits), 1, max(1, len(splits)))
        return seeds.mapInArrow(_Task(steps, splits), spark_schema(schema))


@dataclass(frozen=True, slots=True)
class _Task:
    """What one Spark task does: read its split (or take the batches it is given), then the steps."""

    steps: tuple[Step, ...]
    splits: tuple[ScanSplit, ...] | None = None

    def __call__(self, batches: Batches) -> Batches:
        settle()
        with carried("task"):
            if self.splits is not None:
                batches = _read(self.splits, batches)
            for step in self.steps:
                batches = step(batches)
            yield from batches


def _read(splits: Sequence[ScanSplit], seeds: Batches) -> Batches:
    for seed in seeds:
        for number in seed.column(0).to_pylist():
            yield from splits[number].batches()


@dataclass(frozen=True, slots=True)
class SelectColumns:
    """A step that keeps some columns."""

    columns: tuple[str, ...]

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield batch.select(list(self.columns))


@dataclass(frozen=True, slots=True)
class Fit:
    """A step that brings batches to exactly a schema, or says which field does not fit."""

    table: str
    schema: pa.Schema

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            if batch.num_rows:
                yield fit(self.table, batch, self.schema)
