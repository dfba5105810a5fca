"""Outputs: rows on their way to a sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import DefinitionError, UnknownField
from penstock.sinks.base import Mode, Sink
from penstock.streams.api.pipelines import PipelineSink
from penstock.streams.api.shape import Shape
from penstock.streams.operators.query import Operator, QueryCompiler, ReadSource, describe
from penstock.streams.operators.sites import Site
from penstock.streams.operators.stateless import FromSource, table_of
from penstock.types.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Output:
    """Rows that go to a sink, by one query of their own.

    ``mode`` is also the query's output mode. ``keys`` are the fields that identify a row, in mode ``update``.
    """

    name: str
    node: Operator
    shape: Shape
    sink: Sink
    mode: Mode
    keys: tuple[str, ...]
    location: str

    @property
    def table(self) -> type[Table]:
        return self.shape.table

    @property
    def places(self) -> frozenset[str]:
        """The names under which sinks know it."""
        tables = self.sink.sinks if isinstance(self.sink, PipelineSink) else ()
        return frozenset([self.name, *(f"{self.name}.{table}" for table in tables)])

    @property
    def reads(self) -> frozenset[str]:
        """The sources whose rows it takes, as their readers are called: late rows are a source apart."""
        found = [each for each in self.node.walk() if isinstance(each, FromSource)]
        return frozenset(f"{each.source}.late" if each.late else each.source for each in found)

    def frame(self, spark: SparkSession, read: ReadSource) -> DataFrame:
        """The streaming DataFrame, with the fields of the table in their order.

        Raises `DefinitionError` for what Spark's analysis shows to be wrong.
        """
        from pyspark.sql import functions as F

        frame = QueryCompiler(spark, read, self.mode, self.node).frame(self.node)
        # The mark of the event time would be written into files.
        return frame.select(*(F.col(f"`{name}`").alias(name, metadata={}) for name in self.shape.fields))

    def describe(self) -> dict[str, Any]:
        return {
            "table": table_of(self.shape),
            "mode": self.mode,
            "keys": list(self.keys),
            "sink": self.sink.describe(),
            "exactly_once": self.sink.exactly_once,
            "operators": describe(self.node),
        }


def output(
    site: Site,
    name: str,
    node: Operator,
    shape: Shape,
    sink: Sink,
    mode: Mode | None,
    keys: Iterable[Any] | None,
) -> Output:
    """An output whose mode and keys fit the rows and the sink."""
    missing = [field for field in shape.table.__fields__ if field not in shape.fields]
    # What a pipeline needs of its input, it knows itself.
    if missing and not isinstance(sink, PipelineSink):
        raise site.error(
            UnknownField,
            f"takes rows of {shape.name}, but nothing writes {', '.join(missing)}",
            hint="add the transform that writes it, or map to a table without the field",
        )
    chosen = _mode(site, shape, sink, mode)
    return Output(name, node, shape, sink, chosen, _keys(site, shape, chosen, keys), site.location)


def _mode(site: Site, shape: Shape, sink: Sink, mode: Mode | None) -> Mode:
    if not isinstance(sink, Sink):
        raise site.error(DefinitionError, f"is given {sink!r} for a sink")
    chosen = mode or shape.modes[0]
    if chosen not in shape.modes:
        raise site.error(
            DefinitionError,
            f"cannot have mode {chosen!r} for these rows",
            hint=f"they can come in mode {' or '.join(shape.modes)}",
        )
    if chosen not in sink.modes:
        both = [each for each in shape.modes if each in sink.modes]
        raise site.error(
            DefinitionError,
            f"has mode {chosen!r}, which {type(sink).__name__} cannot take",
            hint=f"mode={both[0]!r} suits both"
            if both
            else f"the sink takes {', '.join(sorted(sink.modes))}, the rows come in {', '.join(shape.modes)}",
        )
    return chosen


def _keys(site: Site, shape: Shape, mode: Mode, keys: Iterable[Any] | None) -> tuple[str, ...]:
    if mode != "update":
        if keys is not None:
            raise site.error(
                DefinitionError, f"has keys in mode {mode!r}", hint="only rows that are replaced have keys"
            )
        return ()
    if keys is None and not shape.keys:
        raise site.error(
            DefinitionError,
            "has mode 'update', and it is not known which fields identify a row",
            hint="say keys=[Table.field, …]; a batch must have one row for each key",
        )
    return shape.keys if keys is None else shape.distinct(site, keys)
