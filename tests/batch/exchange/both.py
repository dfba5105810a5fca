"""The same PySpark as a pipeline whose rows are cut, and as one plain job of Spark over all of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import penstock as ps
from penstock.batch.pipeline.check import check_pipeline
from penstock.batch.pipeline.execute import resources_by_stage
from penstock.batch.pipeline.needs import cut_pipeline
from penstock.batch.pipeline.phases import ByKeys, ByRows, Partitioning, Phases
from penstock.batch.runner import entering, runner
from penstock.types.tables import TableMeta
from tests.batch.exchange.random_rows import TABLES, make_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Function = Callable[..., "DataFrame"]


@dataclass(frozen=True, slots=True)
class Case:
    """PySpark over some fields of some tables, whose rows are compared as texts."""

    name: str
    function: Function
    reads: Mapping[str, Sequence[str]]
    text: str
    """What a failure shows."""

    @property
    def transform(self) -> Any:
        reads = [getattr(TABLES[t], f) for t, fields in self.reads.items() for f in fields]
        return ps.transform(reads=reads, writes=self.into, name=self.name)(as_texts(self.function))

    @property
    def into(self) -> type[ps.Table]:
        body = {"__annotations__": {"row": str | None}, "__qualname__": self.name}
        return cast("type[ps.Table]", TableMeta(self.name, (ps.Table,), body, name=self.name))

    def plain(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        from pyspark.sql import functions as F

        given = {t: frames[t].select(*fields) for t, fields in self.reads.items()}
        return as_texts(self.function)(**given).select(F.lit(self.name).alias("case"), "row")


def as_texts(function: Function) -> Function:
    """The function with all columns of a row in one text, so that the rows of any two can be compared."""

    @wraps(function)
    def made(**frames: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        found = function(**frames)
        named = found.toDF(*(f"c{n}" for n in range(len(found.columns))))
        binary = {f.name for f in named.schema if f.dataType.typeName() == "binary"}
        texts = [F.hex(c) if c in binary else F.col(c).cast("string") for c in named.columns]
        return named.select(F.to_json(F.array(*texts)).alias("row"))

    return made


@contextmanager
def quick(spark: SparkSession) -> Iterator[None]:
    """Plans that run once, over a few rows, are not worth compiling; and two key ranges show a cut."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: str(spark.conf.get(name)) for name in settings}
    with pytest.MonkeyPatch.context() as patch:
        for module in (entering, runner):
            patch.setattr(module, "parallelism", lambda _: 1)
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                spark.conf.set(name, value)


class Both:
    """Rows for all tables, registered as inputs, and as frames of plain Spark."""

    def __init__(
        self, spark: SparkSession, path: Path, rng: random.Random, tables: Mapping[str, pa.Table]
    ) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.spark = spark
        self.rows = tables
        self.store = ps.open_store(f"sqlite:///{path}/store.db")
        self.storage = ps.Storage(path / "storage")
        self.inputs = {}
        for name, rows in tables.items():
            size = max(1, -(-len(rows) // rng.choice([2, 2, 3])))
            self.inputs[name] = ps.register(None, self.store, self.storage, name, rows, partition_rows=size)

    def pipeline(self, name: str, cases: Sequence[Case]) -> ps.Pipeline:
        return ps.Pipeline(
            name,
            inputs=[TABLES[table] for table in self.rows],
            outputs=[case.into for case in cases],
            transforms=[case.transform for case in cases],
        )

    def phased(self, pipeline: ps.Pipeline, **options: Any) -> dict[str, pa.Table]:
        """What a run with key ranges publishes."""
        settings = {"small_bytes": 0, "whole_bytes": 0, "output_format": "arrow", **options}
        config = ps.RunnerConfig(run=pipeline.name, compression="none", breaker=1, **settings)
        report = ps.Runner(
            pipeline, self.store, self.storage, config, spark=self.spark, listener=lambda _: None
        ).run()
        failed = [event.message for event in report.events if event.kind in ("failed", "poisoned")]
        assert report.ending == "complete", (report.error, failed)
        output = ps.Output(self.store, pipeline.name)
        return {t.__table_name__: output.arrow(t.__table_name__) for t in pipeline.outputs}

    def plain(self, cases: Sequence[Case]) -> dict[str, Counter[str]]:
        """What Spark gives in one job."""
        frames = {
            name: self.spark.createDataFrame(rows, TABLES[name].spark_schema())
            for name, rows in self.rows.items()
        }
        found = {case.name: Counter[str]() for case in cases}
        every = reduce(lambda one, other: one.unionAll(other), [case.plain(frames) for case in cases])
        table = every.toArrow()
        for name, row in zip(table["case"].to_pylist(), table["row"].to_pylist(), strict=True):
            found[name][row] += 1
        return found

    def compare(self, pipeline: ps.Pipeline, cases: Sequence[Case], **options: Any) -> dict[str, str]:
        """How the cases differ that differ, by name."""
        expected, found = self.plain(cases), self.phased(pipeline, **options)
        wrong = {}
        for case in cases:
            rows = Counter(found[case.name]["row"].to_pylist())
            if rows != expected[case.name]:
                lacks, has = expected[case.name] - rows, rows - expected[case.name]
                wrong[case.name] = f"{case.text}\n lacks {lacks.most_common(3)}\n has {has.most_common(3)}"
        return wrong


def phases_of(spark: SparkSession, pipeline: ps.Pipeline, small: Sequence[str] = ()) -> Phases:
    """The phases of a pipeline whose inputs are large, but for those in ``small``."""
    checked = check_pipeline(spark, pipeline, resources_by_stage(pipeline.stages, pipeline.resources, {}))
    sizes = {t.__table_name__: 1 if t.__table_name__ in small else 100 for t in pipeline.inputs}
    return cut_pipeline(pipeline, checked, sizes, small=10, as_one=0)


def cuts_of(phases: Phases) -> dict[str, str]:
    """By transform, how its rows are cut: by ``rows``, by ``keys``, or not at all."""
    return {b.name: _told(p.partitioning) for p in phases for s in p.stages for b in s.transforms}


def _told(partitioning: Partitioning) -> str:
    return {ByRows: "rows", ByKeys: "keys"}.get(type(partitioning), "everything")


def random_rows(rng: random.Random) -> dict[str, pa.Table]:
    """Rows of all tables, of which one may have none."""
    most = {"a": rng.choice([40, 90, 150]), "b": rng.choice([20, 60]), "c": rng.choice([5, 15])}
    if rng.random() < 0.2:
        most[rng.choice(list(most))] = 0
    return {name: make_rows(TABLES[name], most[name], rng) for name in TABLES}
