"""Errors of constants: PostgreSQL computes these before it runs a statement, Spark drops some uncomputed."""

from __future__ import annotations

import operator

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.rules.core import Typed
from penstock.sql.rules.types import Type

_RANGES = {"int2": (15, "smallint"), "int4": (31, "integer"), "int8": (63, "bigint")}
_RESULTS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_MAYBE_NEVER = (exp.Case, exp.And, exp.Or, exp.Exists, exp.CTE, exp.Subquery)


def check_range(number: object, kind: Type, node: exp.Expr | None) -> None:
    """Raise PostgreSQL's error if a constant is an integer that ``kind`` cannot hold."""
    if not isinstance(number, int) or kind.name not in _RANGES or not _is_computed(node):
        return
    bits, name = _RANGES[kind.name]
    if not -(1 << bits) <= number < 1 << bits:
        raise SqlError(f"{name} out of range", sqlstate="22003")


def check_arithmetic(sign: str, left: Typed, right: Typed, kind: Type, node: exp.Expr | None) -> None:
    """Raise PostgreSQL's error if ``left sign right``, of two constant integers, has no value."""
    a, b = left.value, right.value
    if not (isinstance(a, int) and isinstance(b, int) and kind.integer):
        return
    if sign in _RESULTS:
        check_range(_RESULTS[sign](a, b), kind, node)
    elif b == 0 and _is_computed(node):
        raise SqlError("division by zero", sqlstate="22012")


def _is_computed(node: exp.Expr | None) -> bool:
    """Is this a part of the statement itself, and not of something that PostgreSQL may leave out, too?"""
    if node is None or node.find_ancestor(*_MAYBE_NEVER) is not None:
        return False
    calls = (each for each in _above(node) if isinstance(each, exp.Anonymous))
    queries = [each for each in _above(node) if isinstance(each, exp.Select)]
    return len(queries) == 1 and not any(str(call.name).lower() == "coalesce" for call in calls)


def _above(node: exp.Expr) -> list[exp.Expr]:
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found
