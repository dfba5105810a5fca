"""Checks of joins: which fields must be equal, and where those of the result come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import DefinitionError, TypeMismatch, UnknownField
from penstock.streams.api.joins import How, Joined, LookedUp, Lookup, Origins, Pairs, Side
from penstock.streams.api.shape import Shape, checked_table, given, kept_time
from penstock.streams.operators.arguments import Duration, milliseconds
from penstock.streams.operators.query import Operator
from penstock.streams.operators.sites import Site
from penstock.types.tables import Field, Table

Sides = tuple[Shape, Shape]


def joined(
    site: Site,
    nodes: tuple[Operator, Operator],
    sides: Sides,
    on: Any,
    within: Duration,
    to: type[Table],
    how: How,
    columns: Mapping[str, Any],
) -> Joined:
    """The join of two streams, if their shapes allow it."""
    _check_how(site, how)
    times = (sides[0].needs_time(site), sides[1].needs_time(site))
    for side in sides:
        side.needs_append(site)
        if how == "left":
            side.needs_clock_free(site)
    pairs = _pairs(site, sides, on)
    origins = _origins(site, sides, checked_table(site, to), pairs, columns)
    if how == "left":
        _check_nullable(site, to, [name for name, (side, _) in origins.items() if side == "right"])
    left, right = sides
    shape = replace(
        left.into(to, _time(left, to, origins)),
        modes=("append",),
        stateful=True,
        waits=left.waits or right.waits or how == "left",
        expires=left.expires or right.expires,
    )
    span = milliseconds(site, "within", within, least=0)
    return Joined(site, nodes, pairs, span, times, how, origins, shape)


def looked_up(
    site: Site, node: Operator, before: Shape, table: Lookup, on: Any, to: type[Table], how: How
) -> LookedUp:
    """The join with a table that does not move."""
    _check_how(site, how)
    names = before.distinct(site, on if isinstance(on, list | tuple) else [on])
    after = before.into(checked_table(site, to), kept_time(before, to))
    if how == "left":
        _check_nullable(site, to, [name for name in after.fields if name not in before.fields])
    return LookedUp(site, (node,), table, names, how, after)


def _check_how(site: Site, how: Any) -> None:
    if how not in ("inner", "left"):
        raise site.error(DefinitionError, f"has how={how!r}", hint='say "inner" or "left"')


def _pairs(site: Site, sides: Sides, on: Any) -> Pairs:
    left, right = sides
    pairs = []
    for each in on if isinstance(on, list) else [on]:
        mine, theirs = each if isinstance(each, tuple) and len(each) == 2 else (each, _plain(each))
        pair = left.field(site, mine), right.field(site, theirs)
        one, other = left.table.__fields__[pair[0]], right.table.__fields__[pair[1]]
        if one.type != other.type:
            raise site.error(TypeMismatch, f"compares {one!r} with {other!r}")
        pairs.append(pair)
    if not pairs:
        raise site.error(DefinitionError, "has no field in on", hint="name what must be equal on both sides")
    return tuple(pairs)


def _plain(field: Any) -> Any:
    return field.name if isinstance(field, Field) else field


def _origins(site: Site, sides: Sides, to: type[Table], pairs: Pairs, columns: Mapping[str, Any]) -> Origins:
    if unknown := [name for name in columns if name not in given(to)]:
        raise site.error(UnknownField, f"gives {unknown[0]}, which {to.__table_name__} does not have")
    return {
        name: _told(site, sides, columns[name]) if name in columns else _found(site, sides, to, pairs, name)
        for name in given(to)
    }


def _told(site: Site, sides: Sides, field: Any) -> tuple[Side, str]:
    left, right = sides
    if not isinstance(field, Field):
        raise site.error(DefinitionError, f"names {field!r}", hint="name a field of one side: Table.field")
    if left.name == right.name:
        raise site.error(
            DefinitionError,
            f"names {field}, which both sides have",
            hint="map one side to a table of its own before the join",
        )
    side: Side = "left" if field.table == left.name else "right"
    return side, (left if side == "left" else right).field(site, field)


def _found(site: Site, sides: Sides, to: type[Table], pairs: Pairs, name: str) -> tuple[Side, str]:
    left, right = sides
    mine, theirs = name in left.fields, name in right.fields
    if (name, name) in pairs or (mine and not theirs):
        return "left", name
    if theirs and not mine:
        return "right", name
    if mine:
        classes = f"{left.table.__name__}.{name} or {right.table.__name__}.{name}"
        raise site.error(
            DefinitionError, f"finds {name} on both sides", hint=f"say which one is meant: {name}={classes}"
        )
    raise site.error(
        UnknownField,
        f"finds {to.__table_name__}.{name} on neither side",
        hint=f"say where it comes from: {name}={left.table.__name__}.FIELD",
    )


def _check_nullable(site: Site, to: type[Table], names: list[str]) -> None:
    for name in names:
        if not to.__fields__[name].nullable:
            raise site.error(
                TypeMismatch,
                f"leaves {to.__table_name__}.{name} null where there is no match",
                hint=f'declare {name} with `| None`, or use how="inner"',
            )


def _time(left: Shape, to: type[Table], origins: Origins) -> str | None:
    """The field of the result that is the left side's event time."""
    assert left.time is not None
    kind = left.table.__fields__[left.time].type
    for name, origin in origins.items():
        field = to.__fields__[name]
        if origin == ("left", left.time) and (field.type, field.nullable) == (kind, False):
            return name
    return None
