"""Aggregates by key: over windows of event time, or over all rows so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from penstock.streams.api.shape import Shape
from penstock.streams.log.schemas import COUNT
from penstock.streams.operators.analysis import analysed, fitted
from penstock.streams.operators.arguments import Expression, column, described, interval
from penstock.streams.operators.query import CompiledRows, Operator, QueryCompiler
from penstock.streams.operators.stateless import FromSource, table_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COUNT_ALL = "count(*)"

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
class Aggregated(Operator):
    """A row for each key, or for each key and window, with the values of aggregate expressions."""

    operator: ClassVar[str] = "aggregate"

    keys: tuple[str, ...]
    columns: Mapping[str, Expression]
    shape: Shape
    window: Window | None = None
    time: str = ""
    bounds: Mapping[str, Literal["start", "end"]] | None = None
    """Fields that get the begin or the end of the window."""

    @property
    def waits(self) -> bool:
        return self.window is not None

    def compile(self, query: QueryCompiler) -> CompiledRows:
        from pyspark.sql import functions as F

        frame, columns = self._taken(query)
        groups = [F.col(f"`{key}`") for key in self.keys]
        if self.window is not None:
            groups.append(self.window.column(self.time))
        with analysed(self.site, own=False):
            values = [column(self.site, each).alias(name) for name, each in columns.items()]
            made = frame.groupBy(*groups).agg(*values)
            bounds = [F.col(f"{_WINDOW}.{at}").alias(name) for name, at in (self.bounds or {}).items()]
            made = made.select(*(f"`{key}`" for key in self.keys), *bounds, *(f"`{n}`" for n in self.columns))
        return fitted(self.site, made, self.shape, None)

    def _taken(self, query: QueryCompiler) -> tuple[DataFrame, Mapping[str, Expression]]:
        """What it aggregates, and how.

        Rows of a source that are only counted are counted while they are read, and the numbers added up:
        most of them need not get into the JVM.
        """
        [taken] = self.inputs
        if not self._only_counts:
            return query.frame(taken), self.columns
        if self._can_group and isinstance(taken, FromSource) and taken.is_plain(query):
            frame, number = query.read(taken.source, taken.late or None, self.keys), COUNT
        else:
            frame, number = query.frame(taken), "1L"
        # A sum either way, so that the state fits when an operator before it comes or goes.
        return frame, dict.fromkeys(self.columns, f"coalesce(sum({number}), 0L)")

    @property
    def _only_counts(self) -> bool:
        """Whether it counts all rows of a key so far, and does nothing else."""
        counts = all(isinstance(each, str) and each == COUNT_ALL for each in self.columns.values())
        return self.window is None and bool(self.columns) and counts

    @property
    def _can_group(self) -> bool:
        """Whether Arrow can group by the keys."""
        return not any(pa.types.is_nested(self.shape.schema.field(key).type) for key in self.keys)

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
