"""Pipelines: templates of transforms over tables. They hold no data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from penstock.batch.pipeline.ordered import OrderBy, orders_of
from penstock.batch.pipeline.phase_planner import in_one_phase
from penstock.batch.pipeline.phases import Phases
from penstock.batch.pipeline.resources import Resource
from penstock.batch.pipeline.stages import Bound, Stage, bind, derive
from penstock.batch.pipeline.transforms import Transform
from penstock.core.names import RULE, is_name
from penstock.errors import DefinitionError, DuplicateName, TypeMismatch, UnknownField
from penstock.types.order import Order
from penstock.types.tables import Table, TableMeta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.batch.pipeline.check import Unchecked
    from penstock.batch.pipeline.dataset import Dataset

_named: WeakValueDictionary[str, Pipeline] = WeakValueDictionary()


class Pipeline:
    """Transforms from input tables to output tables, cut into stages when it is built.

    Every input is cut into partitions, except those that are small enough to be given whole to each.
    The order of the transforms says which of two conflicting ones comes first, and nothing else: what
    does not conflict runs together.

    Outputs named in ``order_by`` are published as sorted files: read one after the other, their rows are in
    that order. It has fields, or those of each output, as in ``{Positions: [Positions.symbol,
    Positions.notional.desc()]}``. The order is Spark's, so NULL is before and NaN after all other values.
    """

    order_by: Mapping[str, Order] = MappingProxyType({})
    """By which columns outputs are sorted."""

    def __init__(
        self,
        name: str,
        *,
        inputs: type[Table] | Iterable[type[Table]],
        outputs: type[Table] | Iterable[type[Table]],
        transforms: Iterable[Transform],
        order_by: OrderBy | None = None,
    ) -> None:
        caller = sys._getframe(1)  # noqa: SLF001
        self.name = name
        self.location = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        if not is_name(name):
            raise self.error(DefinitionError, "has a name that cannot stand in a path", hint=RULE)
        self.inputs = self._tables("inputs", inputs)
        self.outputs = self._tables("outputs", outputs)
        self.transforms: tuple[Transform, ...] = tuple(transforms)
        for item in self.transforms:
            if not isinstance(item, Transform):
                raise self.error(
                    DefinitionError, f"lists {item!r}", hint="decorate it with @transform or @arrow_transform"
                )
        self._check_names()
        self.bound, self.tables = bind(self.transforms, self.inputs)
        self._check_resources()
        self.stages: tuple[Stage, ...] = derive(self.bound)
        self._check_outputs()
        self.order_by = orders_of(self, order_by)
        self._claim_name()

    def __repr__(self) -> str:
        return f"<pipeline {self.name}: {len(self.transforms)} transforms in {len(self.stages)} stages>"

    def error(self, kind: type[DefinitionError], what: str, hint: str | None = None) -> DefinitionError:
        return kind(f"{self.location}: pipeline {self.name!r} {what}", hint=hint)

    @property
    def resources(self) -> dict[str, Resource]:
        """Every resource that a transform reads or writes, by name."""
        found = {r.name: r for b in self.bound for r in b.writes_resources | b.reads_resources}
        return dict(sorted(found.items()))

    @property
    def as_one(self) -> Phases:
        """The pipeline in one phase that has all rows, as plain Spark would run it."""
        return in_one_phase(self.bound, self.inputs, self.outputs, orders=self.order_by)

    def live(self, done: int) -> dict[str, frozenset[str]]:
        """Fields by table that are needed once ``done`` stages have run, where one claim has everything."""
        phases = self.as_one
        return phases.live(phases[0], done)

    def check(self, spark: SparkSession) -> list[Unchecked]:
        """Check every transform against Spark's own analysis of what it does, without any data.

        Returns those that can only be checked when they first run, each with the reason.
        """
        from penstock.batch.pipeline.check import check_pipeline
        from penstock.batch.pipeline.execute import resources_by_stage

        return check_pipeline(spark, self, resources_by_stage(self.stages, self.resources, {})).unchecked

    def run_on(self, dataset: Dataset, *, spark: SparkSession | None = None) -> Dataset:
        """Run all stages on a dataset, without this pipeline's own inputs, outputs and checkpoints."""
        from penstock.batch.pipeline.execute import run_on

        return run_on(self, dataset, spark)

    def _tables(self, argument: str, tables: Any) -> tuple[type[Table], ...]:
        many: Sequence[Any] = (tables,) if isinstance(tables, TableMeta) else tuple(tables)
        if not many or not all(isinstance(t, TableMeta) for t in many):
            raise self.error(
                DefinitionError, f"has {argument}={tables!r}", hint="name at least one Table class there"
            )
        names = [t.__table_name__ for t in many]
        for name in names:
            if names.count(name) > 1:
                raise self.error(DuplicateName, f"names table {name} twice in {argument}")
        return tuple(many)

    def _check_names(self) -> None:
        seen: dict[str, Transform] = {}
        for item in self.transforms:
            if item.name in seen:
                raise item.error(
                    DuplicateName,
                    f"has the name of the one at {seen[item.name].location}",
                    hint="give one of them name=…",
                )
            seen[item.name] = item

    def _check_resources(self) -> None:
        seen: dict[str, Resource] = {}
        for item in self.bound:
            for resource in item.reads_resources | item.writes_resources:
                if seen.setdefault(resource.name, resource) is not resource:
                    raise item.transform.error(
                        DuplicateName,
                        f"uses a resource {resource.name} that is not the one of an earlier transform",
                        hint="define each resource once, and import it where it is used",
                    )

    def _check_outputs(self) -> None:
        available: dict[str, set[str]] = {
            t.__table_name__: {f.name for f in t.__fields__.values() if not f.derived} for t in self.inputs
        }
        for item in self.bound:
            for field in item.writes:
                available.setdefault(field.table, set()).add(field.name)
        for table in self.outputs:
            missing = sorted(set(table.__fields__) - available.get(table.__table_name__, set()))
            if missing:
                raise self.error(
                    UnknownField,
                    f"has output {table.__table_name__}, but nothing writes {', '.join(missing)}",
                    hint="add the transform that writes it, or leave the field out of the table",
                )
            known = self.tables[table.__table_name__]
            for field in table.__fields__.values():
                made = known.__fields__[field.name]
                if (made.type, made.nullable) != (field.type, field.nullable):
                    raise self.error(
                        TypeMismatch, f"has output {field!r}, but it is {made!r} at {known.__location__}"
                    )

    def _claim_name(self) -> None:
        other = _named.get(self.name)
        if other is not None and other.location != self.location:
            raise self.error(
                DuplicateName,
                f"has the name of the one at {other.location}",
                hint="give one of them another name",
            )
        _named[self.name] = self


DatasetFactory = Callable[["Dataset", Any], "Dataset"]
"""``factory(dataset, range)``: gets the partition's rows, may add tables and resources."""

__all__ = ["Bound", "DatasetFactory", "Pipeline"]
