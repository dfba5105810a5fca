"""A whole pipeline on a stream: every batch is a dataset, as a partition is in a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from penstock.batch.pipeline import Dataset, Pipeline
from penstock.batch.pipeline.execute import Executor, resources_by_stage
from penstock.batch.pipeline.fingerprint.digests import code_digest, stage_digest
from penstock.errors import DefinitionError, TypeMismatch, UnknownField
from penstock.sinks.base import Batch, Mode, Sink, Target, Writer
from penstock.streams.api.shape import Shape
from penstock.streams.operators.sites import Site

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def resources_of(pipeline: Pipeline) -> dict[str, str]:
    """The resources of a pipeline as a plan tells them: by version, or else by the code that loads them."""
    return {
        f"resource {name}": resource.version or (code_digest(resource.load) if resource.load else "-")
        for name, resource in pipeline.resources.items()
    }


class PipelineSink(Sink):
    """Runs a pipeline on each batch, and hands its tables to the sinks of their own.

    Each of them remembers its batches by itself: one that failed after another had written is caught up by
    the repetition.
    """

    modes: ClassVar[frozenset[Mode]] = frozenset({"append"})

    def __init__(self, pipeline: Pipeline, sinks: Mapping[str, Sink]) -> None:
        self.pipeline = pipeline
        self.sinks = dict(sinks)
        self.exactly_once = all(sink.exactly_once for sink in sinks.values())  # type: ignore[misc]

    def open(self, target: Target) -> Writer:
        tables = {table.__table_name__: table for table in self.pipeline.outputs}
        with ExitStack() as opened:
            writers = {}
            for name, sink in self.sinks.items():
                part = replace(target, output=f"{target.output}.{name}", table=tables[name])
                writers[name] = sink.open(part)
                opened.callback(writers[name].close)
            opened.pop_all()
        return _PipelineWriter(self.pipeline, writers)

    def describe(self) -> dict[str, str]:
        found = {"kind": "pipeline", "pipeline": self.pipeline.name}
        found |= {f"stage {stage.index + 1}": stage_digest(stage) for stage in self.pipeline.stages}
        found |= resources_of(self.pipeline)
        for table, sink in self.sinks.items():
            found |= {f"{table} {key}": value for key, value in sink.describe().items()}
        return found


class PipelineRun:
    """A pipeline at work in one session: transforms are checked and resources loaded once."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._phases = pipeline.as_one
        self._executor = Executor(spark, pipeline, self._phases)
        self._resources = resources_by_stage(self._phases.stages, pipeline.resources, {})

    def run(self, frame: DataFrame) -> dict[str, DataFrame]:
        """The output tables for the rows of one batch. Nothing is computed yet."""
        table = self._pipeline.inputs[0].__table_name__
        flows = self._executor.flows(Dataset({table: frame}))
        for stage in self._phases.stages:
            flows = self._executor.run_stage(self._phases[0], stage, flows, self._resources[stage.index])
        spark = self._executor.spark
        return {
            made.__table_name__: flows[made.__table_name__].frame(spark) for made in self._pipeline.outputs
        }


class _PipelineWriter(Writer):
    def __init__(self, pipeline: Pipeline, writers: Mapping[str, Writer]) -> None:
        self._pipeline = pipeline
        self._writers = writers
        self._run: PipelineRun | None = None

    def write(self, frame: DataFrame, batch: Batch) -> None:
        if self._run is None:
            self._run = PipelineRun(frame.sparkSession, self._pipeline)
        with _once(frame, len(self._writers)) as rows:
            made = self._run.run(rows)
            for table, writer in self._writers.items():
                writer.write(made[table], batch)

    def close(self) -> None:
        with ExitStack() as closing:
            for writer in self._writers.values():
                closing.callback(writer.close)


@contextmanager
def _once(frame: DataFrame, times: int) -> Iterator[DataFrame]:
    """Rows that several jobs read. Operators with state would run again for each of them."""
    if times == 1:
        yield frame
        return
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


def pipeline_sink(site: Site, shape: Shape, pipeline: Any, sinks: Mapping[str, Sink]) -> PipelineSink:
    """The sink, if pipeline, rows and sinks fit together."""
    if not isinstance(pipeline, Pipeline):
        raise site.error(DefinitionError, f"is given {pipeline!r} for a pipeline")
    _check_input(site, shape, pipeline)
    if pipeline.order_by:
        raise site.error(
            DefinitionError,
            f"is given pipeline {pipeline.name}, which sorts {next(iter(pipeline.order_by))}",
            hint="a stream never has all rows: leave order_by= out, and sort where the rows are read",
        )
    made = {table.__table_name__ for table in pipeline.outputs}
    if wrong := sorted(made ^ sinks.keys()):
        raise site.error(
            DefinitionError,
            f"has {'no sink for' if wrong[0] in made else 'a sink for'} {wrong[0]}",
            hint=f"name one for each output of {pipeline.name}: {', '.join(sorted(made))}",
        )
    for table, sink in cast("Mapping[str, Any]", sinks).items():
        if not isinstance(sink, Sink) or "append" not in sink.modes:
            raise site.error(DefinitionError, f"has {sink!r} for {table}, which cannot take mode 'append'")
    return PipelineSink(pipeline, sinks)


def _check_input(site: Site, shape: Shape, pipeline: Pipeline) -> None:
    first, *others = pipeline.inputs
    if others:
        raise site.error(
            DefinitionError,
            f"is given pipeline {pipeline.name}, which also reads {others[0].__table_name__}",
            hint="on a stream a pipeline has one input; make the other one a Resource",
        )
    if first.__table_name__ != shape.name:
        raise site.error(
            TypeMismatch,
            f"gives rows of {shape.name} to pipeline {pipeline.name}, which reads {first.__table_name__}",
        )
    for field in first.__fields__.values():
        if not field.derived and field.name not in shape.fields:
            raise site.error(UnknownField, f"gives pipeline {pipeline.name} rows without {field}")
        known = shape.table.__fields__.get(field.name)
        if known is not None and (known.type, known.nullable) != (field.type, field.nullable):
            raise site.error(TypeMismatch, f"has {known!r}, which is {field!r} at {first.__location__}")
