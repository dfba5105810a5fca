"""Operators that look at one row, or one batch, at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.batch.pipeline.fingerprint.digests import code_digest
from penstock.errors import DefinitionError
from penstock.spark.flow import Flow, Step
from penstock.streams.api.shape import Shape
from penstock.streams.log.schemas import END_OF_TIME, SHIFT, WATERMARK
from penstock.streams.operators.analysis import analysed, fitted
from penstock.streams.operators.arguments import Expression, column, described, interval
from penstock.streams.operators.query import CompiledRows, EventTimeMark, Operator, QueryCompiler
from penstock.streams.operators.steps import (
    ExpectedRows,
    FilterRows,
    FlatMapRows,
    Forward,
    MapBatches,
    MapRows,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Way = Literal["map", "map_batches", "flat_map"]
_DELAY = "spark.watermarkDelayMs"
"""By which metadata Spark knows the column of the event time, and how late rows may come."""
_ORDINARY = "penstock.eventTime"
"""The same where Spark need not know."""
_BEGIN = -62_135_596_800_000_000
"""The first microsecond of the year 1."""


@dataclass(frozen=True, slots=True, eq=False)
class FromSource(Operator):
    """The rows of a source, or those that came too late.

    What is late is a question of windows, and of what else waits for a watermark. An output that has none
    takes all rows, and Spark knows of no event time.
    """

    operator: ClassVar[str] = "source"

    source: str
    shape: Shape
    delay: int | None = None
    """How late rows may come, in milliseconds; None without event time."""
    late: bool = False

    def compile(self, query: QueryCompiler) -> CompiledRows:
        if not self.is_timed(query):
            frame = query.read(self.source, self.late or None).select(*self.shape.fields)
            # What people may do with the event time does not depend on what comes after.
            mark = EventTimeMark(self.shape.time, {_ORDINARY: True}) if self.shape.time is not None else None
        else:
            assert self.shape.time is not None
            frame = _told(query.read(self.source, False).select(*self.shape.fields), self.shape.time)
            mark = EventTimeMark(self.shape.time, {_DELAY: self.delay})
        return CompiledRows(
            Flow(self.shape.name, mark.put_on(frame) if mark else frame, self.shape.schema), mark
        )

    def is_timed(self, query: QueryCompiler) -> bool:
        """Whether rows that come too late are left out, and Spark gets a watermark."""
        if self.delay is None:
            return False
        # An output has one position in each source, so that it must not read it in two ways.
        return any(query.waits(node) for node in self._readers(query))

    def is_plain(self, query: QueryCompiler) -> bool:
        """Whether Spark knows no event time, and one operator alone takes these rows of the source.

        An output has one position in each source, so that it must not read it in two ways.
        """
        takers = sum(each.inputs.count(self) for each in query.nodes)
        return not self.is_timed(query) and self._readers(query) == [self] and takers == 1

    def _readers(self, query: QueryCompiler) -> list[Operator]:
        mine = self.source, self.late
        return [n for n in query.nodes if isinstance(n, FromSource) and (n.source, n.late) == mine]

    def describe(self) -> dict[str, Any]:
        return {"source": self.source, **({"late": True} if self.late else {})}


def _told(frame: DataFrame, time: str) -> DataFrame:
    """Take the watermark from the rows that tell it, and drop them.

    Spark would take it from the newest row that it sees, which is ahead of rows of other parts that are on
    their way. A column of its own has nothing but what it is told; the event time is marked as if it were
    that column.

    Spark pushes conditions that do not name the event time below the watermark: a filter of the user's, or
    the `is not null` of a join, would take the last row away before it moves the watermark, and the last
    windows would stay open for ever. Nothing is pushed through a condition that is not deterministic.
    """
    from pyspark.sql import functions as F

    at = F.col(f"`{time}`")
    told = F.timestamp_micros(F.unix_micros(at) - F.lit(SHIFT))
    nothing = F.timestamp_micros(F.lit(_BEGIN))
    marked = frame.withColumn(WATERMARK, F.when(at >= F.lit(END_OF_TIME), told).otherwise(nothing))
    # Spark drops what is not after its watermark, and a row at exactly the watermark is on time.
    marked = marked.withWatermark(WATERMARK, interval(1))
    told_nothing = F.col(WATERMARK) == nothing
    return marked.where(told_nothing & (F.spark_partition_id() >= 0)).drop(WATERMARK)


@dataclass(frozen=True, slots=True, eq=False)
class Mapped(Operator):
    """Rows made by a Python function."""

    way: Way
    function: Callable[..., Any]
    shape: Shape

    def kind(self) -> str:
        return self.way

    def compile(self, query: QueryCompiler) -> CompiledRows:
        made = ExpectedRows(self.site, self.shape.name, self.shape.schema, self.shape.time)
        current = query.current(self.inputs[0])
        return current.then(self.shape.name, self._step(made), self.shape.schema, self.shape.time)

    def _step(self, made: ExpectedRows) -> Step:
        if self.way == "map":
            return MapRows(self.function, made)
        if self.way == "flat_map":
            return FlatMapRows(self.function, made)
        return Forward(MapBatches(self.function, made), made)

    def describe(self) -> dict[str, Any]:
        return {"code": code_digest(self.function), "to": table_of(self.shape)}


@dataclass(frozen=True, slots=True, eq=False)
class Filtered(Operator):
    """The rows for which a condition is true; or, not ``wanted``, all others."""

    operator: ClassVar[str] = "filter"

    condition: Expression | Callable[[dict[str, Any]], bool | None]
    by_row: bool
    shape: Shape
    wanted: bool = True

    def compile(self, query: QueryCompiler) -> CompiledRows:
        current = query.current(self.inputs[0])
        if self.by_row:
            step = FilterRows(self.condition, self.site, self.wanted)  # type: ignore[arg-type]
            return current.then(self.shape.name, step, current.flow.schema, self.shape.time)
        with analysed(self.site, own=False):
            frame = current.frame(query.spark).where(self._column())
        return CompiledRows(Flow(self.shape.name, frame, current.flow.schema), current.mark)

    def _column(self) -> Column:
        from pyspark.sql import functions as F

        condition = column(self.site, self.condition)  # type: ignore[arg-type]
        return condition if self.wanted else ~F.coalesce(condition, F.lit(False))

    def describe(self) -> dict[str, Any]:
        text = code_digest(self.condition) if self.by_row else described(self.condition)  # type: ignore[arg-type]
        return {"condition": text, **({} if self.wanted else {"wanted": False})}


@dataclass(frozen=True, slots=True, eq=False)
class Applied(Operator):
    """What a function makes of the rows as a DataFrame."""

    operator: ClassVar[str] = "apply"

    function: Callable[[DataFrame], DataFrame]
    shape: Shape

    def compile(self, query: QueryCompiler) -> CompiledRows:
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
class United(Operator):
    """The rows of all."""

    operator: ClassVar[str] = "union"

    shape: Shape

    def compile(self, query: QueryCompiler) -> CompiledRows:
        first, *others = (query.current(node) for node in self.inputs)
        frame = first.frame(query.spark)
        for other in others:
            frame = frame.unionByName(other.frame(query.spark))
        mark = first.mark if self.shape.time is not None else None
        # What Spark makes of the marks of several columns is its own affair.
        frame = mark.put_on(frame) if mark else frame
        return CompiledRows(Flow(self.shape.name, frame, self.shape.schema), mark)


def table_of(shape: Shape) -> dict[str, str]:
    """A table as a plan tells it."""
    return {"table": shape.name, "schema": shape.table.schema_id()}
