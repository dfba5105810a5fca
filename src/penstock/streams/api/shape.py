"""What is known of rows before there are any."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import DefinitionError, TypeMismatch, UnknownField
from penstock.sinks.base import Mode
from penstock.streams.operators.sites import Site
from penstock.types.tables import Field, Table, TableMeta, unknown_field

if TYPE_CHECKING:
    import pyarrow as pa

Named: TypeAlias = "Field | str | Any"
"""A field, as ``Clicks.page`` or by its name. To a type checker, ``Clicks.page`` is what the column holds."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows of a table: which of its fields they have by now, and how they can come out of a query.

    ``time`` is the field of the event time. ``modes`` are those in which a query can bring them, the usual
    one first. ``keys`` are the fields that identify a row in mode ``update``, if they are known. ``stateful``
    says that an operator before keeps state, ``waits`` that one brings rows only when the watermark moves,
    and ``expires`` that state of one expires by the clock.
    """

    table: type[Table]
    fields: tuple[str, ...]
    time: str | None = None
    keys: tuple[str, ...] = ()
    modes: tuple[Mode, ...] = ("append", "update")
    stateful: bool = False
    waits: bool = False
    expires: bool = False

    @property
    def name(self) -> str:
        return self.table.__table_name__

    @property
    def schema(self) -> pa.Schema:
        return self.table.arrow_schema(self.fields)

    def into(self, table: type[Table], time: str | None = None) -> Shape:
        """The same rows made into those of another table, whose keys nobody knows."""
        return replace(self, table=table, fields=given(table), time=time, keys=())

    def field(self, site: Site, wanted: Any) -> str:
        """The name of a field that the rows have, given as ``Table.field`` or as text."""
        if isinstance(wanted, Field):
            if wanted.table != self.name:
                raise site.error(
                    DefinitionError, f"names {wanted}", hint=f"the rows are of table {self.name}"
                )
            wanted = wanted.name
        if not isinstance(wanted, str):
            raise site.error(DefinitionError, f"names {wanted!r}", hint="name a field: Table.field")
        if wanted not in self.table.__fields__:
            error = unknown_field(self.name, wanted, self.table.__fields__)
            raise site.error(UnknownField, f"names {wanted!r}: {error.what}", hint=error.hint)
        if wanted not in self.fields:
            raise site.error(
                UnknownField,
                f"names {self.name}.{wanted}, which nothing has written yet",
                hint="apply the transform that writes it first",
            )
        return wanted

    def distinct(self, site: Site, wanted: Iterable[Any]) -> tuple[str, ...]:
        """The names of one or more different fields."""
        names = tuple(self.field(site, each) for each in wanted)
        if not names or len(set(names)) != len(names):
            raise site.error(DefinitionError, f"names {names or 'no field'}", hint="name each field once")
        return names

    def needs_time(self, site: Site) -> str:
        """The event time, or why there is none."""
        if self.time is None:
            raise site.error(
                DefinitionError,
                "needs event time, and these rows have none",
                hint="assign_timestamps(field, lateness) right after source(…). Event time goes on through "
                "operators whose table has the same field, and ends at aggregates and stateful_map",
            )
        return self.time

    def needs_append(self, site: Site) -> None:
        """Whether the rows before are final, so that state can be kept of them."""
        if "append" not in self.modes:
            raise site.error(
                DefinitionError,
                "follows a running aggregate, whose rows are replaced again and again",
                hint="use a window before it, or read the output in another stream",
            )

    def needs_clock_free(self, site: Site) -> None:
        """Whether Spark may run batches without rows, which it would run for ever where state expires."""
        if self.expires:
            raise site.error(
                DefinitionError,
                "brings rows when the watermark moves, after a stateful_map with ttl",
                hint="put it before the stateful_map, or into another stream",
            )


def given(table: type[Table]) -> tuple[str, ...]:
    """The fields of a table whose rows somebody has just made."""
    return tuple(f.name for f in table.__fields__.values() if not f.derived)


def checked_table(site: Site, table: Any) -> type[Table]:
    if not isinstance(table, TableMeta) or not table.__fields__:
        raise site.error(DefinitionError, f"has to={table!r}", hint="name a Table class there")
    return table  # type: ignore[return-value]


def kept_time(before: Shape, table: type[Table]) -> str | None:
    """The event time of rows that are made of others: the field of the same name, if it is a time there."""
    if before.time is None:
        return None
    old, new = before.table.__fields__[before.time], table.__fields__.get(before.time)
    fits = new is not None and not new.derived and (new.type, new.nullable) == (old.type, False)
    return before.time if fits else None


def together(site: Site, shapes: Iterable[Shape]) -> Shape:
    """What is known of the rows of all, which are of one table."""
    return reduce(lambda one, other: _both(site, one, other), shapes)


def _both(site: Site, one: Shape, other: Shape) -> Shape:
    if one.table is not other.table:
        raise site.error(
            TypeMismatch,
            f"puts rows of {other.name} to rows of {one.name}",
            hint="map one to the other's table",
        )
    if one.fields != other.fields:
        missing = sorted(set(one.fields) ^ set(other.fields))
        raise site.error(
            UnknownField, f"finds {', '.join(missing)} on one side only", hint="transform both sides alike"
        )
    modes = tuple(mode for mode in one.modes if mode in other.modes)
    if not modes:
        raise site.error(
            DefinitionError,
            f"puts rows that come in mode {one.modes[0]} to rows that come in mode {other.modes[0]}",
            hint="give each an output of its own",
        )
    return replace(
        one,
        time=one.time if one.time == other.time else None,
        keys=(),
        modes=modes,
        stateful=one.stateful or other.stateful,
        waits=one.waits or other.waits,
        expires=one.expires or other.expires,
    )
