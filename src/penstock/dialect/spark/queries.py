"""Whole queries: SELECT with its clauses, set operations, VALUES, WITH."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.dialect.spark.casts import coerce, unify
from penstock.dialect.spark.core import (
    Context,
    Field,
    Query,
    Scope,
    Typed,
    name_of,
    position,
    quoted,
    refuse,
)
from penstock.dialect.spark.membership import find, retyped
from penstock.dialect.spark.operators import truth
from penstock.dialect.spark.ordering import direction, limits
from penstock.dialect.spark.sources import from_clause
from penstock.dialect.spark.types import TEXT, common
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
        place = _output(made.fields, item.this)
        if place is None:
            raise refuse("ORDER BY here can only name columns of the result", item)
        parts.append(f"{place} {direction(item)}")
    sql = made.sql + (f" ORDER BY {', '.join(parts)}" if parts else "") + limits(context, node)
    return Query(sql, made.fields)


def _output(fields: Sequence[Field] | None, node: exp.Expr) -> int | None:
    """The number of the output column that is named, if one is."""
    if isinstance(node, exp.Literal) and not node.args.get("is_string"):
        return int(node.name)
    if isinstance(node, exp.Column) and not node.args.get("table") and fields is not None:
        name = name_of(node.this)
        found = [i for i, field in enumerate(fields) if field.name == name]
        if found:
            return found[0] + 1
    return None


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
    items = _items(inner, node)
    where = node.args.get("where")
    tail = from_sql + (f" WHERE {truth(inner.expr(where.this))}" if where is not None else "")
    tail += _group(inner, node, items)
    having = node.args.get("having")
    tail += f" HAVING {truth(inner.expr(having.this))}" if having is not None else ""
    distinct = node.args.get("distinct")
    fields = tuple(Field(name, "", value.type) for name, value in items) if items is not None else None
    if distinct is not None and distinct.args.get("on") is not None:
        return _distinct_on(inner, node, items, tail)
    shown = _shown(items) if items is not None else "*"
    sql = f"SELECT {'DISTINCT ' if distinct is not None else ''}{shown}{tail}{_order(inner, node, fields)}"
    return Query(sql + limits(inner, node), fields)


def _shown(items: Sequence[tuple[str, Typed]]) -> str:
    parts = []
    for name, value in items:
        sql = value.sql
        if value.type.name == "interval" and not sql:
            raise refuse("an interval of months and days together has no counterpart in Spark")
        parts.append(f"{sql} AS {quoted(name)}")
    return ", ".join(parts)


def _items(context: Context, node: exp.Expr) -> list[tuple[str, Typed]] | None:
    """The output columns; None where a star stands for columns that are not known."""
    items: list[tuple[str, Typed]] = []
    for item in node.expressions:
        star = isinstance(item, exp.Star) or (
            isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        )
        if star:
            fields = _star(
                context.scope, name_of(item.args.get("table")) if isinstance(item, exp.Column) else "", item
            )
            if fields is None:
                if len(node.expressions) > 1:
                    raise refuse("* beside other columns is not supported for this relation", item)
                return None
            items += [(field.name, Typed(field.sql, field.type)) for field in fields]
            continue
        value = context.expr(item.this if isinstance(item, exp.Alias) else item)
        items.append((name_of(item.args["alias"]) if isinstance(item, exp.Alias) else _label(item), value))
    if not items:
        raise refuse("SELECT without columns is not supported", node)
    return items


def _star(scope: Scope, table: str, node: exp.Expr) -> list[Field] | None:
    if any(source.fields is None for source in scope.sources if not table or source.name == table):
        return None
    if table:
        found = [field for source in scope.sources if source.name == table for field in source.fields or ()]
        if not any(source.name == table for source in scope.sources):
            raise SqlError(
                f'missing FROM-clause entry for table "{table}"', sqlstate="42P01", position=position(node)
            )
        return found
    merged = {field.name for field in scope.merged}
    rest = [field for source in scope.sources for field in source.fields or () if field.name not in merged]
    return [*scope.merged, *rest]


def _label(node: exp.Expr) -> str:
    """What PostgreSQL calls a column without an alias."""
    if isinstance(node, exp.Column):
        return name_of(node.this)
    if isinstance(node, exp.Cast):
        return (
            _label(node.this)
            if isinstance(node.this, exp.Column)
            else node.args["to"].sql("postgres").lower()
        )
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return str(node.name).lower()
    if isinstance(node, exp.Filter | exp.Window | exp.WithinGroup | exp.Paren):
        return _label(node.this)
    if isinstance(node, exp.Func) and not isinstance(node, exp.Binary | exp.And | exp.Or):
        return node.sql_name().lower()
    return "?column?"


def _group(context: Context, node: exp.Expr, items: Sequence[tuple[str, Typed]] | None) -> str:
    group = node.args.get("group")
    if group is None:
        return ""
    if group.args.get("all"):
        raise refuse("GROUP BY ALL is not PostgreSQL", node)
    parts = [_grouping(context, part, items) for part in group.expressions]
    for key, word in (("rollup", "ROLLUP"), ("cube", "CUBE"), ("grouping_sets", "GROUPING SETS")):
        for part in group.args.get(key) or []:
            parts.append(
                f"{word} ({', '.join(_grouping(context, item, items) for item in part.expressions)})"
            )
    return f" GROUP BY {', '.join(parts)}" if parts else ""


def _grouping(context: Context, part: exp.Expr, items: Sequence[tuple[str, Typed]] | None) -> str:
    words: dict[type[exp.Expr], str] = {
        exp.GroupingSets: "GROUPING SETS",
        exp.Rollup: "ROLLUP",
        exp.Cube: "CUBE",
    }
    if type(part) in words:
        return (
            f"{words[type(part)]} ({', '.join(_grouping(context, item, items) for item in part.expressions)})"
        )
    if isinstance(part, exp.Tuple):
        return f"({', '.join(_grouping(context, item, items) for item in part.expressions)})"
    if isinstance(part, exp.Paren):
        return f"({_grouping(context, part.this, items)})"
    if isinstance(part, exp.Literal) and not part.args.get("is_string") and items is not None:
        place = int(part.name)
        if not 1 <= place <= len(items):
            raise SqlError(
                f"GROUP BY position {place} is not in select list", sqlstate="42P10", position=position(part)
            )
        return str(place) if items[place - 1][1].value is not None else items[place - 1][1].sql
    if isinstance(part, exp.Column) and not part.args.get("table") and items is not None:
        # A column of FROM comes before an output column of that name.
        name = name_of(part.this)
        if find(context.scope, None, name, part) is None:
            places = [i for i, (label, _) in enumerate(items) if label == name]
            if places:
                return (
                    str(places[0] + 1) if items[places[0]][1].value is not None else items[places[0]][1].sql
                )
    return context.expr(part).sql


def _order(context: Context, node: exp.Expr, fields: Sequence[Field] | None) -> str:
    order = node.args.get("order")
    if order is None:
        return ""
    return " ORDER BY " + ", ".join(_key(context, item, fields) for item in order.expressions)


def _key(context: Context, item: exp.Expr, fields: Sequence[Field] | None) -> str:
    place = _output(fields, item.this)
    if place is not None:
        if fields is not None and not 1 <= place <= len(fields):
            raise SqlError(
                f"ORDER BY position {place} is not in select list", sqlstate="42P10", position=position(item)
            )
        return f"{place} {direction(item)}"
    value = context.expr(item.this)
    sql = f"{value.sql} || ''" if value.value is not None and value.type.name == "unknown" else value.sql
    return f"{sql} {direction(item)}"


def _distinct_on(context: Context, node: exp.Expr, items: list[tuple[str, Typed]] | None, tail: str) -> Query:
    """The first row of each group: numbered in the wanted order, and the first kept."""
    if items is None:
        raise refuse("DISTINCT ON over columns that are not known is not supported", node)
    on = node.args["distinct"].args["on"]
    keys = on.expressions if isinstance(on, exp.Tuple) else [on.this if isinstance(on, exp.Paren) else on]
    fields = tuple(Field(name, "", value.type) for name, value in items)

    def said(part: exp.Expr) -> str:
        place = _output(fields, part)
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


def text_columns(values: Sequence[Typed]) -> list[Typed]:
    return [coerce(value, TEXT) if value.type.name == "unknown" else value for value in values]
