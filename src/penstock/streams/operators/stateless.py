"""Operators that look at one row, or one batch, at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.errors import DefinitionError
from penstock.pipeline.fingerprint import code_digest
from penstock.spark.flow import Flow, Step
from penstock.streams.flow.analysis import analysed, fitted
from penstock.streams.flow.durations import interval
from penstock.streams.flow.expressions import Expression, column, described
from penstock.streams.flow.query import Current, Mark, Node, Query
from penstock.streams.flow.shape import Shape
from penstock.streams.flow.steps import FilterRows, FlatMapRows, Forward, Made, MapBatches, MapRows
from penstock.streams.schemas import END_OF_TIME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Way = Literal["map", "map_batches", "flat_map"]


@dataclass(frozen=True, slots=True, eq=False)
class FromSource(Node):
    """The rows of a source: those on time, or those that came too late."""

    operator: ClassVar[str] = "source"

    source: str
    shape: Shape
    delay: int | None = None
    """How far Spark's watermark stays behind the newest row, in milliseconds; None without event time."""
    late: bool = False

    def compile(self, query: Query) -> Current:
        frame = query.read(self.source, self.late).select(*self.shape.fields)
        if self.shape.time is None or self.delay is None:
            return Current(Flow(self.shape.name, frame, self.shape.schema))
        frame = _without_end(frame.withWatermark(self.shape.time, interval(self.delay)), self.shape.time)
        return Current(Flow(self.shape.name, frame, self.shape.schema), Mark.of(frame, self.shape.time))

    def is_plain(self, query: Query) -> bool:
        """Whether it has no event time, and one operator alone takes these rows of the source.

        An output has one position in each source, so that it must not read it in two ways.
        """
        mine = self.source, self.late
        readers = [n for n in query.nodes if isinstance(n, FromSource) and (n.source, n.late) == mine]
        takers = sum(each.inputs.count(self) for each in query.nodes)
        return self.delay is None and readers == [self] and takers == 1

    def describe(self) -> dict[str, Any]:
        return {"source": self.source, **({"late": True} if self.late else {})}


def _without_end(frame: DataFrame, time: str) -> DataFrame:
    """Drop the row that ends the stream, once the watermark has seen it.

    Spark pushes conditions that do not name the event time below the watermark: a filter of the user's, or
    the `is not null` of a join, would take the last row away before it moves the watermark, and the last
    windows would stay open for ever. Nothing is pushed through a condition that is not deterministic.
    """
    from pyspark.sql import functions as F

    return frame.where((F.col(f"`{time}`") < F.lit(END_OF_TIME)) & (F.spark_partition_id() >= 0))


@dataclass(frozen=True, slots=True, eq=False)
class Mapped(Node):
    """Rows made by a Python function."""

    way: Way
    function: Callable[..., Any]
    shape: Shape

    def kind(self) -> str:
        return self.way

    def compile(self, query: Query) -> Current:
        made = Made(self.site, self.shape.name, self.shape.schema, self.shape.time)
        current = query.current(self.inputs[0])
        return current.then(self.shape.name, self._step(made), self.shape.schema, self.shape.time)

    def _step(self, made: Made) -> Step:
        if self.way == "map":
            return MapRows(self.function, made)
        if self.way == "flat_map":
            return FlatMapRows(self.function, made)
        return Forward(MapBatches(self.function, made), made)

    def describe(self) -> dict[str, Any]:
        return {"code": code_digest(self.function), "to": table_of(self.shape)}


@dataclass(frozen=True, slots=True, eq=False)
class Filtered(Node):
    """The rows for which a condition is true; or, not ``wanted``, all others."""

    operator: ClassVar[str] = "filter"

    condition: Expression | Callable[[dict[str, Any]], bool | None]
    by_row: bool
    shape: Shape
    wanted: bool = True

    def compile(self, query: Query) -> Current:
        current = query.current(self.inputs[0])
        if self.by_row:
            step = FilterRows(self.condition, self.site, self.wanted)  # type: ignore[arg-type]
            return current.then(self.shape.name, step, current.flow.schema, self.shape.time)
        with analysed(self.site, own=False):
            frame = current.frame(query.spark).where(self._column())
        return Current(Flow(self.shape.name, frame, current.flow.schema), current.mark)

    def _column(self) -> Column:
        from pyspark.sql import functions as F

        condition = column(self.site, self.condition)  # type: ignore[arg-type]
        return condition if self.wanted else ~F.coalesce(condition, F.lit(False))

    def describe(self) -> dict[str, Any]:
        text = code_digest(self.condition) if self.by_row else described(self.condition)  # type: ignore[arg-type]
        return {"condition": text, **({} if self.wanted else {"wanted": False})}


@dataclass(frozen=True, slots=True, eq=False)
class Applied(Node):
    """What a function makes of the rows as a DataFrame."""

    operator: ClassVar[str] = "apply"

    function: Callable[[DataFrame], DataFrame]
    shape: Shape

    def compile(self, query: Query) -> Current:
        from pyspark.sql import DataFrame

        current = query.current(self.inputs[0])
        with analysed(self.site, own=False):
            made = self.function(current.frame(query.spark))
        if not isinstance(made, DataFrame):
            raise self.site.error(DefinitionError, f"returned {type(made).__name__}, not a DataFrame")
        return fitted(self.site, made, self.shape, current.mark if self.shape.time else None)

    def describe(self) -> dict[str, Any]:
        return {"code": code_digest(self.function), "to": table_of(self.shape)}


@dataclass(frozen=True, slots=True, eq=False)
class United(Node):
    """The rows of all."""

    operator: ClassVar[str] = "union"

    shape: Shape

    def compile(self, query: Query) -> Current:
        first, *others = (query.current(node) for node in self.inputs)
        frame = first.frame(query.spark)
        for other in others:
            frame = frame.unionByName(other.frame(query.spark))
        mark = first.mark if self.shape.time is not None else None
        # What Spark makes of the marks of several columns is its own affair.
        frame = mark.put_on(frame) if mark else frame
        return Current(Flow(self.shape.name, frame, self.shape.schema), mark)


def table_of(shape: Shape) -> dict[str, str]:
    """A table as a plan tells it."""
    return {"table": shape.name, "schema": shape.table.schema_id()}
