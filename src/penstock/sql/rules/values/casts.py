"""Casts: from every type to every other as PostgreSQL does it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.dialect.spark import intervals
from penstock.dialect.spark.core import Context, Typed, once, refuse, rule, text
from penstock.dialect.spark.literals import constant
from penstock.dialect.spark.texts import json_text, plain, to_text
from penstock.dialect.spark.types import (
    ANY,
    BOOL,
    BYTEA,
    DATE,
    DAYTIME,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    JSON,
    JSONB,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    UUID,
    Type,
    array,
    common,
    decimal,
    numeric,
)  # fmt: skip

_TYPES = {
    "BOOLEAN": BOOL, "SMALLINT": INT2, "INT": INT4, "BIGINT": INT8, "FLOAT": FLOAT4, "DOUBLE": FLOAT8,
    "TEXT": TEXT,
    "VARCHAR": TEXT, "NAME": TEXT, "CHAR": Type("bpchar"), "BPCHAR": TEXT, "VARBINARY": BYTEA,
    "BINARY": BYTEA,
    "DATE": DATE, "TIMESTAMP": TIMESTAMP, "TIMESTAMPNTZ": TIMESTAMP, "TIMESTAMPTZ": TIMESTAMPTZ,
    "INTERVAL": DAYTIME,
    "JSON": JSON, "JSONB": JSONB, "UUID": UUID,
}  # fmt: skip


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
    kind = _TYPES.get(name)
    if kind is None:
        raise refuse(f"the type {node.sql('postgres').lower()} is not supported", node)
    return kind, sizes


@rule(exp.Cast)
def _cast(context: Context, node: exp.Expr) -> Typed:
    kind, sizes = of_cast(node.args["to"])
    inner: exp.Expr = node.this
    if kind.name == "array" and isinstance(inner, exp.Array) and not inner.expressions:
        return Typed(f"CAST(array() AS {kind.spark})", kind)
    if kind.floating and isinstance(inner, exp.Literal):
        # A number too large for a decimal is fine as a double.
        return Typed(f"CAST({text(str(inner.this))} AS {kind.spark})", kind)
    value = context.expr(inner)
    if kind == NUMERIC and not sizes:
        return to_numeric(value)
    return sized(cast(value, kind), node.args["to"], sizes)


def sized(value: Typed, to: exp.Expr, sizes: Sequence[int]) -> Typed:
    """The value cut to what varchar(n), char(n) and timestamp(n) hold."""
    if not sizes or value.type.name == "numeric":
        return value
    if value.type.name == "text":
        return Typed(f"left({value.sql}, {sizes[0]})", TEXT)
    if value.type.name == "bpchar":
        return Typed(f"rpad(left({value.sql}, {sizes[0]}), {sizes[0]}, ' ')", value.type)
    if value.type.name in ("timestamp", "timestamptz") and sizes[0] in (0, 3, 6):
        unit, half = {0: ("SECOND", "0.5"), 3: ("MILLISECOND", "0.0005"), 6: ("MICROSECOND", "0")}[sizes[0]]
        if sizes[0] == 6:
            return value
        cut = f"date_trunc('{unit}', {value.sql} + INTERVAL '{half}' SECOND)"
        return Typed(f"CAST({cut} AS {value.type.spark})", value.type)
    raise refuse(f"the type {to.sql('postgres').lower()} is not supported", to)


def cast(value: Typed, kind: Type) -> Typed:  # noqa: C901 - one case for each type
    """``value::kind``."""
    source = value.type
    if source == UNKNOWN and isinstance(value.value, str):
        found = _literal(value.value, kind)
        if found is not None:
            return found
    if source.name == "unknown":
        return Typed(f"CAST({value.sql} AS {kind.spark})", kind)
    if source == kind:
        return value
    if source.name == "any":
        raise refuse(f"a cast to {kind.name} of a value whose type is not known here is not supported")
    if kind.textual:
        return Typed(to_text(value), kind)
    if kind.name == "numeric":
        return _to_decimal(value, kind)
    if kind.integer:
        return _to_integer(value, kind)
    if kind.floating and (source.number or source.textual):
        return Typed(f"CAST({plain(value)} AS {kind.spark})", kind)
    if kind.name == "bool":
        return _to_bool(value)
    if kind.moment and (source.moment or source.textual):
        return Typed(f"CAST({plain(value)} AS {kind.spark})", kind)
    if kind.name in ("json", "jsonb") and source.name in ("json", "jsonb", "text", "bpchar"):
        return Typed(json_text(value) if source.native else plain(value), Type(kind.name))
    if kind.name == "bytea" and source.textual:
        return Typed(_to_bytes(value), BYTEA)
    if kind.name == "uuid" and source.textual:
        return Typed(f"lower({plain(value)})", UUID)
    if kind.name == "array" and source.name == "array":
        return _to_array(value, kind)
    if kind.name == "interval" and source.name == "interval":
        return value
    raise refuse(f"a cast from {source.name} to {kind.name} is not supported")


def _literal(value: str, kind: Type) -> Typed | None:
    if kind.name == "numeric" and kind.precision and kind != NUMERIC:
        found = constant(value, kind)
        return Typed(f"CAST({found.sql} AS {kind.spark})", kind) if found else None
    if kind.name == "bpchar":
        return Typed(text(value), kind)
    if kind.name == "array":
        return _array_literal(value, kind)
    return constant(value, kind)


def _array_literal(value: str, kind: Type) -> Typed:
    element = kind.element or TEXT
    inner = value.strip()
    if not (inner.startswith("{") and inner.endswith("}")) or "{" in inner[1:]:
        raise refuse("this array literal is not supported", hint="Write ARRAY[…].")
    items = _items(inner[1:-1])
    parts = [
        "NULL" if item is None else cast(Typed(text(item), UNKNOWN, item), element).sql for item in items
    ]
    return Typed(f"CAST(array({', '.join(parts)}) AS {kind.spark})", kind, items)


def _items(body: str) -> list[str | None]:
    """The elements of an array literal: quoted ones as they are, NULL as None."""
    items: list[str | None] = []
    at, size = 0, len(body)
    while at < size:
        piece, is_quoted = [], False
        while at < size and body[at] != ",":
            if body[at] == '"':
                is_quoted, at = True, at + 1
                while at < size and body[at] != '"':
                    at += body[at] == "\\"
                    piece.append(body[at])
                    at += 1
            elif body[at] == "\\":
                at += 1
                piece.append(body[at])
            else:
                piece.append(body[at])
            at += 1
        item = "".join(piece) if is_quoted else "".join(piece).strip()
        items.append(None if item.upper() == "NULL" and not is_quoted else item)
        at += 1
    return items


def to_numeric(value: Typed) -> Typed:
    """``value::numeric``: as many digits as the value has."""
    if value.type.integer:
        kind = decimal(value.type)
        return Typed(f"CAST({value.sql} AS {kind.spark})", kind)
    return value if value.type.name == "numeric" else cast(value, NUMERIC)


def _to_decimal(value: Typed, kind: Type) -> Typed:
    if value.type.floating:
        # PostgreSQL takes the 15 digits (6 of a real) that are surely right.
        digits = 14 if value.type.name == "float8" else 5
        return Typed(f"CAST(format_string('%.{digits}e', {value.sql}) AS {kind.spark})", kind)
    if value.type.number or value.type.textual:
        return Typed(f"CAST({plain(value)} AS {kind.spark})", kind)
    raise refuse(f"a cast from {value.type.name} to numeric is not supported")


def _to_integer(value: Typed, kind: Type) -> Typed:
    if value.type.floating:
        return Typed(f"CAST(rint({value.sql}) AS {kind.spark})", kind)
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
            f"CASE WHEN startswith({v}, '\\\\x') THEN unhex(substring({v}, 3))"
            f" WHEN contains({v}, '\\\\') THEN CAST(raise_error('no escapes in bytea here') AS BINARY)"
            f" ELSE CAST({v} AS BINARY) END"
        ),
    )


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
        return cast(value, kind) if kind != NUMERIC or isinstance(value.value, str) else value
    if kind.textual and value.type.textual:
        return Typed(plain(value), TEXT)
    if kind.name == "interval":
        return Typed(intervals.sql(value), value.type)
    if kind.name in ("json", "jsonb", "record", "bool", "bytea", "uuid") or value.type.name == "any":
        return value
    if kind.name == "array":
        return Typed(f"CAST({value.sql} AS {kind.spark})", kind)
    return Typed(f"CAST({value.sql} AS {kind.spark})", kind) if kind.spark != value.type.spark else value


def unify(values: Sequence[Typed]) -> tuple[list[Typed], Type]:
    """Values that become one column, given their common type."""
    kind = common([value.type for value in values])
    if kind.name == "any" and any(value.type.name != "any" for value in values):
        names = {value.type.name for value in values}
        if not names & {"any"}:
            raise refuse(f"types {' and '.join(sorted(names))} cannot be matched", sqlstate="42804")
    return [coerce(value, kind) for value in values], kind
