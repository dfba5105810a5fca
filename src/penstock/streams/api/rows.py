"""Rows: what people write a stream with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from penstock.batch.pipeline.transforms import Transform
from penstock.errors import DefinitionError
from penstock.streams.api.definition import Definition
from penstock.streams.api.joins import How, Lookup
from penstock.streams.api.keyed import KeyedRows
from penstock.streams.api.shape import Named, Shape, checked_table, kept_time, together
from penstock.streams.api.sources import IDLE_AFTER, Late, Timestamps
from penstock.streams.api.transforms import Transformed, alone
from penstock.streams.operators import joining
from penstock.streams.operators.arguments import Duration, Expression, is_expression, milliseconds
from penstock.streams.operators.query import Operator
from penstock.streams.operators.sites import Site, caller, name_of
from penstock.streams.operators.stateful import Deduplicated
from penstock.streams.operators.stateless import Applied, Filtered, FromSource, Mapped, United, Way
from penstock.types.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]
Condition: TypeAlias = "Expression | Callable[[Row], bool | None]"
"""An expression over columns, or a function of a row."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of a table on their way through a stream. A method gives new rows and leaves these as they are.

    Functions of rows and batches run in Spark's Python workers; several in a row share one task. Event time
    goes on where the next table has the field of the same name and type. A function may not make a row older
    than it was, since what is late is decided once, when rows come in.
    """

    definition: Definition
    node: Operator
    shape: Shape

    @property
    def table(self) -> type[Table]:
        return self.shape.table

    def __repr__(self) -> str:
        return f"<rows of {self.shape.name} in stream {self.definition.name}>"

    # one row after the other

    def map(self, function: Callable[[Row], Row], *, to: type[Table]) -> Rows:
        """A row of ``to`` for each row. Rows are dictionaries by field; a nullable field may be left out."""
        return self._mapped("map", function, to)

    def flat_map(self, function: Callable[[Row], Iterable[Row]], *, to: type[Table]) -> Rows:
        """Any number of rows of ``to`` for each row, as a list or a generator."""
        return self._mapped("flat_map", function, to)

    def map_batches(self, function: Callable[[pa.RecordBatch], pa.RecordBatch], *, to: type[Table]) -> Rows:
        """A batch of ``to`` for each Arrow batch, with any number of rows: the fast way to write a map."""
        return self._mapped("map_batches", function, to)

    def filter(self, condition: Condition) -> Rows:
        """The rows for which the condition is true; null counts as no.

        SQL text or a Column is computed by Spark itself, a function of a row in a Python worker. A function
        without parameters gives a Column. A row that replaces another and no longer passes does not take the
        other one back from the sink.
        """
        return self._filtered(Site(f"filter({_named(condition)})", caller()), condition, wanted=True)

    def split(self, condition: Condition) -> tuple[Rows, Rows]:
        """The rows for which the condition is true, and all others, also those for which it is null."""
        site = Site(f"split({_named(condition)})", caller())
        return self._filtered(site, condition, wanted=True), self._filtered(site, condition, wanted=False)

    def apply(self, function: Callable[[DataFrame], DataFrame], *, to: type[Table]) -> Rows:
        """What ``function`` makes of the streaming DataFrame: columns and rows, but no state.

        It is called once, when the query is planned. Aggregates and joins of streams belong to the operators
        for them, which know what the query must then look like.
        """
        site = Site(f"apply({name_of(function)})", caller())
        after = self.shape.into(checked_table(site, to), kept_time(self.shape, to))
        return self._next(Applied(site, (self.node,), _called(site, function), after), after)

    def transform(self, transform: Transform) -> Rows:
        """Rows after a ``@transform`` or ``@arrow_transform`` of the batch side, under the same rules.

        It touches this table alone, or makes another of it, and looks at one row at a time: a transform that
        aggregates needs the whole of its dataset, which `Stream.pipeline` gives it.
        """
        site = Site(f"transform({name_of(transform)})", caller())
        pipeline = alone(site, transform, self.shape)
        return self._next(Transformed(site, (self.node,), pipeline, pipeline.after), pipeline.after)

    # several streams

    def union(self, *others: Rows) -> Rows:
        """The rows of all, which are of one table. They have event time if all have."""
        site = Site("union", caller())
        for other in others:
            self._check_same_stream(site, other)
        after = together(site, [self.shape, *(other.shape for other in others)])
        return self._next(United(site, (self.node, *(other.node for other in others)), after), after)

    def join(
        self,
        other: Rows,
        *,
        on: Any,
        within: Duration,
        to: type[Table],
        how: How = "inner",
        **columns: Named,
    ) -> Rows:
        """Pairs of rows that agree in ``on`` and whose event times are at most ``within`` apart.

        ``on`` is a field that both sides have, a pair ``(Clicks.user, Views.viewer)``, or a list of such. A
        field of ``to`` comes from the side that has it; where both have, say which: ``at=Clicks.at``. With
        ``how="left"``, a row without partner comes out once none can come any more, with nulls. The event
        time of the result is that of the left side, if ``to`` has it.
        """
        site = Site("join", caller())
        self._check_same_stream(site, other)
        node = joining.joined(
            site, (self.node, other.node), (self.shape, other.shape), on, within, to, how, columns
        )
        return self._next(node, node.shape)

    def lookup(self, table: Lookup, *, on: Any, to: type[Table], how: How = "left") -> Rows:
        """Rows with fields of a small table that does not move, found by equal fields.

        ``table(spark)`` gives it as a DataFrame, once for each start of the query. Fields of ``to`` are taken
        by name. A row has as many results as the table has matches; without one, ``how="left"`` fills nulls.
        """
        site = Site(f"lookup({name_of(table)})", caller())
        node = joining.looked_up(site, self.node, self.shape, _called(site, table), on, to, how)
        return self._next(node, node.shape)

    # time

    def assign_timestamps(
        self,
        field: Named,
        lateness: Duration,
        *,
        late: Late = "drop",
        extract: Callable[[pa.RecordBatch], pa.Array] | None = None,
        idle_after: Duration | None = IDLE_AFTER,
    ) -> Rows:
        """Say which field is the event time, and by how much rows may be out of order.

        The watermark of the source is ``lateness`` behind what every part of it has come to. A row that is
        older comes too late for windows, joins and `deduplicate`: it is counted, and with ``late="keep"`` is
        had by `late`. Outputs without these take all rows. No row is late that is in order within its part. A
        part that was asked and had nothing for ``idle_after`` is not waited for until it brings rows again;
        None waits for it however long it takes.

        ``extract`` computes the field, which is then ``derived()``, from the fields that the source brings.
        Only for rows right from a source: lateness is decided when rows are taken in, so that each late row
        counts once, whatever the outputs do.
        """
        site = Site(f"assign_timestamps({field})", caller())
        name = self._of_source(site, "decided when rows are taken in, so that each late row counts once")
        stamps = self._timestamps(site, field, lateness, late, extract, idle_after)
        spec = self.definition.assign(site, name, stamps)
        after = replace(self.shape, fields=spec.fields, time=stamps.field)
        delay = milliseconds(site, "lateness", lateness, least=0) + 1
        return self._next(FromSource(site, (), name, after, delay), after)

    def late(self) -> Rows:
        """The rows of this source that come too late, without event time: nothing waits for them."""
        site = Site("late", caller())
        name = self._of_source(site, "known of the rows of a source as they are taken in")
        stamps = self.definition.sources[name].timestamps
        if stamps is None or stamps.late != "keep":
            raise site.error(
                DefinitionError,
                f"asks for the late rows of {name}, which are not kept",
                hint='assign_timestamps(…, late="keep"), and late() of what it returns',
            )
        after = replace(self.shape, time=None)
        return self._next(FromSource(site, (), name, after, late=True), after)

    # state

    def deduplicate(self, *fields: Named, forever: bool = False) -> Rows:
        """The first row of those that agree in ``fields``.

        A row is remembered as long as the lateness of its source lasts after it: a repetition that comes
        later passes. ``forever=True`` remembers all values and needs no event time, but its state never
        stops growing.
        """
        site = Site("deduplicate", caller())
        names = self.shape.distinct(site, fields)
        self.shape.needs_append(site)
        if not forever and self.shape.time is None:
            raise site.error(
                DefinitionError,
                "needs event time to know what it may forget, and these rows have none",
                hint="assign_timestamps right after source(…), or forever=True if there are few values",
            )
        return self._next(Deduplicated(site, (self.node,), names, forever, self.shape), self.shape)

    def key_by(self, *fields: Named) -> KeyedRows:
        """The rows by one or more fields, for windows, aggregates and functions with state."""
        site = Site("key_by", caller())
        return KeyedRows(self, self.shape.distinct(site, fields))

    def _next(self, node: Operator, shape: Shape) -> Rows:
        return Rows(self.definition, node, shape)

    def _mapped(self, way: Way, function: Callable[..., Any], to: type[Table]) -> Rows:
        site = Site(f"{way}({name_of(function)})", caller())
        after = self.shape.into(checked_table(site, to), kept_time(self.shape, to))
        return self._next(Mapped(site, (self.node,), way, _called(site, function), after), after)

    def _filtered(self, site: Site, condition: Condition, *, wanted: bool) -> Rows:
        by_row = not is_expression(condition)
        if by_row:
            _called(site, condition)
        return self._next(Filtered(site, (self.node,), condition, by_row, self.shape, wanted), self.shape)

    def _check_same_stream(self, site: Site, other: Any) -> None:
        if not isinstance(other, Rows):
            raise site.error(DefinitionError, f"is given {other!r}", hint="give rows of the same stream")
        if other.definition is not self.definition:
            raise site.error(
                DefinitionError,
                f"is given rows of stream {other.definition.name!r}",
                hint=f"use rows of sources of {self.definition.name!r}",
            )

    def _of_source(self, site: Site, why: str) -> str:
        if not isinstance(self.node, FromSource) or self.node.late:
            raise site.error(
                DefinitionError,
                "comes after another operator",
                hint=f"put it right after source(…): it is {why}",
            )
        return self.node.source

    def _timestamps(
        self, site: Site, field: Any, lateness: Duration, late: Any, extract: Any, idle_after: Duration | None
    ) -> Timestamps:
        table = self.shape.table
        name = Shape(table, tuple(table.__fields__)).field(site, field)
        known = table.__fields__[name]
        if not pa.types.is_timestamp(known.type) or known.type.tz is None or known.nullable:
            raise site.error(
                DefinitionError, f"names {known!r}", hint=f"the event time is declared {name}: datetime"
            )
        if known.derived != (extract is not None):
            raise site.error(
                DefinitionError,
                f"{'needs extract=…' if known.derived else 'has extract, but the source brings'} {known}",
                hint=f"a computed time is declared {name}: datetime = derived(), and has extract=function",
            )
        if late not in ("drop", "keep"):
            raise site.error(DefinitionError, f"has late={late!r}", hint='say "drop" or "keep"')
        if extract is not None:
            _called(site, extract)
        allowed = milliseconds(site, "lateness", lateness, least=0) / 1000
        idle = None if idle_after is None else milliseconds(site, "idle_after", idle_after, least=0) / 1000
        return Timestamps(name, allowed, late, extract, idle)


def _called(site: Site, function: Any) -> Any:
    if not callable(function):
        raise site.error(DefinitionError, f"is given {function!r}", hint="give a function")
    return function


def _named(condition: Any) -> str:
    return condition if isinstance(condition, str) else name_of(condition)
