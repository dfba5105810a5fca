"""A value among many: long lists of IN, chains of OR and AND, elements of long arrays.

Spark plans ``x IN (…)`` of thousands of constants in a second, and looks each row up in a hash table. As a
chain of ORs the same takes it minutes. So whatever means a list is said as one IN, with one type for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.sql.rules.core import Context, Elements, Typed, refuse, text
from penstock.sql.rules.time import intervals
from penstock.sql.rules.types import ANY, BOOL, UNKNOWN, Type, common, decimal, numeric
from penstock.sql.rules.values.casts import cast, coerce, unify
from penstock.sql.rules.values.literals import decimal as decimal_literal
from penstock.sql.rules.values.operators import compare, quantifier, row
from penstock.sql.rules.values.texts import plain

MANY = 32
"""Shorter lists are said as they are written."""
HASHED = 10
"""More constants than these are a hash table to Spark, where -0 is not 0."""
_CHAIN = 1_000
"""More comparisons that cannot be one list would take Spark minutes."""
_SUFFIX = {"int2": "S", "int4": "", "int8": "L"}
_PLAIN = ("int2", "int4", "int8", "float4", "float8", "text", "date", "timestamp", "timestamptz", "uuid")
_COMPARED = (*_PLAIN, "bool", "bytea", "time")
"""Types whose values are equal where Spark says so, once both have the same type."""


def one_of(value: Typed, items: Sequence[Typed]) -> Typed | None:
    """Whether a value is one of many, by the rules of IN; None where no list of Spark's says that.

    As in PostgreSQL all are compared in one type, that of the value and all items.
    """
    kind = common([value.type, *(item.type for item in items)])
    if kind.name == "bpchar" and any(item.type.name == "text" for item in items):
        return None
    if kind.name == "numeric":
        return _one_number(_exact(value, kind), [_exact(item, kind) for item in items])
    if kind.name == "bpchar":
        return _listed(plain(coerce(value, kind)), [plain(coerce(item, kind)) for item in items])
    if kind.name == "interval":
        # A literal among them may have other parts than the rest.
        both, kind = unify([value, *items])
        sizes = [intervals.size(each) if kind.unit == "parts" else each.sql for each in both]
        return _listed(sizes[0], sizes[1:])
    if kind.name not in _COMPARED:
        return None
    if kind.floating:
        return _listed(_unsigned(value, kind), [_unsigned(item, kind) for item in items])
    return _listed(coerce(value, kind).sql, [spelled(item, kind) for item in items])


def spelled(item: Typed, kind: Type) -> str:
    """An item in the list's type: a bare literal where it can be one, which Spark reads the fastest."""
    if kind.integer and item.type.integer and isinstance(item.value, int):
        return _integer(item.value, kind)
    return marked(coerce(item, kind).sql)


def _unsigned(item: Typed, kind: Type) -> str:
    """A double without the sign of a zero: Spark would not find -0 in a list with 0, nor 0 in one with -0."""
    sql = spelled(item, kind)
    has_no_sign = item.type.integer or item.type.name == "numeric"
    return sql if has_no_sign else f"({sql} + CAST(0 AS {kind.spark}))"


def marked(sql: str) -> str:
    """An element of a list. Small letters tell a parameter there, which may be a bare literal later.

    Elsewhere it may not: a bare number in GROUP BY or ORDER BY is the place of a column.
    """
    return f"cast{sql[4:]}" if sql.startswith(("CAST(:p", "CAST(CAST(:p")) else sql


def _integer(value: int, kind: Type) -> str:
    bits = {"int2": 15, "int4": 31, "int8": 63}[kind.name]
    if not -(1 << bits) < value < 1 << bits:
        return f"CAST('{value}' AS {kind.spark})"
    return f"{value}{_SUFFIX[kind.name]}" if value >= 0 else f"(-{-value}{_SUFFIX[kind.name]})"


def _listed(value: str, items: Sequence[str]) -> Typed:
    return Typed(f"({value} IN ({', '.join(items)}))", BOOL)


def _exact(item: Typed, kind: Type) -> Typed:
    """A number with all its digits: those of a text are not known before it is read."""
    if item.type.name == "unknown" and isinstance(item.value, str):
        return decimal_literal(item.value)
    return item if item.type.number else coerce(item, kind)


def _one_number(value: Typed, items: Sequence[Typed]) -> Typed | None:
    """Numbers of all scales: those that fit into one decimal with the value are a list in that."""
    groups: dict[Type, list[Typed]] = {}
    for item in items:
        groups.setdefault(decimal(item.type) if item.type.number else item.type, []).append(item)
    together = _fitting(value, [kind for kind in groups if kind.number])
    parts: list[str] = []
    if together is not None:
        groups = {together: list(items)}
    for kind, members in groups.items():
        wide = together or (_fitting(value, [kind]) if kind.number else None)
        if wide is None:
            if len(members) > _CHAIN:
                raise refuse(
                    f"{len(members):,} numbers of so many digits cannot be compared at once",
                    sqlstate="54001",
                    hint="Cast both sides to one numeric(p, s), or join with VALUES.",
                )
            parts += [compare("=", value, item).sql for item in members]
            continue
        given = value if value.type.number else coerce(value, wide)
        parts.append(_listed(_as(given, wide), [_as(item, wide) for item in members]).sql)
    return Typed(f"({' OR '.join(parts)})", BOOL)


def _fitting(value: Typed, kinds: Sequence[Type]) -> Type | None:
    """The decimal that holds all of these and the value, if there is one."""
    known = [decimal(value.type)] if value.type.number else []
    all_ = [*known, *kinds]
    if not all_:
        return None
    scale = max(kind.scale for kind in all_)
    whole = max(kind.precision - kind.scale for kind in all_)
    return numeric(whole + scale, scale) if whole + scale <= 38 else None


def _as(value: Typed, kind: Type) -> str:
    if value.type.name == "numeric" and (value.type.precision, value.type.scale) == (
        kind.precision,
        kind.scale,
    ):
        return marked(value.sql)
    return marked(f"CAST({value.sql} AS {kind.spark})")


# Chains.


def chained(context: Context, node: exp.Expr, parts: Sequence[exp.Expr]) -> list[exp.Expr | str]:
    """The parts of a long OR (AND), with those that compare one thing with constants as lists.

    ``x = 1 OR x = 2 …`` is ``x IN (1, 2 …)``, ``x <> 1 AND x <> 2 …`` is NOT IN; NULLs do the same in both.
    """
    # Each part may be looked at twice, and what gives rows would give them twice.
    context = replace(context, rows=None)
    either = isinstance(node, exp.Or)
    wanted = exp.EQ if either else exp.NEQ
    groups: dict[object, list[tuple[int, Typed, Typed]]] = {}
    rows: dict[object, list[tuple[int, list[Typed], list[Typed]]]] = {}
    matched = either and _is_condition(node)
    for place, part in enumerate(parts):
        bare = _bared(part)
        if isinstance(bare, wanted) and (pair := _pair(context, bare)) is not None:
            groups.setdefault(_key(*pair), []).append((place, *pair))
        elif matched and isinstance(bare, exp.And):
            pairs = [_pair(context, each) if isinstance(each, exp.EQ) else None for each in bare.flatten()]
            found = [each for each in pairs if each is not None]
            if len(found) == len(pairs):
                line = (place, [each[0] for each in found], [each[1] for each in found])
                rows.setdefault(tuple(each[0].sql for each in found), []).append(line)
    out: list[exp.Expr | str | None] = list(parts)
    for key, members in groups.items():
        if key is None or len(members) <= MANY:
            continue
        said = one_of(members[0][1], [item for _, _, item in members])
        if said is not None:
            _replace(out, [place for place, _, _ in members], said.sql if either else f"(NOT {said.sql})")
    for lines in rows.values():
        if len(lines) > MANY and (sql := rows_in(lines[0][1], [items for _, _, items in lines])):
            _replace(out, [place for place, _, _ in lines], sql)
    left = [each for each in out if each is not None]
    if len(left) > _CHAIN:
        raise refuse(
            f"a condition of {len(left):,} parts joined by {'OR' if either else 'AND'} is not supported",
            node,
            sqlstate="54001",
            hint="Write x IN (…) or x = ANY (array), or join with VALUES.",
        )
    return left


def _replace(out: list[exp.Expr | str | None], places: Sequence[int], sql: str) -> None:
    for place in places:
        out[place] = None
    out[places[0]] = sql


def _key(value: Typed, item: Typed) -> object:
    """What may stand in one list: each pair of a chain is compared in a type of its own."""
    if "json" in value.type.name or "json" in item.type.name:
        return None
    _, kind = unify([value, item], compared=True)
    return value.sql, "numeric" if kind.name == "numeric" else kind


def _pair(context: Context, node: exp.Expr) -> tuple[Typed, Typed] | None:
    """What is compared, and the constant that it is compared with."""
    left, right = node.this, quantifier(node.args["expression"])
    if isinstance(right, exp.Any | exp.All):
        return None
    if constant(left):
        left, right = right, left
    if not constant(right) or constant(left) or row(left) is not None:
        return None
    if left.find(exp.And, exp.Or, exp.Query) is not None:
        # It is translated once more where it is in no list: with one inside of another, twice as often each.
        return None
    return context.expr(left), context.expr(right)


def constant(node: exp.Expr) -> bool:
    """Whether it is a literal, a parameter, or one of them with a sign or a cast."""
    while isinstance(node, exp.Cast | exp.Neg | exp.Paren):
        node = node.this
    return isinstance(node, exp.Literal | exp.Parameter | exp.Null | exp.Boolean)


def _bared(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _is_condition(node: exp.Expr) -> bool:
    """Whether it stands in the WHERE of a query so that a NULL does the same as false.

    That of FILTER is none: Spark has no joins in an aggregate.
    """
    around = node.parent
    while isinstance(around, exp.Paren | exp.And | exp.Or):
        around = around.parent
    return isinstance(around, exp.Where) and isinstance(around.parent, exp.Query)


# Rows.


def row_in(context: Context, node: exp.Expr, members: Sequence[exp.Expr]) -> str | None:
    """``(a, b) IN ((1, 2), …)`` of many constants, as a condition of WHERE; else None."""
    lines = [row(item) for item in node.expressions]
    if len(lines) <= MANY:
        return None
    known = [line for line in lines if line is not None and all(map(constant, line))]
    fits = len(known) == len(lines) and all(len(line) == len(members) for line in known)
    if fits and _is_condition(node):
        sql = rows_in(context.exprs(members), [context.exprs(line) for line in known])
        if sql is not None:
            return sql
    if len(lines) > _CHAIN:
        raise refuse(
            f"IN with {len(lines):,} rows is only supported for constants, as a condition of WHERE",
            node,
            sqlstate="54001",
            hint="Join with VALUES, or use NOT EXISTS.",
        )
    return None


def rows_in(values: Sequence[Typed], lines: Sequence[Sequence[Typed]]) -> str | None:
    """Whether a row is one of many: a join, which takes NULL for false."""
    columns: list[list[str]] = []
    given: list[str] = []
    for value, items in zip(values, zip(*lines, strict=True), strict=True):
        kind = common([value.type, *(item.type for item in items)])
        if kind.name == "numeric":
            number, exact = _exact(value, kind), [_exact(item, kind) for item in items]
            wide = _fitting(number, [decimal(item.type) for item in exact if item.type.number])
            if wide is None or not all(item.type.number for item in exact):
                return None
            given.append(_as(number if number.type.number else coerce(number, wide), wide))
            columns.append([_as(item, wide) for item in exact])
        elif kind.name in _COMPARED:
            given.append(coerce(value, kind).sql)
            columns.append([spelled(item, kind) for item in items])
        else:
            return None
    rows = ", ".join(f"({', '.join(line)})" for line in zip(*columns, strict=True))
    return f"(({', '.join(given)}) IN (SELECT * FROM VALUES {rows}))"


# Arrays.


def members(items: Sequence[Typed]) -> list[Typed]:
    """The elements of an array that is written down, in the type that all of them have."""
    kind = common([item.type for item in items])
    return [_exact(item, kind) for item in items] if kind.name == "numeric" else unify(items)[0]


def elements_of(items: Typed) -> list[Typed] | None:
    """The elements of a long array whose elements are known."""
    element = items.type.element or ANY
    if items.type.name != "array" or not isinstance(items.value, Elements | list):
        return None
    if len(items.value) <= MANY or element.name not in (*_PLAIN, "numeric"):
        return None
    if isinstance(items.value, Elements):
        return [_element(each, element) for each in items.value]
    if not all(isinstance(each, str | None) for each in items.value):
        return None
    return [
        Typed("NULL", element) if each is None else cast(Typed(text(each), UNKNOWN, each), element)
        for each in items.value
    ]


def _element(value: object, kind: Type) -> Typed:
    """One of a parameter's elements."""
    if value is None:
        return Typed(f"CAST(NULL AS {kind.spark})", kind)
    if kind.integer and isinstance(value, int):
        return Typed(_integer(value, kind), kind, value)
    if kind.name in ("text", "uuid"):
        return Typed(text(str(value)), kind)
    return Typed(f"CAST({text(str(value))} AS {kind.spark})", kind)
