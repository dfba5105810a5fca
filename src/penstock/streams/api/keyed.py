"""Rows by key: windows, aggregates, and functions that keep a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import DefinitionError, TypeMismatch, UnknownField
from penstock.sinks.base import Mode
from penstock.sources.state import State
from penstock.streams.api.shape import Named, Shape, checked_table, given
from penstock.streams.operators.aggregates import COUNT_ALL, Aggregated, Window
from penstock.streams.operators.arguments import Duration, Expression, checked, milliseconds
from penstock.streams.operators.sites import Site, caller, name_of
from penstock.streams.operators.stateful import Function, StatefullyMapped, encoded
from penstock.types.tables import Table

if TYPE_CHECKING:
    from penstock.streams.api.rows import Rows

Columns = Mapping[str, Expression]

_BOUNDS = ("start", "end")


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRows:
    """Rows by one or more fields. Aggregates without a window go on for ever, in mode ``update``."""

    rows: Rows
    keys: tuple[str, ...]

    def tumbling(self, size: Duration) -> WindowedRows:
        """Windows of ``size``, one after the other. They begin at whole multiples of it, from 1970 in UTC."""
        site = Site("tumbling", caller())
        return self._windowed(site, Window("tumbling", milliseconds(site, "size", size)))

    def sliding(self, size: Duration, every: Duration) -> WindowedRows:
        """Windows of ``size``, of which one begins ``every`` so often: a row is in several of them."""
        site = Site("sliding", caller())
        length, step = milliseconds(site, "size", size), milliseconds(site, "every", every)
        if step > length:
            raise site.error(
                DefinitionError,
                f"has windows of {size!r} every {every!r}",
                hint="rows between two windows would be in none: every is at most size",
            )
        return self._windowed(site, Window("sliding", length, step))

    def session(self, gap: Duration) -> WindowedRows:
        """Windows that go on as long as rows of the key come less than ``gap`` apart."""
        site = Site("session", caller())
        return self._windowed(site, Window("session", milliseconds(site, "gap", gap)))

    def count(self, *, to: type[Table]) -> Rows:
        """How many rows each key has had: the one field of ``to`` that is no key gets the number."""
        return _aggregated(Site("count", caller()), self, None, to, {}, None, None, count=True)

    def aggregate(self, columns: Columns | None = None, /, *, to: type[Table], **named: Expression) -> Rows:
        """Aggregates of all rows of each key so far: ``aggregate(to=Totals, total="sum(price)")``.

        ``to`` has the key fields under their names, and the others get an expression each. ``columns`` takes
        fields whose names are parameters here.
        """
        site = Site("aggregate", caller())
        return _aggregated(site, self, None, to, {**(columns or {}), **named}, None, None)

    def stateful_map(
        self, function: Function, *, to: type[Table], state: State = None, ttl: Duration | None = None
    ) -> Rows:
        """Rows of ``to`` that ``function(key, row, state) -> (state, rows)`` makes of each row.

        ``key`` is the value of the key field, a tuple where there are several. ``state`` is what the function
        returned for the key before, and the argument ``state`` at first; any value of the types of
        `penstock.sources.State`. Returning None for it forgets the key. With ``ttl``, it is forgotten when
        no row of the key has come for so long, by the clock. The rows of a key come one at a time, and those
        of one batch in no certain order. The result has no event time.
        """
        site = Site(f"stateful_map({name_of(function)})", caller())
        before = self.rows.shape
        before.needs_append(site)
        if not callable(function):
            raise site.error(DefinitionError, f"is given {function!r}", hint="give a function")
        after = before.into(checked_table(site, to))
        expiry = None if ttl is None else milliseconds(site, "ttl", ttl)
        if expiry is not None and before.waits:
            raise site.error(
                DefinitionError,
                "has a ttl, after an operator that brings rows when the watermark moves",
                hint="put it before the window or the left join, or into another stream",
            )
        shape = replace(
            after,
            modes=("append",) if before.stateful else ("append", "update"),
            stateful=True,
            expires=before.expires or expiry is not None,
        )
        first = encoded(site, "at first", state, DefinitionError)
        node = StatefullyMapped(site, (self.rows.node,), self.keys, function, first, expiry, shape)
        return replace(self.rows, node=node, shape=shape)

    def _windowed(self, site: Site, window: Window) -> WindowedRows:
        shape = self.rows.shape
        shape.needs_time(site)
        shape.needs_append(site)
        shape.needs_clock_free(site)
        return WindowedRows(self, window)


@dataclass(frozen=True, slots=True, eq=False)
class WindowedRows:
    """Rows by key and window.

    A window comes out once, when no row of it can come any more; with an output in mode ``update`` (not for
    sessions) whenever it has changed. The begin of the window goes to the field that ``start`` names, its end
    to ``end``; without them to ``window_start`` and ``window_end``, where the table has these.
    """

    keyed: KeyedRows
    window: Window

    def count(self, *, to: type[Table], start: Named | None = None, end: Named | None = None) -> Rows:
        """How many rows there are: the one field of ``to`` that is nothing else gets the number."""
        site = Site(f"{self.window.kind} count", caller())
        return _aggregated(site, self.keyed, self.window, to, {}, start, end, count=True)

    def aggregate(
        self,
        columns: Columns | None = None,
        /,
        *,
        to: type[Table],
        start: Named | None = None,
        end: Named | None = None,
        **named: Expression,
    ) -> Rows:
        """Aggregates of the rows: ``aggregate(to=Totals, start=Totals.minute, total="sum(price)")``."""
        site = Site(f"{self.window.kind} aggregate", caller())
        return _aggregated(site, self.keyed, self.window, to, {**(columns or {}), **named}, start, end)


def _aggregated(
    site: Site,
    keyed: KeyedRows,
    window: Window | None,
    to: type[Table],
    columns: Columns,
    start: Any,
    end: Any,
    *,
    count: bool = False,
) -> Rows:
    before, table = keyed.rows.shape, checked_table(site, to)
    _check_keys(site, before, table, keyed.keys)
    bounds = _bounds(site, table, (start, end), {*keyed.keys, *columns}) if window else {}
    rest = [name for name in given(table) if name not in keyed.keys and name not in bounds]
    values = {_count_field(site, table, rest): COUNT_ALL} if count else _values(site, table, columns, rest)
    shape = _shape(site, before, table, keyed.keys, window, bounds)
    node = Aggregated(
        site, (keyed.rows.node,), keyed.keys, values, shape, window, before.time or "", bounds or None
    )
    return replace(keyed.rows, node=node, shape=shape)


def _shape(
    site: Site,
    before: Shape,
    table: type[Table],
    keys: tuple[str, ...],
    window: Window | None,
    bounds: Mapping[str, Any],
) -> Shape:
    after = before.into(table)
    if window is None:
        before.needs_append(site)
        if before.stateful:
            raise site.error(
                DefinitionError,
                "without a window follows another operator with state",
                hint="use a window, or read the output of the first in another stream",
            )
        return replace(after, keys=keys, modes=("update", "complete"), stateful=True)
    modes: tuple[Mode, ...] = ("append", "update", "complete")
    if window.kind == "session" or before.stateful:
        modes = ("append",)
    marked = next(iter(bounds), None)
    identity = (*keys, marked) if marked else ()
    return replace(after, keys=identity, modes=modes, stateful=True, waits=True)


def _check_keys(site: Site, before: Shape, table: type[Table], keys: tuple[str, ...]) -> None:
    for key in keys:
        mine, theirs = before.table.__fields__[key], table.__fields__.get(key)
        if theirs is None or theirs.derived:
            raise site.error(
                UnknownField,
                f"has key {key}, which {table.__table_name__} does not have",
                hint=f"add {key} to {table.__name__}",
            )
        if mine.type != theirs.type:
            raise site.error(TypeMismatch, f"has key {mine!r}, which is {theirs!r} in the result")


def _bounds(site: Site, table: type[Table], wanted: tuple[Any, Any], taken: set[str]) -> dict[str, Any]:
    """The fields that get the begin and the end of the window, in this order."""
    shape, found = Shape(table, given(table)), {}
    for bound, field in zip(_BOUNDS, wanted, strict=True):
        usual = f"window_{bound}"
        if field is None and (usual in taken or usual not in shape.fields):
            continue
        name = shape.field(site, field if field is not None else usual)
        if name in taken or name in found:
            raise site.error(DefinitionError, f"has two values for {table.__table_name__}.{name}")
        kind = table.__fields__[name].type
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            raise site.error(TypeMismatch, f"puts the {bound} of the window into {table.__fields__[name]!r}")
        found[name] = bound
    return found


def _count_field(site: Site, table: type[Table], rest: list[str]) -> str:
    if len(rest) != 1 or table.__fields__[rest[0]].type != pa.int64():
        raise site.error(
            DefinitionError,
            f"finds {', '.join(rest) or 'no field'} in {table.__table_name__} for the number",
            hint="beside keys and window, the table has one int field; for more there is aggregate",
        )
    return rest[0]


def _values(site: Site, table: type[Table], columns: Columns, rest: list[str]) -> Columns:
    if unknown := [name for name in columns if name not in rest]:
        known = unknown[0] in table.__fields__
        raise site.error(
            DefinitionError if known else UnknownField,
            f"gives {unknown[0]}, which {'is a key' if known else f'{table.__table_name__} does not have'}",
        )
    if missing := [name for name in rest if name not in columns]:
        raise site.error(
            UnknownField,
            f"gives no {', '.join(missing)} for {table.__table_name__}",
            hint=f'say what it is: {missing[0]}="sum(…)"; for a window: start={table.__name__}.FIELD',
        )
    if not columns:
        raise site.error(DefinitionError, "has nothing to compute", hint="for distinct keys: deduplicate")
    return {name: checked(site, name, each) for name, each in columns.items()}
