"""Transforms of the batch side on a stream, unchanged: they run by the same `Executor`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from penstock.batch.pipeline.execute import Executor, resources_by_stage
from penstock.batch.pipeline.fingerprint.digests import transform_digest
from penstock.batch.pipeline.phases import AsOne, Phase, Phases
from penstock.batch.pipeline.pipeline import Pipeline
from penstock.batch.pipeline.stages import Bound, Fields, bind, derive
from penstock.batch.pipeline.transforms import Transform
from penstock.errors import DefinitionError
from penstock.spark.flow import Flow
from penstock.streams.api.pipelines import resources_of
from penstock.streams.api.shape import Shape, kept_time
from penstock.streams.operators.query import CompiledRows, Operator, QueryCompiler
from penstock.streams.operators.sites import Site
from penstock.streams.operators.stateless import table_of
from penstock.streams.operators.steps import ExpectedRows, Forward
from penstock.types.tables import Field, Table, TableMeta


@dataclass(frozen=True, slots=True, eq=False)
class Transformed(Operator):
    """Rows that a transform has changed, or made into those of a table that it creates."""

    operator: ClassVar[str] = "transform"

    pipeline: Alone
    shape: Shape

    def compile(self, query: QueryCompiler) -> CompiledRows:
        current, in_python = query.current(self.inputs[0]), self.pipeline.bound[0].transform.form == "arrow"
        flow = current.flow
        if not in_python:
            flow = Flow(flow.table, current.frame(query.spark), flow.schema)
        phases = self.pipeline.as_one
        executor = Executor(query.spark, self.pipeline, phases)
        resources = resources_by_stage(phases.stages, self.pipeline.resources, {})
        tables = executor.run_stage(phases[0], phases.stages[0], {flow.table: flow}, resources[0])
        made = tables[self.shape.name]
        if in_python:
            return CompiledRows(self._watched(made), current.mark if self.shape.time else None)
        return self._checked(made, current, query)

    def _watched(self, made: Flow) -> Flow:
        """Where a table is created, a function could make rows older than they are."""
        if self.shape.time is None or not self.pipeline.bound[0].creates:
            return made
        *earlier, step = made.steps
        rows = ExpectedRows(self.site, self.shape.name, self.shape.schema, self.shape.time)
        return replace(made, steps=(*earlier, Forward(step, rows)))

    def _checked(self, made: Flow, current: CompiledRows, query: QueryCompiler) -> CompiledRows:
        mark = current.mark if self.shape.time else None
        if mark is not None and not mark.is_on(made.frame(query.spark)):
            raise self.site.error(
                DefinitionError,
                f"computes the event time {self.shape.name}.{mark.field} anew",
                hint="hand the column on as it is; give a computed time a name of its own",
            )
        return CompiledRows(made, mark)

    def describe(self) -> dict[str, Any]:
        return {
            "code": transform_digest(self.pipeline.bound[0]),
            **resources_of(self.pipeline),
            "to": table_of(self.shape),
        }


@dataclass(frozen=True, slots=True)
class _AllFields(Phases):
    """A phase that keeps what is there, whether anybody reads it or not."""

    before: Fields

    def live(self, phase: Phase, done: int) -> dict[str, frozenset[str]]:
        return dict(self.needed[phase.index] if done > phase.begin else self.before)


class Alone(Pipeline):
    """One transform as an `Executor` takes it: all fields that are there stay there."""

    def __init__(self, bound: Bound, tables: dict[str, type[Table]], before: Shape, after: Shape) -> None:
        self.name = bound.name
        self.location = bound.transform.location
        self.bound, self.tables = [bound], tables
        self.stages = derive(self.bound)
        self.before, self.after = before, after

    @property
    def as_one(self) -> Phases:
        only = Phase(0, AsOne(), self.stages, 0, {self.before.name: None}, frozenset(), (self.after.name,))
        before, after = ({shape.name: frozenset(shape.fields)} for shape in (self.before, self.after))
        return _AllFields((only,), (after,), before)


def alone(site: Site, transform: Any, before: Shape) -> Alone:
    """A transform bound to rows, with what they are after it."""
    if not isinstance(transform, Transform):
        raise site.error(
            DefinitionError,
            f"is given {transform!r}",
            hint="decorate it with @transform or @arrow_transform; for other functions there is apply",
        )
    _check_tables(site, transform, before)
    (bound,), tables = bind([transform], [_standing(before)])
    if bound.writes_resources:
        raise site.error(DefinitionError, "writes a resource", hint="give the Resource a load function")
    return Alone(bound, tables, before, _after(bound, tables, before))


def _check_tables(site: Site, transform: Transform, before: Shape) -> None:
    def table(item: Any) -> str | None:
        if isinstance(item, Field):
            return item.table
        return item.__table_name__ if isinstance(item, TableMeta) else None

    read = {name for item in transform.reads if (name := table(item))} | transform.drops
    written = {name for item in transform.writes if (name := table(item))}
    others = sorted(read - {before.name})
    if others or len(written - {before.name}) > 1:
        raise site.error(
            DefinitionError,
            f"touches {', '.join(others or sorted(written))}",
            hint=f"here a transform works on {before.name} alone; a whole pipeline goes into stream.pipeline",
        )


def _standing(shape: Shape) -> type[Table]:
    """The table as it stands: a field that is there is given, and one that nobody wrote yet is derived."""
    table = TableMeta(shape.table.__name__, (Table,), {})
    table.__table_name__, table.__location__ = shape.name, shape.table.__location__
    table.__fields__ = {
        name: replace(field, derived=name not in shape.fields)
        for name, field in shape.table.__fields__.items()
    }
    return cast("type[Table]", table)


def _after(bound: Bound, tables: dict[str, type[Table]], before: Shape) -> Shape:
    if bound.creates:
        (name,) = bound.creates
        return before.into(tables[name], kept_time(before, tables[name]))
    written = {field.name for field in bound.writes}
    fields = tuple(n for n in before.table.__fields__ if n in before.fields or n in written)
    return replace(
        before,
        fields=fields,
        time=None if before.time in written else before.time,
        keys=() if written & set(before.keys) else before.keys,
    )
