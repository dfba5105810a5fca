"""Errors of parts whose value nobody needs: PostgreSQL computes some of them, Spark does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.parse.postgres import parse_one

_Kinds = tuple[type[exp.Expr], ...]
_SOURCES: dict[str, tuple[_Kinds, frozenset[str]]] = {
    "22012": ((exp.Div, exp.Mod), frozenset({"div", "mod"})),
    "22P02": ((exp.Cast,), frozenset()),
    "22003": ((exp.Cast, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs), frozenset({"abs", "power", "exp"})),
    "2201E": ((), frozenset({"ln", "log", "log10"})),
    "2201F": ((exp.Pow, exp.Sqrt), frozenset({"power", "pow", "sqrt"})),
    # A NULL for %I. Only rows with a NULL raise it, in which other arguments may be NULL as well.
    "22004": ((), frozenset({"format"})),
}
"""What can raise an error, by its code: kinds of nodes, and functions."""
_CHOICES = (exp.Case, exp.And, exp.Or, exp.Filter, exp.Join, exp.Exists)
_CHOOSING = frozenset({"coalesce", "count"})
_AROUND = (exp.Paren, exp.Cast, exp.Any, exp.All, exp.Bracket, exp.Neg)


def may_be_left_out(sql: str, sqlstate: str, *, with_nulls: bool = False) -> bool:
    """Can this error come only from parts whose value may not be needed?

    Such a part stands beside a NULL, or in a join's condition, AND, OR, CASE, COALESCE, FILTER or count(), is
    a further key of ORDER BY, or stands in one of two rows that are compared. ``with_nulls``: the rows with
    the error are NULL, so what reads a column may have been NULL there.
    """
    try:
        tree = parse_one(sql)
    except SqlError:
        return False
    sources = list(_sources(tree, sqlstate))
    missing = _may_be_missing if with_nulls or sqlstate == "22004" else _is_missing
    return bool(sources) and all(_is_optional(source, missing) for source in sources)


def _sources(tree: exp.Expr, sqlstate: str) -> Iterator[exp.Expr]:
    kinds, names = _SOURCES.get(sqlstate, ((), frozenset()))
    for node in tree.walk():
        if (isinstance(node, kinds) or _name(node) in names) and not _is_guarded(node):
            yield node


def _is_guarded(node: exp.Expr) -> bool:
    """Does it divide by ``nullif(…, 0)``? That is never 0."""
    divisor = node.expression if isinstance(node, exp.Div | exp.Mod) else None
    while isinstance(divisor, exp.Paren):
        divisor = divisor.this
    return divisor is not None and _name(divisor) == "nullif" and str(divisor.expressions[1]) == "0"


def _name(node: exp.Expr) -> str:
    return str(node.name).lower() if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) else ""


def _is_optional(node: exp.Expr, missing: Callable[[exp.Expr], bool]) -> bool:
    if _is_missing(node):
        return True
    while (above := node.parent) is not None:
        if isinstance(above, _CHOICES) or _name(above) in _CHOOSING:
            return True
        if isinstance(above, exp.Order) and node is not above.expressions[0]:
            return True
        if isinstance(above, exp.Tuple) and isinstance(above.parent, exp.Binary):
            return True
        if isinstance(above, exp.Binary | exp.Func):
            others = [each for each in above.iter_expressions() if each is not node]
            if any(map(missing, others)):
                return True
        node = above
    return False


def _is_missing(node: exp.Expr) -> bool:
    """Is it a NULL, or a CASE that may be one?"""
    while isinstance(node, _AROUND) or _name(node) in ("any", "all", "some"):
        node = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    if isinstance(node, exp.Case):
        return node.args.get("default") is None or node.find(exp.Null) is not None
    return isinstance(node, exp.Null)


def _may_be_missing(node: exp.Expr) -> bool:
    """Is it a NULL, or does it read a column, which may be NULL in the row at hand?"""
    return _is_missing(node) or node.find(exp.Column) is not None
