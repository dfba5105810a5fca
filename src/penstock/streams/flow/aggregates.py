"""Aggregates by key: over windows of event time, or over all rows so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.streams.flow.analysis import analysed, fitted
from penstock.streams.flow.durations import interval
from penstock.streams.flow.expressions import Expression, column, described
from penstock.streams.flow.query import Current, Node, Query
from penstock.streams.flow.shape import Shape
from penstock.streams.flow.stateless import table_of

if TYPE_CHECKING:
    from pyspark.sql import Column

_WINDOW = "_penstock_window"


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows belong together in time. Lengths are in milliseconds; ``length`` of a session is its gap."""

    kind: Literal["tumbling", "sliding", "session"]
    length: int
    every: int | None = None

    def column(self, time: str) -> Column:
        from pyspark.sql import functions as F

        of = F.col(f"`{time}`")
        if self.kind == "session":
            return F.session_window(of, interval(self.length)).alias(_WINDOW)
        return F.window(of, interval(self.length), interval(self.every or self.length)).alias(_WINDOW)

    def describe(self) -> dict[str, Any]:
        lengths = {"gap" if self.kind == "session" else "size": self.length / 1000}
        return {"window": self.kind, **lengths, **({"every": self.every / 1000} if self.every else {})}


@dataclass(frozen=True, slots=True, eq=False)
class Aggregated(Node):
    """A row for each key, or for each key and window, with the values of aggregate expressions."""

    operator: ClassVar[str] = "aggregate"

    keys: tuple[str, ...]
    columns: Mapping[str, Expression]
    shape: Shape
    window: Window | None = None
    time: str = ""
    bounds: Mapping[str, Literal["start", "end"]] | None = None
    """Fields that get the begin or the end of the window."""

    def compile(self, query: Query) -> Current:
        from pyspark.sql import functions as F

        frame = query.frame(self.inputs[0])
        groups = [F.col(f"`{key}`") for key in self.keys]
        if self.window is not None:
            groups.append(self.window.column(self.time))
        with analysed(self.site, own=False):
            values = [column(self.site, each).alias(name) for name, each in self.columns.items()]
            made = frame.groupBy(*groups).agg(*values)
            bounds = [F.col(f"{_WINDOW}.{at}").alias(name) for name, at in (self.bounds or {}).items()]
            made = made.select(*(f"`{key}`" for key in self.keys), *bounds, *(f"`{n}`" for n in self.columns))
        return fitted(self.site, made, self.shape, None)

    def describe(self) -> dict[str, Any]:
        window = self.window.describe() if self.window else {}
        values = {name: described(each) for name, each in self.columns.items()}
        return {
            "keys": list(self.keys),
            **window,
            **({"bounds": dict(self.bounds)} if self.bounds else {}),
            "columns": values,
            "to": table_of(self.shape),
        }
