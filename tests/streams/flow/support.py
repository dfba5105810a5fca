"""What the tests of operators share: tables, sources that are never polled, and queries over files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.sinks.base import Batch, Mode, Sink, Target, Writer
from penstock.sources import Part, State, StatefulSource
from penstock.spark.faults import decode
from penstock.streams.api.outputs import Output
from penstock.streams.api.stream import SourceSpec, Stream
from penstock.streams.log.schemas import COUNT, END_MICROS, END_OF_TIME, watermark_row
from penstock.streams.operators.query import ReadSource
from penstock.types.tables import Table, derived

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Dicts = list[dict[str, Any]]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Clicks(Table):
    user: str
    page: str
    price: int | None
    at: datetime
    double: int | None = derived()


class Counts(Table):
    page: str
    begin: datetime
    clicks: int


class Source(StatefulSource):
    """A source of a table. Its rows are given to the query as files."""

    def __init__(self, table: type[Table] = Clicks) -> None:
        self.table = table

    def list_parts(self) -> list[str]:
        return []

    def build_part(self, part: str, state: State) -> Part:
        raise NotImplementedError


@dataclass(frozen=True)
class Nowhere(Sink):
    """A sink that takes some modes, and no rows: the tests look at the query."""

    exactly_once: ClassVar[bool] = True
    modes: ClassVar[frozenset[Mode]] = frozenset({"append", "update", "complete"})

    def open(self, target: Target) -> Writer:
        raise NotImplementedError

    def describe(self) -> dict[str, str]:
        return {"kind": "nowhere"}


class OnlyAppend(Nowhere):
    modes: ClassVar[frozenset[Mode]] = frozenset({"append"})


@dataclass
class Kept(Sink):
    """A sink that keeps what it is given, by output and batch."""

    batches: dict[str, dict[int, Dicts]] = field(default_factory=dict)

    exactly_once: ClassVar[bool] = False
    modes: ClassVar[frozenset[Mode]] = frozenset({"append"})

    def open(self, target: Target) -> Writer:
        return _Keeper(self.batches.setdefault(target.output, {}))

    def describe(self) -> dict[str, str]:
        return {"kind": "kept"}


class _Keeper(Writer):
    def __init__(self, batches: dict[int, Dicts]) -> None:
        self._batches = batches

    def write(self, frame: DataFrame, batch: Batch) -> None:
        self._batches[batch.number] = frame.toArrow().to_pylist()


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def click(user: str, page: str, seconds: float, price: int | None = 1) -> dict[str, Any]:
    return {"user": user, "page": page, "price": price, "at": at(seconds)}


@dataclass(frozen=True)
class Result:
    """What a query brought, batch by batch."""

    batches: list[Dicts]
    late: int
    """How many rows Spark itself dropped because of its watermark."""

    @property
    def rows(self) -> Dicts:
        return [row for batch in self.batches for row in batch]

    def tuples(self, *names: str) -> list[tuple[Any, ...]]:
        """Some fields of all rows, sorted; None comes last."""
        return sorted(
            (tuple(row[name] for name in names) for row in self.rows),
            key=lambda found: [(each is None, each) for each in found],
        )


@dataclass
class Feed:
    """Rows of sources as files, of which a query takes one of each source in a batch."""

    folder: Path
    stream: Stream
    count: int = 0
    counted: list[Sequence[str] | None] = field(default_factory=list)
    """By which fields rows were to be counted while they were read, reading by reading."""

    def add(
        self, source: str, *batches: Iterable[Mapping[str, Any]], late: bool = False, ends: bool = True
    ) -> Feed:
        """Batches of a source, as those of one part; with event time, they and the end tell watermarks."""
        spec = self.stream.sources[source]
        schema = spec.table.arrow_schema(spec.fields)
        stamps = None if late else spec.timestamps
        newest = None
        for batch in batches:
            rows = pa.Table.from_pylist(list(batch), schema=schema)
            if stamps is not None and rows.num_rows:
                last = pc.max(rows[stamps.field].cast("int64")).as_py()
                newest = last if newest is None else max(newest, last)
                mark = newest - round(stamps.lateness * 1_000_000)
                told = watermark_row(schema, stamps.field, mark)
                rows = pa.concat_tables([rows, pa.Table.from_batches([told])])
            self._write(spec, late, rows)
        if ends and stamps is not None:
            told = watermark_row(schema, stamps.field, END_MICROS)
            self._write(spec, late, pa.Table.from_batches([told]))
        return self

    def _write(self, spec: SourceSpec, late: bool, rows: pa.Table) -> None:
        folder = self._place(spec.name, late)
        folder.mkdir(parents=True, exist_ok=True)
        self.count += 1
        path = folder / f"{self.count:04}.parquet"
        pq.write_table(rows, path)
        # Spark takes files by age.
        os.utime(path, (1_700_000_000 + self.count,) * 2)

    def _place(self, source: str, late: bool) -> Path:
        return self.folder / f"{source}{'-late' if late else ''}"

    def reading(self, spark: SparkSession) -> ReadSource:
        def read(source: str, late: bool | None, counted: Sequence[str] | None = None) -> DataFrame:
            spec = self.stream.sources[source]
            stream = spark.readStream.schema(spec.table.spark_schema(spec.fields))
            rows = stream.option("maxFilesPerTrigger", 1).parquet(str(self._place(source, bool(late))))
            if late is None and spec.timestamps is not None:
                rows = rows.where(f"`{spec.timestamps.field}` < timestamp '{END_OF_TIME.isoformat()}'")
            self.counted.append(counted)
            return rows if counted is None else rows.selectExpr(*counted, f"1L AS {COUNT}")

        return read

    def run(self, spark: SparkSession, output: Output) -> Result:
        """Run an output's query over all files; when it is repeated, it goes on from its checkpoint."""
        batches: list[Dicts] = []
        frame = output.frame(spark, self.reading(spark))
        query = (
            frame.writeStream.outputMode(output.mode)
            .option("checkpointLocation", str(self.folder / f"checkpoint-{output.name}"))
            .trigger(availableNow=True)
            .foreachBatch(lambda rows, _: batches.append(rows.toArrow().to_pylist()))
            .start()
        )
        try:
            query.awaitTermination()
        except Exception as error:
            raise decode(error) from error
        operators = [each for progress in query.recentProgress for each in progress["stateOperators"]]
        return Result(batches, sum(each["numRowsDroppedByWatermark"] for each in operators))
