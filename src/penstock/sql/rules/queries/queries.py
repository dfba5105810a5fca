"""Whole queries: SELECT with its clauses, set operations, VALUES, WITH."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.dialect.spark.casts import unify
from penstock.dialect.spark.clauses import group_of, items_of, order_of, output_of
from penstock.dialect.spark.core import (
    Context,
    Field,
    Query,
    Typed,
    name_of,
    position,
    quoted,
    refuse,
)
from penstock.dialect.spark.membership import retyped
from penstock.dialect.spark.operators import truth
from penstock.dialect.spark.ordering import direction, limits
from penstock.dialect.spark.sources import from_clause
from penstock.dialect.spark.types import common
from penstock.errors import SqlError

_SETS: dict[type[exp.Expr], str] = {
    exp.Union: "UNION",
    exp.Intersect: "INTERSECT",
    exp.Except: "EXCEPT",
}


def query(context: Context, node: exp.Expr) -> Query:
    """A query of any form."""
    context, prefix = _with(context, node)
    if isinstance(node, exp.Subquery):
        found = _parenthesized(context, node)
    elif isinstance(node, exp.Select):
        found = _select(context, node)
    elif isinstance(node, exp.SetOperation):
        found = _set_operation(context, node)
    elif isinstance(node, exp.Values):
        found = _values(context, node)
    else:
        raise refuse(f"{type(node).__name__.upper()} is not a query that can be translated", node)
    return Query(prefix + found.sql, found.fields)


def _with(context: Context, node: exp.Expr) -> tuple[Context, str]:
    clause = node.args.get("with_")
    if clause is None:
        return context, ""
    recursive = bool(clause.args.get("recursive"))
    parts = []
    for cte in clause.expressions:
        name = name_of(cte.args["alias"].this)
        columns = [name_of(part) for part in cte.args["alias"].args.get("columns") or []]
        spelled = _cte(name)
        inner = context
        if recursive and _names(cte.this, name):
            inner = _recursive(context, cte, name, columns)
        made = query(inner, cte.this)
        fields = _renamed(made.fields, columns, cte)
        if fields is not None:
            spark = _distinct_names([field.name for field in fields])
            fields = tuple(
                replace(field, name=label) for field, label in zip(fields, _labels(fields), strict=True)
            )
            parts.append(f"{spelled}({', '.join(map(quoted, spark))}) AS ({made.sql})")
            if spark != [field.name for field in fields]:
                raise refuse(f'the columns of "{name}" must have different names', cte, sqlstate="42701")
        else:
            parts.append(f"{spelled} AS ({made.sql})")
        context = context.inside(
            replace(context.scope, ctes={**context.scope.ctes, name: Query(_cte(name), fields)})
        )
    return context, f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(parts)} "


def _cte(name: str) -> str:
    """A name of WITH in Spark: one that no relation has, since Spark would take the one for the other."""
    return quoted(f"with {name}")


def _labels(fields: Sequence[Field]) -> list[str]:
    return _distinct_names([field.name for field in fields])


def _distinct_names(names: Sequence[str]) -> list[str]:
    """Names of which Spark takes none for another."""
    seen: set[str] = set()
    out = []
    for name in names:
        label, i = name, 1
        while label.lower() in seen:
            label, i = f"{name}_{i}", i + 1
        seen.add(label.lower())
        out.append(label)
    return out


def _names(node: exp.Expr, name: str) -> bool:
    return any(name_of(table.this) == name for table in node.find_all(exp.Table) if not table.args.get("db"))


def _recursive(context: Context, cte: exp.Expr, name: str, columns: list[str]) -> Context:
    body = cte.this
    if not isinstance(body, exp.Union):
        raise refuse("WITH RECURSIVE wants a UNION", cte)
    if body.args.get("distinct"):
        raise refuse(
            "WITH RECURSIVE … UNION is not supported", cte, hint="Use UNION ALL, which Spark can do."
        )
    first = query(context, body.this)
    fields = _renamed(first.fields, columns, cte)
    return context.inside(
        replace(context.scope, ctes={**context.scope.ctes, name: Query(_cte(name), fields)})
    )


def _renamed(fields: tuple[Field, ...] | None, names: list[str], node: exp.Expr) -> tuple[Field, ...] | None:
    if fields is None:
        return None
    if len(names) > len(fields):
        raise SqlError("more column names than columns", sqlstate="42P10", position=position(node))
    return tuple(
        replace(field, name=names[i] if i < len(names) else field.name) for i, field in enumerate(fields)
    )


def _parenthesized(context: Context, node: exp.Expr) -> Query:
    inner = query(context, node.this)
    order, limit = node.args.get("order"), limits(context, node)
    if order is None and not limit:
        return Query(inner.sql, inner.fields)
    return _tail(context, Query(f"SELECT * FROM ({inner.sql})", inner.fields), node)


def _tail(context: Context, made: Query, node: exp.Expr) -> Query:
    """ORDER BY and LIMIT of a set operation: only its columns can be named."""
    parts = []
    order = node.args.get("order")
    for item in order.expressions if order is not None else []:
        place = output_of(made.fields, item.this)
        if place is None:
            raise refuse("ORDER BY here can only name columns of the result", item)
        parts.append(f"{place} {direction(item)}")
    sql = made.sql + (f" ORDER BY {', '.join(parts)}" if parts else "") + limits(context, node)
    return Query(sql, made.fields)


def _set_operation(context: Context, node: exp.Expr) -> Query:
    left, right = query(context, node.this), query(context, node.args["expression"])
    fields = left.fields
    if left.fields is not None and right.fields is not None:
        if len(left.fields) != len(right.fields):
            word = _SETS[type(node)]
            raise SqlError(f"each {word} query must have the same number of columns", sqlstate="42601")
        kinds = [common([a.type, b.type]) for a, b in zip(left.fields, right.fields, strict=True)]
        for a, b, kind in zip(left.fields, right.fields, kinds, strict=True):
            if kind.name == "any" and "any" not in (a.type.name, b.type.name):
                raise refuse(
                    f"types {a.type.name} and {b.type.name} cannot be matched", node, sqlstate="42804"
                )
        left, right = retyped(left, kinds), retyped(right, kinds)
        fields = tuple(replace(a, type=kind) for a, kind in zip(left.fields or (), kinds, strict=True))
    word = _SETS[type(node)] + ("" if node.args.get("distinct") else " ALL")
    return _tail(context, Query(f"({left.sql}) {word} ({right.sql})", fields), node)


def _values(context: Context, node: exp.Expr) -> Query:
    rows = [
        context.exprs(row.expressions) if isinstance(row, exp.Tuple) else [context.expr(row)]
        for row in node.expressions
    ]
    if len({len(row) for row in rows}) != 1:
        raise SqlError("VALUES lists must all be the same length", sqlstate="42601", position=position(node))
    columns = [unify(column) for column in zip(*rows, strict=True)]
    lines = [", ".join(values[i].sql for values, _ in columns) for i in range(len(rows))]
    names = [f"column{i + 1}" for i in range(len(columns))]
    sql = f"SELECT * FROM VALUES {', '.join(f'({line})' for line in lines)} AS v({', '.join(names)})"
    made = Query(sql, tuple(Field(name, "", kind) for name, (_, kind) in zip(names, columns, strict=True)))
    return _tail(context, made, node)


def _select(context: Context, node: exp.Expr) -> Query:
    if node.args.get("locks"):
        raise refuse("FOR UPDATE is not supported", node)
    if (
        node.args.get("into")
        or node.args.get("laterals")
        or node.args.get("qualify")
        or node.args.get("hint")
    ):
        raise refuse("this form of SELECT is not supported", node)
    from_sql, scope = from_clause(context, node)
    windows = {name_of(window.this): window for window in node.args.get("windows") or []}
    inner = context.inside(replace(scope, windows=windows))
    items = items_of(inner, node)
    where = node.args.get("where")
    tail = from_sql + (f" WHERE {truth(inner.expr(where.this))}" if where is not None else "")
    tail += group_of(inner, node, items)
    having = node.args.get("having")
    tail += f" HAVING {truth(inner.expr(having.this))}" if having is not None else ""
    distinct = node.args.get("distinct")
    fields = tuple(Field(name, "", value.type) for name, value in items) if items is not None else None
    if distinct is not None and distinct.args.get("on") is not None:
        return _distinct_on(inner, node, items, tail)
    shown = _shown(items) if items is not None else "*"
    sql = f"SELECT {'DISTINCT ' if distinct is not None else ''}{shown}{tail}{order_of(inner, node, fields)}"
    return Query(sql + limits(inner, node), fields)


def _shown(items: Sequence[tuple[str, Typed]]) -> str:
    parts = []
    for name, value in items:
        sql = value.sql
        if value.type.name == "interval" and not sql:
            raise refuse("an interval of months and days together has no counterpart in Spark")
        parts.append(f"{sql} AS {quoted(name)}")
    return ", ".join(parts)


def _distinct_on(context: Context, node: exp.Expr, items: list[tuple[str, Typed]] | None, tail: str) -> Query:
    """The first row of each group: numbered in the wanted order, and the first kept."""
    if items is None:
        raise refuse("DISTINCT ON over columns that are not known is not supported", node)
    on = node.args["distinct"].args["on"]
    keys = on.expressions if isinstance(on, exp.Tuple) else [on.this if isinstance(on, exp.Paren) else on]
    fields = tuple(Field(name, "", value.type) for name, value in items)

    def said(part: exp.Expr) -> str:
        place = output_of(fields, part)
        return items[place - 1][1].sql if place is not None else context.expr(part).sql

    order = node.args.get("order")
    sorts = [(said(item.this), direction(item)) for item in order.expressions] if order is not None else []
    partition = ", ".join(said(key) for key in keys)
    ordering = ", ".join(f"{sql} {way}" for sql, way in sorts) or "NULL"
    columns = [f"{value.sql} AS c{i}" for i, (_, value) in enumerate(items)]
    columns += [f"{sql} AS o{i}" for i, (sql, _) in enumerate(sorts)]
    columns.append(f"row_number() OVER (PARTITION BY {partition} ORDER BY {ordering}) AS n")
    shown = ", ".join(f"c{i} AS {quoted(name)}" for i, (name, _) in enumerate(items))
    sql = f"SELECT {shown} FROM (SELECT {', '.join(columns)}{tail}) WHERE n = 1"
    if sorts:
        sql += " ORDER BY " + ", ".join(f"o{i} {way}" for i, (_, way) in enumerate(sorts))
    return Query(sql + limits(context, node), fields)
