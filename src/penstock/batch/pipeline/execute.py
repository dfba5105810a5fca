"""Running the stages of a pipeline on the tables of a dataset."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.batch.pipeline.arrow_step import ArrowStep
from penstock.batch.pipeline.check import check_columns, check_transform, results
from penstock.batch.pipeline.dataset import Dataset
from penstock.batch.pipeline.ordered import sorted_frame
from penstock.batch.pipeline.phases import Phase, Phases
from penstock.batch.pipeline.resources import Handles, Resource
from penstock.batch.pipeline.retry import attempt, is_transient
from penstock.batch.pipeline.stages import Bound, Stage
from penstock.errors import DefinitionError, PenstockError, TransformFailed, TypeMismatch, UsageError
from penstock.spark.faults import found, raised_at
from penstock.spark.flow import Flow
from penstock.types.spark import is_same, spark_type, widens
from penstock.types.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.batch.pipeline.pipeline import Pipeline

# Held while a function is called that may make views: claims share the names of their session.
_VIEWS = threading.RLock()

Flows = Mapping[str, Flow]
Resources = Mapping[str, Any]


class Executor:
    """Runs stages of one pipeline in one Spark session; transforms are checked before first use.

    ``checked`` names those that were checked already, and ``without_views`` those that are known not to use
    views of the session. Used by several threads at once: what it caches is the same whoever puts it there.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        phases: Phases,
        checked: Iterable[str] = (),
        without_views: Iterable[str] = (),
    ) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.phases = phases
        self._checked: set[str] = set(checked)
        self._without_views = frozenset(without_views)
        self.handles = Handles(spark)

    def flows(self, dataset: Dataset) -> dict[str, Flow]:
        """The dataset's tables as flows, with the fields that the pipeline needs of them."""
        return {
            name: self._flow(name, rows)
            for name, rows in dataset.tables.items()
            if name in self.pipeline.tables
        }

    def run_stage(self, phase: Phase, stage: Stage, flows: Flows, resources: Resources) -> dict[str, Flow]:
        """The tables after a stage. Nothing is computed yet: flows are lazy."""
        tables = self.prune(phase, flows, stage.index)
        # Arrow functions first where the batches are in a Python worker already, last where they
        # are not: no two of a stage conflict, and each crossing saved is worth several scans.
        waiting = list(stage.transforms)
        while waiting:
            following = min(waiting, key=lambda b: self._crosses(b, tables))
            waiting.remove(following)
            if not following.writes_resources:
                tables |= self._run(following, tables, resources)
        return self.prune(phase, tables, stage.index + 1)

    def prune(self, phase: Phase, flows: Flows, done: int) -> dict[str, Flow]:
        """Only the tables and fields that are needed of a phase once ``done`` stages have run."""
        pruned = {}
        for table, fields in self.phases.live(phase, done).items():
            if table not in flows:
                raise UsageError(
                    f"the dataset has no table {table!r}, which pipeline {self.pipeline.name} needs",
                    hint="register it as an input, or let the dataset factory add it",
                )
            # A table with no needed field is still counted by its rows.
            kept = [n for n in flows[table].schema.names if n in fields] or flows[table].schema.names[:1]
            pruned[table] = flows[table].select(kept)
        return pruned

    def _flow(self, name: str, rows: DataFrame | Flow) -> Flow:
        if isinstance(rows, Flow):
            return rows
        table = self.pipeline.tables[name]
        have = [f.name for f in table.__fields__.values() if f.name in rows.columns]
        missing = [f.name for f in table.__fields__.values() if not f.derived and f.name not in have]
        if missing:
            raise UsageError(f"the DataFrame given for table {name} has no column {', '.join(missing)}")
        for column in have:
            kind, declared = rows.schema[column].dataType, table.__fields__[column].type
            if not widens(kind, declared):
                want = spark_type(declared)
                raise TypeMismatch(
                    f"the DataFrame given for table {name} has {column} as {kind.simpleString()}, "
                    f"declared as {want.simpleString()}",
                    hint=f'cast it: .withColumn("{column}", F.col("{column}").cast("{want.simpleString()}"))',
                )
        return Flow(name, _cast(rows, table, have), table.arrow_schema(have))

    def _crosses(self, bound: Bound, tables: Mapping[str, Flow]) -> bool:
        wants_jvm = bound.transform.form == "frame"
        return any(tables[t].in_jvm != wants_jvm for t in bound.tables)

    def _run(self, bound: Bound, tables: Mapping[str, Flow], resources: Resources) -> dict[str, Flow]:
        missing = [r.name for r in bound.reads_resources if r.name not in resources]
        if missing:
            raise UsageError(
                f"transform {bound.name} needs resource {', '.join(missing)}, which nobody provides",
                hint="give the Resource a load function, or let the dataset factory add it",
            )
        if bound.transform.form == "arrow":
            return self._run_arrow(bound, tables, resources)
        return self._run_frame(bound, tables, resources)

    def _run_frame(self, bound: Bound, tables: Mapping[str, Flow], resources: Resources) -> dict[str, Flow]:
        if bound.name in self._without_views:
            return self._call_frame(bound, tables, resources)
        # Another claim would replace the view between the line that makes it and the one that uses it.
        with _VIEWS:
            return self._call_frame(bound, tables, resources)

    def _call_frame(self, bound: Bound, tables: Mapping[str, Flow], resources: Resources) -> dict[str, Flow]:
        given = {
            t: tables[t]
            if t in bound.changes
            else tables[t].select(bound.declared(t) or tables[t].schema.names[:1])
            for t in bound.tables
        }
        arguments: dict[str, Any] = {t: flow.frame(self.spark) for t, flow in given.items()}
        if bound.name not in self._checked:
            plan = (self.spark, self.pipeline.tables, bound, resources)
            if check_transform(*plan).reason is not None:
                # A function that needs rows to be planned gets them, for one check more.
                check_transform(*plan, arguments)
            self._checked.add(bound.name)
        arguments |= {r.name: _for_frames(resources[r.name]) for r in bound.reads_resources}
        transform = bound.transform
        try:
            returned = attempt(lambda: transform.function(**arguments), transform.retry)
        except PenstockError as error:
            if not is_transient(error, transform.retry):
                raise
            what = f"raised {transform.retry.times + 1} times {type(error).__name__}: {error.what}"
            raise TransformFailed(f"{transform.location}: transform {bound.name} {what}") from error
        except Exception as error:
            if fault := found(error):
                raise fault from error
            what = str(error).splitlines()[0] if str(error) else ""
            where = raised_at(error, transform.location)
            raise TransformFailed(
                f"{where}: transform {bound.name} raised {type(error).__name__}: {what}"
            ) from error
        made = {}
        for name, frame in results(bound, returned).items():
            table = self.pipeline.tables[name]
            before = given[name].schema.names if name in given else []
            check_columns(bound, table, frame, before)
            names = [n for n in table.__fields__ if n in frame.columns]
            made[name] = Flow(name, _cast(frame, table, names), table.arrow_schema(names))
        return made

    def _run_arrow(self, bound: Bound, tables: Mapping[str, Flow], resources: Resources) -> dict[str, Flow]:
        transform = bound.transform
        source, target = next(iter(bound.tables)), next(iter(bound.changes))
        into = self.pipeline.tables[target]
        written = into.arrow_schema(f.name for f in bound.writes)
        step = ArrowStep(
            name=bound.name,
            location=transform.location,
            function=transform.function,
            table=source,
            target=target,
            fields=tuple(self.pipeline.tables[source].__fields__),
            reads=tuple(n for n in tables[source].schema.names if n in {f.name for f in bound.reads}),
            writes=tuple(written.names),
            drops=bool(transform.drops),
            created=written if bound.creates else None,
            written=written,
            retry=transform.retry,
            resources={r.name: self.handles.get(r.name, resources[r.name]) for r in bound.reads_resources},
        )
        schema = written if bound.creates else _extended(tables[source].schema, written)
        return {target: replace(tables[source].then(step, schema), table=target)}


def resources_by_stage(
    stages: Sequence[Stage],
    resources: Mapping[str, Resource],
    given: Resources,
    shared: Sequence[Resources] | None = None,
) -> list[dict[str, Any]]:
    """The resources as each stage finds them. Those that transforms write are made on the way.

    With ``shared``, the result of an earlier call, nothing is loaded again, and made again is only
    what depends on a ``given`` value.
    """
    values: dict[str, Any] = {**(shared[0] if shared else {}), **given}
    for name, resource in resources.items():
        if name not in values and resource.load is not None:
            values[name] = resource.load()
    fresh = set(given)
    before = []
    for stage in stages:
        before.append(dict(values))
        for bound in stage.transforms:
            reads = {r.name for r in bound.reads_resources}
            if not bound.writes_resources or not reads <= before[-1].keys():
                continue
            written = {r.name for r in bound.writes_resources}
            known = shared[stage.index + 1] if shared and stage.index + 1 < len(shared) else {}
            if not reads & fresh and written <= known.keys():
                values |= {name: known[name] for name in written}
                fresh -= written
            else:
                values |= _make_resources(bound, before[-1])
                fresh |= written
    return before


def _make_resources(bound: Bound, values: Resources) -> dict[str, Any]:
    names = sorted(r.name for r in bound.writes_resources)
    arguments = {r.name: values[r.name] for r in bound.reads_resources}
    made = attempt(lambda: bound.transform.function(**arguments), bound.transform.retry)
    if len(names) == 1:
        return {names[0]: made}
    if not isinstance(made, Mapping) or sorted(made) != names:
        raise bound.transform.error(DefinitionError, f"must return a dictionary of {', '.join(names)}")
    return dict(made)


def run_on(pipeline: Pipeline, dataset: Dataset, spark: SparkSession | None) -> Dataset:
    """All stages on a dataset; see `Pipeline.run_on`."""
    from pyspark.sql import SparkSession

    session = spark or dataset.spark or SparkSession.getActiveSession()
    if session is None:
        raise UsageError(
            "no Spark session is active", hint="pass spark=…, for example penstock.start_spark()"
        )
    phases = pipeline.as_one
    executor = Executor(session, pipeline, phases)
    resources = resources_by_stage(phases.stages, pipeline.resources, dataset.resources)
    flows: dict[str, Flow] = executor.flows(dataset)
    for stage in phases.stages:
        flows = executor.run_stage(phases[0], stage, flows, resources[stage.index])
    frames = {name: flow.frame(session) for name, flow in flows.items()}
    frames |= {name: sorted_frame(frames[name], order) for name, order in pipeline.order_by.items()}
    return Dataset(frames, dataset.resources, session)


def _cast(frame: DataFrame, table: type[Table], names: list[str]) -> DataFrame:
    """The columns in declared order, widened to the declared types where they are narrower."""
    from pyspark.sql import functions as F

    declared = {name: table.__fields__[name].type for name in names}
    wider = {
        name: spark_type(kind)
        for name, kind in declared.items()
        if not is_same(frame.schema[name].dataType, kind)
    }
    # Each select is analysed anew: leave out the one that changes nothing.
    if not wider and frame.columns == names:
        return frame
    return frame.select(*(F.col(n).cast(wider[n]).alias(n) if n in wider else n for n in names))


def _extended(schema: pa.Schema, written: pa.Schema) -> pa.Schema:
    fields = {f.name: f for f in schema} | {f.name: f for f in written}
    return pa.schema(list(fields.values()))


def _for_frames(value: Any) -> Any:
    """A lookup DataFrame goes to every executor as a whole when it is joined."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    return F.broadcast(value) if isinstance(value, DataFrame) else value
