"""Running the measured pipelines: with Penstock, and as a plain script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock as ps
from bench import trades
from bench.lab import Lab, Place
from bench.measuring import timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Summary = tuple[Any, ...]


def partition_rows(rows: int, partitions: int) -> int:
    return -(-rows // partitions)


def penstock(
    spark: SparkSession,
    place: Place,
    source: Path,
    pipeline: ps.Pipeline,
    *,
    rows: int | None,
    checkpoint: ps.EveryStage | ps.Never,
    **options: Any,
) -> ps.Report:
    """Register the input with partitions of ``rows`` rows, or of the default size, and run the pipeline."""
    with ps.open_store(place.store) as store:
        storage = ps.Storage(place.storage)
        schema = trades.Trades.input_schema()
        ps.register(spark, store, storage, "trades", str(source), partition_rows=rows, table_schema=schema)
        config = ps.RunnerConfig(**{"checkpoint": checkpoint, **options})
        report = ps.Runner(pipeline, store, storage, config, spark=spark).run()
    if report.ending != "complete":
        raise RuntimeError(f"the run is {report.ending}: {report.error or report.events[-3:]}")
    return report


def plain(spark: SparkSession, source: Path, place: Place) -> None:
    """Read, transform, write."""
    rows = spark.read.parquet(str(source))
    for stage in trades.PLAIN:
        rows = stage(rows)
    rows.write.parquet(str(place.path / "output"))


def plain_with_arrow(spark: SparkSession, source: Path, place: Place) -> None:
    """Read, transform with the same Arrow functions in the middle, write."""
    rows = trades.net(trades.with_arrow(trades.validate(spark.read.parquet(str(source)))))
    rows.write.parquet(str(place.path / "output"))


def plain_in_steps(spark: SparkSession, source: Path, place: Place) -> None:
    """The same, with the rows written after every stage but the last and read again for the next."""
    rows = spark.read.parquet(str(source))
    *stages, last = trades.PLAIN
    for number, stage in enumerate(stages):
        step = str(place.path / f"step-{number}")
        stage(rows).write.parquet(step)
        rows = spark.read.parquet(step)
    last(rows).write.parquet(str(place.path / "output"))


def output(spark: SparkSession, place: Place, pipeline: ps.Pipeline) -> DataFrame:
    with ps.open_store(place.store) as store:
        return ps.Output(store, pipeline.name).frame(spark, "trades")


class Outputs:
    """Checks that all sides computed the same rows: a comparison of different work says nothing."""

    def __init__(self) -> None:
        self._seen: dict[str, Summary] = {}

    def add(self, side: str, rows: DataFrame) -> None:
        if side in self._seen:
            return
        self._seen[side] = summary(rows)
        if len(set(self._seen.values())) > 1:
            raise RuntimeError(f"the outputs differ: {self._seen}")


def summary(rows: DataFrame) -> Summary:
    """Count and a sum of row hashes: equal for equal rows in any order."""
    from pyspark.sql import functions as F

    hashes = F.xxhash64(*sorted(rows.columns)).cast("decimal(38,0)")
    return tuple(rows.agg(F.count("*"), F.sum(hashes)).first() or ())


def measured_penstock(
    lab: Lab,
    pipeline: ps.Pipeline,
    outputs: Outputs,
    *,
    rows: int | None,
    checkpoint: ps.EveryStage | ps.Never,
    source: Path | None = None,
) -> Callable[[], float]:
    """A measurement of a whole run, the registration of its input included."""
    trades = source or lab.trades()

    def measure() -> float:
        with lab.place(f"{pipeline.name}-{checkpoint}") as place:
            seconds = timed(
                lambda: penstock(lab.spark, place, trades, pipeline, rows=rows, checkpoint=checkpoint)
            )
            outputs.add(pipeline.name, output(lab.spark, place, pipeline))
            return seconds

    return measure


def measured_plain(
    lab: Lab,
    script: Callable[[SparkSession, Path, Place], None],
    outputs: Outputs,
    source: Path | None = None,
) -> Callable[[], float]:
    """A measurement of a plain script."""
    trades = source or lab.trades()

    def measure() -> float:
        with lab.place(script.__name__) as place:
            seconds = timed(lambda: script(lab.spark, trades, place))
            outputs.add(script.__name__, lab.spark.read.parquet(str(place.path / "output")))
            return seconds

    return measure
