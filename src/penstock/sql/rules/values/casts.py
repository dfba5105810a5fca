"""Casts: from every type to every other as PostgreSQL does it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.parse.interval_input import restricted
from penstock.sql.rules.core import Context, Typed, once, refuse, rule, text
from penstock.sql.rules.json import text as jsontext
from penstock.sql.rules.time import clock, intervals, zones
from penstock.sql.rules.types import (
    ANY,
    BOOL,
    BPCHAR,
    BYTEA,
    DAYTIME,
    JSON,
    JSONB,
    NAMED,
    NUMERIC,
    ROUGH,
    TEXT,
    TIMESTAMPTZ,
    UNKNOWN,
    UUID,
    Type,
    array,
    common,
    decimal,
    numeric,
)
from penstock.sql.rules.values.constants import check_range
from penstock.sql.rules.values.literals import BLANKS, FLOATING, UUID_FORM, constant, floating, shortened
from penstock.sql.rules.values.literals import decimal as decimal_literal
from penstock.sql.rules.values.texts import holds_bpchar, json_text, plain, to_text


def of_cast(node: exp.Expr) -> tuple[Type, list[int]]:
    """The type that a cast names, and its modifiers."""
    if not isinstance(node, exp.DataType):
        raise refuse(f"the type {node.name.lower()} is not supported", node)
    name = node.this.value if hasattr(node.this, "value") else str(node.this)
    if name == "ARRAY":
        return array(of_cast(node.expressions[0])[0] if node.expressions else ANY), []
    sizes = [int(part.name) for part in node.expressions if part.name.lstrip("-").isdigit()]
    if name in ("DECIMAL", "NUMERIC"):
        return (numeric(sizes[0], sizes[1] if len(sizes) > 1 else 0) if sizes else NUMERIC), sizes
    kind = NAMED.get(name)
    if kind is None:
        raise refuse(f"the type {node.sql('postgres').lower()} is not supported", node)
    # A bare char is a char(1), and bpchar has no limit.
    return kind, sizes or ([1] if name == "CHAR" else [])


@rule(exp.Cast)
def _cast(context: Context, node: exp.Expr) -> Typed:
    kind, sizes = of_cast(node.args["to"])
    inner: exp.Expr = node.this
    if kind.name == "array" and isinstance(inner, exp.Array) and not inner.expressions:
        return Typed(f"CAST(array() AS {kind.spark})", kind)
    if kind.floating and isinstance(inner, exp.Literal):
        # A number too large for a decimal is fine as a double.
        return floating(str(inner.this), kind)
    value = context.expr(inner)
    check_range(value.value, kind, node)
    if kind.name == "interval":
        return _to_interval(value, node.args["to"], sizes)
    if kind == NUMERIC and not sizes:
        return to_numeric(value)
    if kind.name == "array":
        return _sized_array(cast(value, kind), node.args["to"])
    return sized(cast(value, kind), node.args["to"], sizes)


def _to_interval(value: Typed, to: exp.Expr, sizes: Sequence[int]) -> Typed:
    """``value::interval``, of which ``interval day to hour`` and ``interval(3)`` keep a part."""
    fields = to.args.get("kind")
    precision = sizes[0] if sizes else None
    made = cast(value, DAYTIME)
    if fields is None and precision is None:
        return made
    if value.type == UNKNOWN and isinstance(value.value, str):
        return intervals.literal(value.value, fields.name if fields is not None else "", precision)
    if not isinstance(made.value, intervals.Parts):
        raise refuse("an interval with fields or a precision is only supported as a constant", to)
    return intervals.constant(restricted(made.value, fields.name if fields is not None else "", precision))


def _sized_array(value: Typed, to: exp.Expr) -> Typed:
    """Each element of ``varchar(n)[]`` is cut."""
    inner = to.expressions[0] if to.expressions else None
    if inner is None or value.type.element is None:
        return value
    kind, sizes = of_cast(inner)
    if not sizes or kind.name == "numeric":
        return value
    cut = sized(Typed("x_s", value.type.element), inner, sizes)
    return Typed(f"transform({value.sql}, x_s -> {cut.sql})", array(cut.type))


def sized(value: Typed, to: exp.Expr, sizes: Sequence[int]) -> Typed:
    """The value cut to what varchar(n), char(n) and timestamp(n) hold."""
    if not sizes or value.type.name == "numeric":
        return value
    if value.type.name == "text":
        return Typed(f"left({value.sql}, {sizes[0]})", TEXT)
    if value.type.name == "bpchar":
        kind = replace(BPCHAR, precision=sizes[0])
        return Typed(f"rpad(left({value.sql}, {sizes[0]}), {sizes[0]}, ' ')", kind)
    if value.type.name == "time" and sizes[0] == 6:
        return value
    if value.type.name in ("timestamp", "timestamptz") and sizes[0] in (0, 3, 6):
        return value if sizes[0] == 6 else _rounded(value, sizes[0])
    raise refuse(f"the type {to.sql('postgres').lower()} is not supported", to)


def _rounded(value: Typed, digits: int) -> Typed:
    """PostgreSQL counts from the year 2000: halves go away from it, so those of earlier moments go back."""
    unit, later, earlier = (
        ("SECOND", "0.5", "0.499999") if digits == 0 else ("MILLISECOND", "0.0005", "0.000499")
    )
    zone = "+00:00" if value.type.name == "timestamptz" else ""
    start = f"{value.type.spark} '2000-01-01 00:00:00{zone}'"

    def body(v: str) -> str:
        half = f"IF({v} >= {start}, INTERVAL '{later}' SECOND, INTERVAL '{earlier}' SECOND)"
        return zones.truncated(Typed(f"({v} + {half})", value.type), unit)

    return Typed(once(value, body), value.type)


def cast(value: Typed, kind: Type) -> Typed:  # noqa: C901 - one case for each type
    """``value::kind``."""
    source = value.type
    if source == UNKNOWN and isinstance(value.value, str):
        found = _literal(value.value, kind)
        if found is not None:
            return found
    if source.name == "unknown":
        return Typed(f"CAST({value.sql} AS {kind.spark})", kind)
    if source == kind or source.name == kind.name == "bpchar":
        return value
    if source.name == "any":
        raise refuse(f"a cast to {kind.name} of a value whose type is not known here is not supported")
    if kind.textual:
        return Typed(to_text(value), kind)
    if kind.name == "numeric":
        return _to_decimal(value, kind)
    if kind.integer:
        return _to_integer(value, kind)
    if kind.floating and source.textual:
        return Typed(once(Typed(plain(value), TEXT), lambda v: _to_floating(v, kind)), kind)
    if kind.floating and source.number:
        sql = f"CAST({value.sql} AS {kind.spark})"
        # Spark leaves out a cast to a float below one to a double, as if it lost no digits of a whole number.
        return Typed(f"({sql} * 1F)" if kind.name == "float4" and source.integer else sql, kind)
    if kind.name == "bool":
        return _to_bool(value)
    if kind.moment and source.textual:
        return Typed(once(Typed(plain(value), TEXT), lambda v: _to_moment(v, kind)), kind)
    if kind.moment and source.moment:
        return _between_moments(value, kind)
    if kind.name in ("json", "jsonb") and source.name in ("json", "jsonb", "text", "bpchar"):
        return _to_json(value, kind)
    if kind.name == "time":
        return clock.cast(value)
    if kind.name == "bytea" and source.textual:
        return Typed(_to_bytes(value), BYTEA)
    if kind.name == "uuid" and source.textual:
        return Typed(_to_uuid(value), UUID)
    if kind.name == "array" and source.name == "array":
        return _to_array(value, kind)
    if kind.name == "interval" and source.name == "interval":
        return value
    raise refuse(f"a cast from {source.name} to {kind.name} is not supported")


def _between_moments(value: Typed, kind: Type) -> Typed:
    if kind.name != "timestamptz" or value.type.name == "timestamptz" or not zones.clocks_change():
        return Typed(f"CAST({value.sql} AS {kind.spark})", kind)
    local = value.sql if value.type.name == "timestamp" else f"CAST({value.sql} AS TIMESTAMP_NTZ)"
    return Typed(zones.moment_of(local), kind)


def _to_uuid(value: Typed) -> str:
    """In the one form that PostgreSQL writes, whatever hyphens and braces it was given with."""
    fault = "CAST(raise_error('invalid input syntax for type uuid') AS STRING)"
    bare = "lower(regexp_replace(x_u, '[{}-]', ''))"
    shown = f"regexp_replace({bare}, '^(.{{8}})(.{{4}})(.{{4}})(.{{4}})', '$1-$2-$3-$4-')"
    inner = f"IF(x_u IS NULL OR x_u RLIKE {text(UUID_FORM)}, {shown}, {fault})"
    return f"transform(array({value.sql}), x_u -> {inner})[0]"


def _to_json(value: Typed, kind: Type) -> Typed:
    """Json stays as it is written; jsonb is written in one way, whatever it is made of."""
    document = json_text(value)
    if kind.name == "jsonb":
        return Typed(jsontext.canonical(document), JSONB, jsontext.Raw(document))
    return Typed(document if value.type.name in ("json", "jsonb") else jsontext.checked(document), JSON)


def _literal(value: str, kind: Type) -> Typed | None:
    if kind.name == "numeric" and kind.precision and kind != NUMERIC:
        found = constant(value, kind)
        return Typed(f"CAST({found.sql} AS {kind.spark})", kind) if found else None
    if kind.name == "bpchar":
        return Typed(text(value), BPCHAR)
    if kind.name == "array":
        return _array_literal(value, kind)
    return constant(value, kind)


def _array_literal(value: str, kind: Type) -> Typed:
    element = kind.element or TEXT
    inner = value.strip(BLANKS)
    if inner.startswith("[") or (inner.startswith("{") and "{" in inner[1:]):
        raise refuse("this array literal is not supported", hint="Write ARRAY[…].")
    if len(inner) < 2 or inner[0] != "{" or inner[-1] != "}":
        raise _malformed(value)
    items = _items(inner[1:-1], value)
    made = [None if item is None else cast(Typed(text(item), UNKNOWN, item), element) for item in items]
    if element == NUMERIC and any(made):
        # As many digits as the elements have.
        kind = array(common([each.type for each in made if each is not None]))
    parts = ["NULL" if each is None else each.sql for each in made]
    return Typed(f"CAST(array({', '.join(parts)}) AS {kind.spark})", kind, items)


_ITEM = re.compile(
    rf'[{BLANKS}]*+(?:"((?:[^"\\]|\\.)*+)"[{BLANKS}]*+|((?:[^",{{}}\\]|\\.)++))(,|\Z)', re.DOTALL
)
"""An element in quotes or without, and the comma behind it unless it is the last."""


def _items(body: str, value: str) -> list[str | None]:
    """The elements of an array literal: quoted ones as they are, NULL as None."""
    items: list[str | None] = []
    at = 0 if body.strip(BLANKS) else None
    while at is not None:
        found = _ITEM.match(body, at)
        if found is None:
            raise _malformed(value)
        quoted, bare, comma = found.groups()
        if quoted is None:
            # A blank behind a backslash is a letter.
            cut = bare.rstrip(BLANKS)
            is_escaped = (len(cut) - len(cut.rstrip("\\"))) % 2
            bare = cut + bare[len(cut) : len(cut) + is_escaped]
        item = re.sub(r"\\(.)", r"\1", bare if quoted is None else quoted, flags=re.DOTALL)
        items.append(None if quoted is None and bare.upper() == "NULL" else item)
        at = found.end() if comma else None
    return items


def _malformed(value: str) -> SqlError:
    return SqlError(f'malformed array literal: "{shortened(value)}"', sqlstate="22P02")


def to_numeric(value: Typed) -> Typed:
    """``value::numeric``: as many digits as the value has."""
    if value.type.integer:
        kind = decimal(value.type)
        return Typed(f"CAST({value.sql} AS {kind.spark})", kind)
    return value if value.type.name == "numeric" else cast(value, NUMERIC)


def _to_decimal(value: Typed, kind: Type) -> Typed:
    if value.type == ROUGH:
        return Typed(f"CAST({value.sql} AS {kind.spark})", kind)
    if value.type.floating:
        # PostgreSQL takes the 15 digits (6 of a real) that are surely right.
        digits = "0" * (14 if value.type.name == "float8" else 5)
        # format_string() would round the shortest text of a double, which was itself rounded.
        shown = once(
            value, lambda v: f"IF({v} - {v} = 0, format_number({v}, '0.{digits}E0'), CAST({v} AS STRING))"
        )
        return Typed(f"CAST({shown} AS {kind.spark})", kind)
    if value.type.number or value.type.textual:
        return Typed(f"CAST({plain(value)} AS {kind.spark})", kind)
    raise refuse(f"a cast from {value.type.name} to numeric is not supported")


def _to_integer(value: Typed, kind: Type) -> Typed:
    if value.type.floating:
        # Doubles round to the even neighbour, numerics away from zero.
        word = "rint" if value.type.exact else "round"
        return Typed(f"CAST({word}({value.sql}) AS {kind.spark})", kind)
    if value.type.name == "numeric":
        return Typed(f"CAST(round({value.sql}, 0) AS {kind.spark})", kind)
    if value.type.integer or (value.type.name == "bool" and kind.name == "int4"):
        return Typed(f"CAST({value.sql} AS {kind.spark})", kind)
    if value.type.textual:
        return Typed(f"CAST({plain(value)} AS {kind.spark})", kind)
    raise refuse(f"a cast from {value.type.name} to {kind.name} is not supported")


def _to_bool(value: Typed) -> Typed:
    if value.type.name == "int4":
        return Typed(f"({value.sql} <> 0)", BOOL)
    if not value.type.textual:
        raise refuse(f"a cast from {value.type.name} to bool is not supported")
    body = once(
        Typed(f"lower(trim({plain(value)}))", TEXT),
        lambda v: (
            f"CASE WHEN {v} IN ('on', 'tr', 'tru', 'ye') THEN true"
            f" WHEN {v} IN ('of', 'off', 'fa', 'fal', 'fals') THEN false ELSE CAST({v} AS BOOLEAN) END"
        ),
    )
    return Typed(f"({body})", BOOL)


def _to_bytes(value: Typed) -> str:
    return once(
        value,
        lambda v: (
            f"CASE WHEN startswith({v}, '\\\\x') THEN {from_hex(f'substring({v}, 3)')}"
            f" WHEN contains({v}, '\\\\') THEN CAST(raise_error('no escapes in bytea here') AS BINARY)"
            f" ELSE CAST({v} AS BINARY) END"
        ),
    )


def _to_floating(v: str, kind: Type) -> str:
    """Java reads ``1d`` and ``0x1p3``, too, and takes what is too large for infinite."""
    fault = f"CAST(raise_error('invalid input syntax for type {kind.name}') AS {kind.spark})"
    range_ = f"CAST(raise_error('value is out of range for type {kind.name}') AS {kind.spark})"
    made = f"CAST({v} AS {kind.spark})"
    lost = f"({made} = 0 AND {v} RLIKE '^[^eE]*[1-9]') OR (abs({made}) = CAST('Infinity' AS {kind.spark}) AND {v} RLIKE '[0-9]')"  # noqa: E501
    return f"CASE WHEN NOT {v} RLIKE {text(FLOATING)} THEN {fault} WHEN {lost} THEN {range_} ELSE {made} END"


_DAY = r"^\s*[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_MINUTES = r"[ T]([01]?[0-9]|2[0-3]):[0-5][0-9]"
_SECONDS = r":[0-5][0-9]([.][0-9]{1,6})?"
_OFFSET = r"\s*(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)"


def _to_moment(v: str, kind: Type) -> str:
    """Spark reads less than a day for one (``2020-02``), passes over what follows it, and cuts digits."""
    form = rf"{_DAY}({_MINUTES}({_SECONDS})?({_OFFSET})?)?\s*$"
    fault = (
        f"CAST(raise_error('this is not a {kind.name} that is understood here: write 2024-12-31 23:59:59')"
        f" AS {kind.spark})"
    )
    if kind.name == "timestamptz":
        # Spark wants minutes of an offset, and behind minutes seconds before it.
        form = rf"{_DAY}({_MINUTES}({_SECONDS}({_OFFSET})?)?)?\s*$"
        hours = text(r"(:[0-9]{2}([.][0-9]+)?\s*[+-][0-9]{2})\s*$")
        made = f"CAST(regexp_replace({v}, {hours}, '$1:00') AS {kind.spark})"
        if zones.clocks_change():
            placed = text(rf":[0-9]{{2}}([.][0-9]+)?{_OFFSET}\s*$")
            made = f"IF({v} RLIKE {placed}, {made}, {zones.moment_of(f'CAST({v} AS TIMESTAMP_NTZ)')})"
    else:
        # PostgreSQL reads an offset here, and does nothing with it; only behind a clock is it one.
        offset = text(rf"(:[0-9]{{2}}([.][0-9]+)?){_OFFSET}\s*$")
        made = f"CAST(regexp_replace({v}, {offset}, '$1') AS {kind.spark})"
    return f"IF({v} IS NULL OR {v} RLIKE {text(form)}, {made}, {fault})"


def from_hex(sql: str) -> str:
    """Bytes of their digits. Spark's own gives NULL for others, and fills half a byte up."""
    fault = "CAST(raise_error('invalid hexadecimal data') AS BINARY)"
    return f"IF({sql} RLIKE '[^0-9a-fA-F]' OR length({sql}) % 2 = 1, {fault}, unhex({sql}))"


def _to_array(value: Typed, kind: Type) -> Typed:
    inner, outer = value.type.element or ANY, kind.element or ANY
    if inner.name in ("unknown", "any"):
        return Typed(f"CAST({value.sql} AS {kind.spark})", kind)
    return Typed(f"transform({value.sql}, x_e -> {cast(Typed('x_e', inner), outer).sql})", kind)


def coerce(value: Typed, kind: Type) -> Typed:
    """An operand given the type that PostgreSQL's rules find for it; explicit casts are `cast`."""
    if kind.name in ("any", "unknown") or value.type == kind:
        return value
    if value.type.name == "unknown":
        return _beside(value, kind)
    if kind.textual and value.type.textual:
        return Typed(value.sql if kind.name == "bpchar" else plain(value), kind)
    if kind.name == "interval":
        return intervals.converted(value, kind.unit) if value.type.name == "interval" else value
    if kind.name in ("json", "jsonb", "record", "bool", "bytea", "uuid") or value.type.name == "any":
        return value
    if kind.name == "array":
        if kind.element == TIMESTAMPTZ and value.type.element not in (None, ANY, UNKNOWN, TIMESTAMPTZ):
            return _to_array(value, kind)
        sql = value.sql if holds_bpchar(kind) else plain(value)
        return Typed(f"CAST({sql} AS {kind.spark})", kind)
    if kind.moment and value.type.moment:
        return _between_moments(value, kind)
    return Typed(f"CAST({value.sql} AS {kind.spark})", kind) if kind.spark != value.type.spark else value


def _beside(value: Typed, kind: Type) -> Typed:
    """A literal or NULL beside a value of type ``kind``: of a numeric(p, s) it takes the name alone.

    All its digits count. Only a cast that is written rounds to a scale.
    """
    if isinstance(value.value, str):
        if kind.name == "numeric":
            return decimal_literal(value.value)
        if kind.name == "array" and kind.element is not None and kind.element.name == "numeric":
            return cast(value, array(NUMERIC))
        return cast(value, kind)
    return cast(value, kind) if kind != NUMERIC else value


def matched(types: Sequence[Type], *, compared: bool = False) -> Type:
    """The type that all have; an error if there is none, by the code of an operator if they are compared."""
    kind = common(types)
    if compared and kind.name == "bpchar" and any(each.name == "text" for each in types):
        # There is no operator for the two; that of texts is preferred.
        return TEXT
    if kind.name == "any" and not any(each.name == "any" for each in types):
        names = " and ".join(sorted({each.name for each in types}))
        if compared:
            raise refuse(f"types {names} cannot be compared", sqlstate="42883")
        raise refuse(f"types {names} cannot be matched", sqlstate="42804")
    return kind


def unify(values: Sequence[Typed], *, compared: bool = False) -> tuple[list[Typed], Type]:
    """Values that become one column, or that are compared, given their common type."""
    kind = matched([value.type for value in values], compared=compared)
    given = [coerce(value, kind) for value in values]
    if kind.name == "interval" and any(value.type != kind for value in given):
        # A literal among them may have other parts than the rest.
        kind = common([value.type for value in given])
        given = [intervals.converted(value, kind.unit) for value in given]
    if kind.name in ("numeric", "array", "bpchar"):
        # So may a literal have more digits, or fewer blanks.
        kind = common([value.type for value in given])
        given = [coerce(value, kind) for value in given]
    return given, kind
