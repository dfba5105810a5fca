"""Rows that came before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.spark.flow import Flow
from penstock.streams.flow.query import Current, Node, Query
from penstock.streams.flow.shape import Shape


@dataclass(frozen=True, slots=True, eq=False)
class Deduplicated(Node):
    """The first row of all that agree in some fields: while they may still come late, or for ever."""

    operator: ClassVar[str] = "deduplicate"

    fields: tuple[str, ...]
    forever: bool
    shape: Shape

    def compile(self, query: Query) -> Current:
        current, fields = query.current(self.inputs[0]), list(self.fields)
        frame = current.frame(query.spark)
        first = frame.dropDuplicates(fields) if self.forever else frame.dropDuplicatesWithinWatermark(fields)
        return Current(Flow(self.shape.name, first, current.flow.schema), current.mark)

    def describe(self) -> dict[str, Any]:
        return {"fields": list(self.fields), "forever": self.forever}
