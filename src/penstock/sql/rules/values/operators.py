"""Operators on numbers, texts and truth values."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace

from sqlglot import exp

from penstock.sql.rules.core import Context, Typed, once, refuse, rule
from penstock.sql.rules.time import intervals, moments
from penstock.sql.rules.types import BOOL, FLOAT8, ROUGH, TEXT, Type, array, common, decimal, numeric
from penstock.sql.rules.values.casts import cast, coerce, unify
from penstock.sql.rules.values.constants import check_arithmetic
from penstock.sql.rules.values.decimals import divide, product
from penstock.sql.rules.values.literals import date
from penstock.sql.rules.values.texts import holds_bpchar, plain, to_text

_SIGNS: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "<=>", exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^",
}  # fmt: skip
_COLUMN = re.compile(r"(?:`[^`]+`\.?)+|CAST\((?:`[^`]+`\.?)+ AS DOUBLE\)")


@rule(exp.Paren)
def _paren(context: Context, node: exp.Expr) -> Typed:
    return context.expr(node.this)


@rule(exp.And, exp.Or)
def _logic(context: Context, node: exp.Expr) -> Typed:
    word = "AND" if isinstance(node, exp.And) else "OR"
    from penstock.sql.rules.values import lists

    found: list[exp.Expr | str] = list(node.flatten())
    if len(found) > lists.MANY:
        found = lists.chained(context, node, list(node.flatten()))
    parts = [part if isinstance(part, str) else truth(context.expr(part)) for part in found]
    return Typed(f"({f' {word} '.join(parts)})", BOOL)


@rule(exp.Not)
def _not(context: Context, node: exp.Expr) -> Typed:
    return Typed(f"(NOT {truth(context.expr(node.this))})", BOOL)


def truth(value: Typed) -> str:
    """A condition."""
    return coerce(value, BOOL).sql


@rule(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
def _arithmetic(context: Context, node: exp.Expr) -> Typed:
    left, right = context.expr(node.this), context.expr(node.args["expression"])
    return arithmetic(_SIGNS[type(node)], left, right, node)


def arithmetic(sign: str, left: Typed, right: Typed, node: exp.Expr | None = None) -> Typed:
    """``left sign right`` by PostgreSQL's rules."""
    found = moments.arithmetic(sign, left, right)
    if found is not None:
        return found
    if left.type.name == "unknown" and right.type.number:
        left = coerce(left, right.type)
    elif right.type.name == "unknown" and left.type.number:
        right = coerce(right, left.type)
    if not left.type.number or not right.type.number:
        known = "any" not in (left.type.name, right.type.name)
        what = f"operator {left.type.name} {sign} {right.type.name} is not supported"
        raise refuse(what, node, sqlstate="42883" if known else "0A000")
    kind = common([left.type, right.type])
    if kind.integer:
        check_arithmetic(sign, left, right, kind, node)
        if sign == "/":
            return Typed(f"CAST({left.sql} DIV {right.sql} AS {kind.spark})", kind)
        return Typed(f"({left.sql} {sign} {right.sql})", kind)
    if kind.floating:
        return Typed(f"({double(left, kind)} {sign} {double(right, kind)})", kind)
    return _decimals(sign, left, right)


def double(value: Typed, kind: Type = FLOAT8) -> str:
    return value.sql if value.type == kind else f"CAST({value.sql} AS {kind.spark})"


def _decimals(sign: str, left: Typed, right: Typed) -> Typed:
    a, b = decimal(left.type), decimal(right.type)
    if isinstance(left.value, int):
        a = numeric(len(str(abs(left.value))), 0)
    if isinstance(right.value, int):
        b = numeric(len(str(abs(right.value))), 0)
    exact = a.exact and b.exact
    if sign == "*":
        return product(left.sql, a, right.sql, b)
    if sign == "/":
        # A divisor of full precision gives the quotient all the digits that are left.
        return divide(left.sql, a, right.sql, b)
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale) + (sign != "%")
    if whole + scale > 38:
        # Spark would drop digits after the point; so it fails instead where the number is that large.
        wide = f"DECIMAL(37,{scale})"
        sql = f"(CAST({left.sql} AS {wide}) {sign} CAST({right.sql} AS {wide}))"
        return Typed(sql, numeric(38, scale, exact=exact))
    return Typed(f"({left.sql} {sign} {right.sql})", numeric(whole + scale, scale, exact=exact))


@rule(exp.Neg)
def _negative(context: Context, node: exp.Expr) -> Typed:
    value = context.expr(node.this)
    if isinstance(value.value, int) and value.type.integer:
        if value.value == 2**31 and value.type.name == "int8":
            return Typed("(-2147483648)", Type("int4"), -value.value)
        return Typed(f"(-{value.sql})", value.type, -value.value)
    if value.type.name == "interval":
        return intervals.negative(value)
    if value.type.name == "unknown":
        value = cast(value, FLOAT8)
    return Typed(f"(-{value.sql})", value.type)


@rule(exp.Pow)
def _power(context: Context, node: exp.Expr) -> Typed:
    return power(context.expr(node.this), context.expr(node.args["expression"]))


def power(base: Typed, exponent: Typed) -> Typed:
    """As doubles, also where PostgreSQL has numerics."""
    kinds = (base.type, exponent.type)
    rough = any(kind.name == "numeric" or kind == ROUGH for kind in kinds) and FLOAT8 not in kinds
    kind = ROUGH if rough else FLOAT8
    a, b = Typed(double(base), FLOAT8), Typed(double(exponent), FLOAT8)
    if isinstance(exponent.value, int) and exponent.value >= 0:
        return Typed(f"power({a.sql}, {b.sql})", kind)
    return Typed(once(a, lambda v: once(b, lambda w: _raised(v, w))), kind)


def _raised(v: str, w: str) -> str:
    """Spark has values where PostgreSQL has errors, and another one for powers of 1."""
    zero = "CAST(raise_error('zero raised to a negative power is undefined') AS DOUBLE)"
    root = "a negative number raised to a non-integer power yields a complex result"
    return (
        f"CASE WHEN {v} = 0 AND {w} < 0 THEN {zero} WHEN {v} = 1 AND {w} IS NOT NULL THEN 1D"
        f" WHEN {v} < 0 AND {w} <> rint({w})"
        f" THEN CAST(raise_error('{root}') AS DOUBLE) ELSE power({v}, {w}) END"
    )


@rule(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)
def _bits(context: Context, node: exp.Expr) -> Typed:
    left, right = context.expr(node.this), context.expr(node.args["expression"])
    kind = common([left.type, right.type])
    if not kind.integer:
        raise refuse("operators on bits are supported for integers", node)
    return Typed(f"({left.sql} {_SIGNS[type(node)]} {right.sql})", kind)


@rule(exp.BitwiseLeftShift, exp.BitwiseRightShift)
def _shift(context: Context, node: exp.Expr) -> Typed:
    left, right = context.expr(node.this), context.expr(node.args["expression"])
    if not left.type.integer or not right.type.integer:
        raise refuse("operators on bits are supported for integers", node)
    word = "shiftleft" if isinstance(node, exp.BitwiseLeftShift) else "shiftright"
    sql = f"{word}({left.sql}, CAST({right.sql} AS INT))"
    # Spark widens the small ones; what does not fit is an error here, and cut in PostgreSQL.
    return Typed(f"CAST({sql} AS SMALLINT)" if left.type.name == "int2" else sql, left.type)


@rule(exp.BitwiseNot)
def _inverted(context: Context, node: exp.Expr) -> Typed:
    value = context.expr(node.this)
    if not value.type.integer:
        raise refuse("operators on bits are supported for integers", node)
    return Typed(f"(~{value.sql})", value.type)


@rule(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
def _comparison(context: Context, node: exp.Expr) -> Typed:
    right = quantifier(node.args["expression"])
    sign = _SIGNS.get(type(node), "<=>")
    if isinstance(right, exp.Any | exp.All):
        from penstock.sql.rules.queries.membership import quantified

        return quantified(context, node.this, sign, right)
    rows = row(node.this), row(right)
    if rows[0] is not None and rows[1] is not None:
        found = _rows(context, sign, rows[0], rows[1], node)
    else:
        found = compare(sign, context.expr(node.this), context.expr(right), node)
    return Typed(f"(NOT {found.sql})", BOOL) if isinstance(node, exp.NullSafeNEQ) else found


def quantifier(node: exp.Expr) -> exp.Expr:
    """ANY, SOME and ALL of an array look like functions."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if name in ("all", "any", "some") and len(node.expressions) == 1:
        kind = exp.All if name == "all" else exp.Any
        return kind(this=node.expressions[0])
    return node


def row(node: exp.Expr) -> list[exp.Expr] | None:
    """The members of a row, if that is what is written."""
    if isinstance(node, exp.Tuple) or (isinstance(node, exp.Anonymous) and node.name.lower() == "row"):
        return list(node.expressions)
    return None


def _rows(context: Context, sign: str, left: list[exp.Expr], right: list[exp.Expr], node: exp.Expr) -> Typed:
    if len(left) != len(right):
        raise refuse("rows of different sizes cannot be compared", node, sqlstate="42601")
    pairs = list(zip(context.exprs(left), context.exprs(right), strict=True))
    if sign in ("=", "<=>"):
        parts = [compare(sign, a, b, node).sql for a, b in pairs]
        return Typed(f"({' AND '.join(parts)})", BOOL)
    if sign == "<>":
        return Typed(f"({' OR '.join(compare('<>', a, b, node).sql for a, b in pairs)})", BOOL)
    sql = compare(sign, *pairs[-1], node).sql
    for a, b in reversed(pairs[:-1]):
        sql = f"({compare(sign[0], a, b, node).sql} OR ({compare('=', a, b, node).sql} AND {sql}))"
    return Typed(sql, BOOL)


def compare(sign: str, left: Typed, right: Typed, node: exp.Expr | None = None) -> Typed:
    """``left sign right``, with both given the type in which PostgreSQL compares them."""
    left, right = _midnight(left, right), _midnight(right, left)
    if left.type.name in ("json", "jsonb") or right.type.name in ("json", "jsonb"):
        raise refuse("json cannot be compared", node, hint="Compare what ->> gives.")
    if left.type.name == "numeric" or right.type.name == "numeric":
        # A literal is compared with the digits that it has.
        left, right = exact(left, right.type), exact(right, left.type)
    both, kind = unify([left, right], compared=True)
    if kind.name == "interval" and kind.unit == "parts":
        return Typed(f"({intervals.size(both[0])} {sign} {intervals.size(both[1])})", BOOL)
    if kind.name == "bpchar" or holds_bpchar(kind):
        kind = TEXT if kind.name == "bpchar" else array(TEXT)
        both = [Typed(plain(value), kind) for value in both]
    if kind.name == "array" and kind.element is not None and kind.element.name in ("interval", "jsonb"):
        raise refuse(
            f"arrays of {kind.element.name} cannot be compared", node, hint="Compare their elements."
        )
    if kind.name == "array" and sign in ("<", "<=", ">", ">="):
        both = [Typed(ranked(value), kind) for value in both]
    if kind.name == "numeric":
        # Spark compares decimals of different scales exactly by itself, while they fit into 38 digits.
        both = [left if left.type.number else both[0], right if right.type.number else both[1]]
        if wide := _wide(both[0].type, both[1].type):
            return Typed(_compare_wide(sign, both[0], both[1], wide), BOOL)
    one = both[0].sql if sign in ("<", "<=") else unpruned(left, both[0].sql)
    other = both[1].sql if sign in (">", ">=") else unpruned(right, both[1].sql)
    return Typed(f"({one} {sign} {other})", BOOL)


def unpruned(value: Typed, sql: str) -> str:
    """A column by which no files are left out, if it may have NaN.

    Statistics in files do not know NaN, which is greater than all other numbers: Spark would not read files
    in which they show nothing greater than the limit of a comparison.
    """
    return f"nanvl({sql}, {sql})" if value.type.floating and _COLUMN.fullmatch(sql) else sql


def exact(value: Typed, kind: Type) -> Typed:
    """A literal beside a number of type ``kind`` as that number; else the value as it is."""
    is_literal = value.type.name == "unknown" and isinstance(value.value, str)
    return coerce(value, kind) if is_literal and kind.name == "numeric" else value


def ranked(value: Typed) -> str:
    """An array by which Spark sorts as PostgreSQL does: there a NULL is the largest element."""
    return f"transform({value.sql}, x_r -> struct(x_r IS NULL AS a, x_r AS b))"


def _wide(left: Type, right: Type) -> str:
    """The decimal with every digit after the point, where no type has those before it besides; or nothing."""
    a, b = decimal(left), decimal(right)
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    return f"DECIMAL(38,{scale})" if a.scale != b.scale and whole + scale > 38 else ""


def _compare_wide(sign: str, left: Typed, right: Typed, wide: str) -> str:
    """Spark would round one of them first. Only the one of the smaller scale may not fit into ``wide``.

    If it does not, it is larger than whatever the other can be: its sign decides.
    """
    swapped = decimal(left.type).scale > decimal(right.type).scale
    short, long = (right, left) if swapped else (left, right)

    def ordered(one: str, other: str) -> str:
        return f"{other} {sign} {one}" if swapped else f"{one} {sign} {other}"

    def told_exactly(one: str, other: str) -> str:
        cast = f"try_cast({one} AS {wide})"
        told = "" if sign == "<=>" else f" AND {other} IS NOT NULL"
        too_large = f"{cast} IS NULL AND {one} IS NOT NULL{told}"
        return f"IF({too_large}, {ordered(one, '0')}, {ordered(cast, other)})"

    if "SELECT " in short.sql + long.sql:
        # Not once: Spark has no subqueries inside a lambda.
        found = told_exactly(short.sql, long.sql)
    else:
        found = once(short, lambda one: once(long, lambda other: told_exactly(one, other)))
    if sign == "=":
        # Also as Spark would compare them, by which it finds the keys of a join, and skips files.
        return f"({left.sql} = {right.sql} AND {found})"
    return f"({found})"


def _midnight(value: Typed, other: Typed) -> Typed:
    """A timestamp that is a whole day is compared with a date as a date: Spark can then skip files by it."""
    if (
        other.type.name == "date"
        and value.type.name == "timestamp"
        and isinstance(value.value, dt.datetime)
        and value.value.time() == dt.time()
    ):
        return date(value.value)
    return value


@rule(exp.DPipe)
def _concat(context: Context, node: exp.Expr) -> Typed:
    left, right = context.expr(node.this), context.expr(node.args["expression"])
    kinds = (left.type.name, right.type.name)
    if "array" in kinds:
        from penstock.sql.rules.values.arrays import joined

        return joined(left, right)
    if "jsonb" in kinds:
        raise refuse("|| of jsonb is not supported", node)
    if "bytea" in kinds:
        return Typed(
            f"concat({coerce(left, Type('bytea')).sql}, {coerce(right, Type('bytea')).sql})", Type("bytea")
        )
    if "any" in kinds:
        raise refuse(
            "|| of a value whose type is not known here is not supported", node, hint="Cast it: x::text."
        )
    return Typed(f"concat({to_text(left)}, {to_text(right)})", TEXT)


@rule(exp.Is)
def _is(context: Context, node: exp.Expr) -> Typed:
    what = node.args["expression"]
    negate = "NOT " if node.args.get("negate") else ""
    members = row(node.this)
    if members is not None and isinstance(what, exp.Null):
        parts = [f"({value.sql} IS {negate}NULL)" for value in context.exprs(members)]
        return Typed(f"({' AND '.join(parts)})", BOOL)
    value = context.expr(node.this)
    if isinstance(what, exp.Null):
        return Typed(f"({value.sql} IS {negate}NULL)", BOOL)
    if isinstance(what, exp.Boolean):
        return Typed(f"({truth(value)} IS {negate}{'TRUE' if what.this else 'FALSE'})", BOOL)
    raise refuse("this IS test is not supported", node)


@rule(exp.Between)
def _between(context: Context, node: exp.Expr) -> Typed:
    value, low, high = (context.expr(node.args[part]) for part in ("this", "low", "high"))
    straight = f"({compare('>=', value, low).sql} AND {compare('<=', value, high).sql})"
    if not node.args.get("symmetric"):
        return Typed(straight, BOOL)
    return Typed(
        f"({straight} OR ({compare('>=', value, high).sql} AND {compare('<=', value, low).sql}))", BOOL
    )


@rule(exp.Case)
def _case(context: Context, node: exp.Expr) -> Typed:
    context = replace(context, rows=None)
    subject = context.expr(node.this) if node.this is not None else None
    branches = node.args["ifs"]
    default = node.args.get("default")
    # Where the first of several types decides, that is the type of ELSE.
    values = [context.expr(default) if default is not None else Typed("NULL", Type("unknown"))]
    values += [context.expr(branch.args["true"]) for branch in branches]
    (other, *given), kind = unify(values)
    parts = []
    for branch, value in zip(branches, given, strict=True):
        test = context.expr(branch.this)
        condition = compare("=", subject, test).sql if subject is not None else truth(test)
        parts.append(f"WHEN {condition} THEN {value.sql}")
    return Typed(f"(CASE {' '.join(parts)} ELSE {other.sql} END)", kind)


@rule(exp.Collate)
def _collate(context: Context, node: exp.Expr) -> Typed:
    if str(node.args["expression"].name).lower() not in ("c", "posix", "default", "ucs_basic", "c.utf-8"):
        raise refuse('only the collation "C" is supported: Spark compares bytes', node)
    return context.expr(node.this)


@rule(exp.Abs)
def _abs(context: Context, node: exp.Expr) -> Typed:
    value = context.expr(node.this)
    return Typed(f"abs({value.sql})", value.type)


@rule(exp.Sqrt, exp.Cbrt)
def _roots(context: Context, node: exp.Expr) -> Typed:
    value = context.expr(node.this)
    if value.type.name == "unknown":
        value = cast(value, FLOAT8)
    if not value.type.number:
        raise refuse("roots are of numbers", node)
    if isinstance(node, exp.Cbrt):
        return Typed(f"cbrt({double(value)})", FLOAT8)
    return Typed(square_root(double(value)), FLOAT8)


def square_root(value: str) -> str:
    """Of a double. Spark has NaN where PostgreSQL has an error."""
    fault = "CAST(raise_error('cannot take square root of a negative number') AS DOUBLE)"
    return once(Typed(value, FLOAT8), lambda v: f"IF({v} < 0, {fault}, sqrt({v}))")
