"""Joins: of two streams that are near in time, and with a table that does not move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from penstock.batch.pipeline.fingerprint.digests import code_digest
from penstock.errors import DefinitionError
from penstock.streams.api.shape import Shape
from penstock.streams.operators.analysis import analysed, fitted
from penstock.streams.operators.arguments import interval
from penstock.streams.operators.query import CompiledRows, EventTimeMark, Operator, QueryCompiler
from penstock.streams.operators.stateless import table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

How = Literal["inner", "left"]
Side = Literal["left", "right"]
Pairs: TypeAlias = "tuple[tuple[str, str], ...]"
"""Fields that must be equal, of the left and of the right side."""
Origins: TypeAlias = "Mapping[str, tuple[Side, str]]"
"""For each field of the result, the side and the field that it comes from."""
Lookup: TypeAlias = "Callable[[SparkSession], DataFrame]"


@dataclass(frozen=True, slots=True, eq=False)
class Joined(Operator):
    """Pairs of rows of two streams that agree in some fields and are at most ``within`` apart."""

    operator: ClassVar[str] = "join"

    pairs: Pairs
    within: int
    times: tuple[str, str]
    how: How
    origins: Origins
    shape: Shape

    @property
    def waits(self) -> bool:
        return True

    def compile(self, query: QueryCompiler) -> CompiledRows:
        from pyspark.sql import functions as F

        left, right = (query.current(node) for node in self.inputs)
        one, other = left.frame(query.spark).alias("left"), right.frame(query.spark).alias("right")
        condition = F.lit(True)
        for mine, theirs in self.pairs:
            condition &= _of("left", mine) == _of("right", theirs)
        span = F.expr(f"INTERVAL '{interval(self.within)}'")
        mine, theirs = _of("left", self.times[0]), _of("right", self.times[1])
        condition &= (theirs >= mine - span) & (theirs <= mine + span)
        with analysed(self.site):
            made = one.join(other, condition, self.how)
            made = made.select(*(_of(side, name).alias(f) for f, (side, name) in self.origins.items()))
        return fitted(self.site, made, self.shape, self._mark(left))

    def _mark(self, left: CompiledRows) -> EventTimeMark | None:
        """The left side's event time goes on under the name that it has in the result."""
        if self.shape.time is None or left.mark is None:
            return None
        return EventTimeMark(self.shape.time, left.mark.metadata)

    def describe(self) -> dict[str, Any]:
        return {
            "on": [list(pair) for pair in self.pairs],
            "within": self.within / 1000,
            "how": self.how,
            "columns": {name: f"{side}.{field}" for name, (side, field) in self.origins.items()},
            "to": table_of(self.shape),
        }


@dataclass(frozen=True, slots=True, eq=False)
class LookedUp(Operator):
    """Rows with fields of a table that does not move."""

    operator: ClassVar[str] = "lookup"

    table: Lookup
    on: tuple[str, ...]
    how: How
    shape: Shape

    def compile(self, query: QueryCompiler) -> CompiledRows:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        current = query.current(self.inputs[0])
        with analysed(self.site, own=False):
            found: Any = self.table(query.spark)
            if not isinstance(found, DataFrame) or found.isStreaming:
                raise self.site.error(
                    DefinitionError,
                    f"got {'a stream' if isinstance(found, DataFrame) else type(found).__name__}",
                    hint="the function returns a DataFrame that is not streaming; streams are joined by join",
                )
            made = current.frame(query.spark).join(F.broadcast(found), list(self.on), self.how)
            made = made.select(*(f"`{name}`" for name in self.shape.fields))
        return fitted(self.site, made, self.shape, current.mark if self.shape.time else None)

    def describe(self) -> dict[str, Any]:
        return {
            "code": code_digest(self.table),
            "on": list(self.on),
            "how": self.how,
            "to": table_of(self.shape),
        }


def _of(side: Side, field: str) -> Any:
    from pyspark.sql import functions as F

    return F.col(f"{side}.`{field}`")
