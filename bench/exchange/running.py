"""Running a step that brings rows together: with Penstock, and as plain scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock as ps
from bench.batch.running import Outputs
from bench.exchange import data, pipelines
from bench.lab import Lab, Place
from bench.measuring import say, timed
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

USUAL_ROWS = 10_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """A pipeline, and the same as a script: ``before`` looks at rows by themselves, ``together`` does not."""

    pipeline: ps.Pipeline
    sources: Mapping[str, Path]
    before: tuple[str, Callable[[DataFrame], DataFrame]]
    together: Callable[..., DataFrame]

    @property
    def name(self) -> str:
        return self.pipeline.name

    @property
    def output(self) -> str:
        return self.pipeline.outputs[0].__table_name__


def grouped(lab: Lab, *, hot: bool = False) -> Step:
    return _of_trades(lab, pipelines.grouped, pipelines.positions, hot=hot)


def windowed(lab: Lab) -> Step:
    return _of_trades(lab, pipelines.windowed, pipelines.balances)


def joined(lab: Lab, *, hot: bool = False) -> Step:
    accounts = data.accounts(lab.folder / "data", lab.rows)
    return _of_trades(lab, pipelines.joined, pipelines.owned, hot=hot, accounts=accounts)


def tpch(lab: Lab) -> Step:
    folder = data.tpch(lab.folder / "data", lab.rows)
    sources = {"lineitem": folder / "lineitem", "orders": folder / "orders"}
    return Step(pipelines.tpch, sources, ("lineitem", pipelines.priced), pipelines.lines)


def _of_trades(
    lab: Lab, pipeline: ps.Pipeline, together: Callable[..., DataFrame], *, hot: bool = False, **more: Path
) -> Step:
    trades = data.trades(lab.folder / "data", lab.rows, hot=hot)
    return Step(pipeline, {"trades": trades, **more}, ("trades", pipelines.valued), together)


def usual(lab: Lab) -> dict[str, int]:
    """The limits of a run for fewer rows: what few rows are is the same share of them."""
    share, usual = min(1.0, lab.rows / USUAL_ROWS), ps.RunnerConfig()
    named = ("whole_bytes", "small_bytes", "range_bytes")
    return {name: int(getattr(usual, name) * share) for name in named}


def penstock(spark: SparkSession, place: Place, step: Step, **options: Any) -> ps.Report:
    """Register the inputs and run the pipeline over them."""
    with ps.open_store(place.store) as store:
        storage = ps.Storage(place.storage)
        for table in step.pipeline.inputs:
            name = table.__table_name__
            source, schema = str(step.sources[name]), table.input_schema()
            ps.register(spark, store, storage, name, source, table_schema=schema)
        report = ps.Runner(step.pipeline, store, storage, ps.RunnerConfig(**options), spark=spark).run()
    if report.ending != "complete":
        raise RuntimeError(f"the run is {report.ending}: {report.error or report.events[-3:]}")
    return report


def at_once(spark: SparkSession, place: Place, step: Step) -> None:
    """A: read, transform, bring together, write."""
    step.together(**_before(spark, step)).write.parquet(str(place.path / "output"))


def in_steps(spark: SparkSession, place: Place, step: Step) -> None:
    """B: the same, with what is brought together written to Parquet and read again."""
    again = {}
    for name, rows in _before(spark, step).items():
        path = str(place.path / name)
        rows.write.parquet(path)
        again[name] = spark.read.parquet(path)
    step.together(**again).write.parquet(str(place.path / "output"))


def _before(spark: SparkSession, step: Step) -> dict[str, DataFrame]:
    frames = {}
    for table in step.pipeline.inputs:
        rows = spark.read.parquet(str(step.sources[table.__table_name__]))
        fields = spark_schema(table.input_schema()).fields
        frames[table.__table_name__] = rows.select(*(rows[f.name].cast(f.dataType) for f in fields))
    name, transform = step.before
    return {**frames, name: transform(frames[name])}


def measured(lab: Lab, step: Step, outputs: Outputs, **options: Any) -> Callable[[], float]:
    """A measurement of a whole run, the registration of its inputs included."""

    def measure() -> float:
        with lab.place(step.name) as place:
            seconds = timed(lambda: penstock(lab.spark, place, step, **options))
            outputs.add(step.name, output(lab.spark, place, step))
            return seconds

    return measure


def measured_plain(
    lab: Lab, script: Callable[[SparkSession, Place, Step], None], step: Step, outputs: Outputs
) -> Callable[[], float]:
    def measure() -> float:
        with lab.place(script.__name__) as place:
            seconds = timed(lambda: script(lab.spark, place, step))
            outputs.add(script.__name__, lab.spark.read.parquet(str(place.path / "output")))
            return seconds

    return measure


def output(spark: SparkSession, place: Place, step: Step) -> DataFrame:
    """The rows that the last phase of a run has published."""
    with ps.open_store(place.store) as store:
        return ps.Output(store, step.name).frame(spark, step.output)


def in_turns(name: str, lab: Lab, sides: Sequence[Callable[[], float]]) -> list[tuple[float, ...]]:
    """What each side took, round after round, after one round that does not count."""
    taken: list[tuple[float, ...]] = []
    for number in range(lab.repeat + 1):
        found = tuple(side() for side in sides)
        told = ", ".join(f"{seconds:.4g}" for seconds in found)
        say(f"{name}: {f'{number}/{lab.repeat}' if number else 'warm-up'}: {told}")
        taken += [found] if number else []
    return list(zip(*taken, strict=True))
