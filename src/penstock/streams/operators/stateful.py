"""Operators that keep a state for each key: a function of the user's, and one row of those that agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.batch.pipeline.fingerprint.digests import code_digest
from penstock.errors import BadState, TerminalError, TransformFailed
from penstock.sources.state import State, decode, encode
from penstock.spark.faults import carried
from penstock.spark.flow import Flow
from penstock.streams.api.shape import Shape
from penstock.streams.operators.query import CompiledRows, Operator, QueryCompiler
from penstock.streams.operators.sites import Site
from penstock.streams.operators.stateless import table_of
from penstock.streams.operators.steps import ExpectedRows, Row, called
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

Function = Callable[[Any, dict[str, Any], State], tuple[State, Iterable[Row]]]
"""``function(key, row, state) -> (state, rows)``"""

_NAME = "state"
_SCHEMA = "value string"


@dataclass(frozen=True, slots=True, eq=False)
class StatefullyMapped(Operator):
    """Rows that a function makes of a row and the state of its key."""

    operator: ClassVar[str] = "stateful_map"

    keys: tuple[str, ...]
    function: Function
    first: str
    """The state of a key that has none, encoded."""
    ttl: int | None
    shape: Shape

    def compile(self, query: QueryCompiler) -> CompiledRows:
        made = ExpectedRows(self.site, self.shape.name, self.shape.schema)
        processor = _processor(KeyedFunction(self.site, self.function, made, self.first), self.ttl)
        grouped = query.frame(self.inputs[0]).groupBy(*(f"`{key}`" for key in self.keys))
        frame = grouped.transformWithState(
            processor,
            spark_schema(self.shape.schema),
            outputMode=query.mode,
            timeMode="None" if self.ttl is None else "ProcessingTime",
        )
        return CompiledRows(Flow(self.shape.name, frame, self.shape.schema))

    def describe(self) -> dict[str, Any]:
        return {
            "keys": list(self.keys),
            "code": code_digest(self.function),
            "first": self.first,
            "ttl": None if self.ttl is None else self.ttl / 1000,
            "to": table_of(self.shape),
        }


def encoded(site: Site, whose: str, state: State, kind: type[TerminalError] = BadState) -> str:
    """The state as text; the error names the operator and ``whose`` state it is."""
    try:
        return encode("", state)
    except BadState as error:
        what = error.what.partition(": ")[2] or error.what
        raise site.error(kind, f"has a state {whose} that cannot be kept: {what}", hint=error.hint) from error


@dataclass(frozen=True, slots=True)
class KeyedFunction:
    """What happens to the rows of one key in one batch, apart from where its state is kept."""

    site: Site
    function: Function
    made: ExpectedRows
    first: str

    def handle(
        self, key: tuple[Any, ...], rows: Iterable[Any], text: str | None
    ) -> tuple[str | None, list[Row]]:
        """The state afterwards, None if it is to be forgotten, and the rows that were made."""
        shown = key[0] if len(key) == 1 else key
        state, found = decode("", self.first if text is None else text), []
        for row in rows:
            state, made = self._called(shown, row.asDict(recursive=True), state)
            found += made
        if found:
            # Spark's own complaint about a wrong type names neither field nor function.
            found = self.made.batch(found).to_pylist()
        return None if state is None else encoded(self.site, f"for key {shown!r}", state), found

    def _called(self, key: Any, row: dict[str, Any], state: State) -> tuple[State, list[Row]]:
        returned = called(self.site, self.function, key, row, state)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise self._wrong(type(returned).__name__)
        state, made = returned
        if isinstance(made, dict | str) or not isinstance(made, Iterable):
            raise self._wrong(f"a state and {type(made).__name__}")
        return state, called(self.site, list, made)

    def _wrong(self, what: str) -> TransformFailed:
        return self.site.error(
            TransformFailed, f"returned {what}", hint="return (state, rows), where rows is a list"
        )


def _processor(keeper: KeyedFunction, ttl: int | None) -> StatefulProcessor:
    """Spark's part of it. The class is made here, so that to define a stream Spark is not imported."""
    from pyspark.sql import Row as SparkRow
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Processor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._state = handle.getValueState(_NAME, _SCHEMA, ttl)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[SparkRow]:  # noqa: ARG002, N802, N803
            with carried(str(keeper.site)):
                before = self._state.get()
                after, made = keeper.handle(key, rows, before[0] if before else None)
                if after is not None:
                    self._state.update((after,))
                elif before:
                    self._state.clear()
            return iter([SparkRow(**row) for row in made])

        def close(self) -> None:
            pass

    return Processor()


@dataclass(frozen=True, slots=True, eq=False)
class Deduplicated(Operator):
    """The first row of all that agree in some fields: while they may still come late, or for ever."""

    operator: ClassVar[str] = "deduplicate"

    fields: tuple[str, ...]
    forever: bool
    shape: Shape

    @property
    def waits(self) -> bool:
        return not self.forever

    def compile(self, query: QueryCompiler) -> CompiledRows:
        current, fields = query.current(self.inputs[0]), list(self.fields)
        frame = current.frame(query.spark)
        first = frame.dropDuplicates(fields) if self.forever else frame.dropDuplicatesWithinWatermark(fields)
        return CompiledRows(Flow(self.shape.name, first, current.flow.schema), current.mark)

    def describe(self) -> dict[str, Any]:
        return {"fields": list(self.fields), "forever": self.forever}
