"""Whole queries: SELECT with its clauses, set operations, VALUES, WITH."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.rules.core import (
    Context,
    NamedColumn,
    TranslatedQuery,
    Typed,
    name_of,
    position,
    quoted,
    refuse,
    written,
)
from penstock.sql.rules.queries import lockstep
from penstock.sql.rules.queries.clauses import (
    check_distinct,
    direction,
    group_of,
    items_of,
    limits,
    order_of,
    output_of,
)
from penstock.sql.rules.queries.membership import joint_type, literal_text, retyped
from penstock.sql.rules.queries.sources import from_clause
from penstock.sql.rules.types import NUMERIC, Type
from penstock.sql.rules.values.casts import unify
from penstock.sql.rules.values.lists import MANY, constant, marked
from penstock.sql.rules.values.operators import truth

_SETS: dict[type[exp.Expr], str] = {
    exp.Union: "UNION",
    exp.Intersect: "INTERSECT",
    exp.Except: "EXCEPT",
}


def query(context: Context, node: exp.Expr) -> TranslatedQuery:
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
        raise refuse(f"{written(node)} is not a query that can be translated", node)
    return TranslatedQuery(prefix + found.sql, found.fields)


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
        made = query(inner, cte.this) if inner is context else _grown(inner, cte.this, name)
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
            replace(context.scope, ctes={**context.scope.ctes, name: TranslatedQuery(_cte(name), fields)})
        )
    return context, f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(parts)} "


def _cte(name: str) -> str:
    """A name of WITH in Spark: one that no relation has, since Spark would take the one for the other."""
    return quoted(f"with {name}")


def _labels(fields: Sequence[NamedColumn]) -> list[str]:
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
    if fields is not None:
        fields = tuple(replace(each, type=_widest(each.type)) for each in fields)
    return context.inside(
        replace(context.scope, ctes={**context.scope.ctes, name: TranslatedQuery(_cte(name), fields)})
    )


def _widest(kind: Type) -> Type:
    """A numeric may get more digits with each step."""
    return NUMERIC if kind.name == "numeric" else kind


def _grown(context: Context, body: exp.Expr, name: str) -> TranslatedQuery:
    """Both parts of a recursive query with numerics of one type, which Spark cannot widen on its way."""
    first, second = query(context, body.this), query(context, body.args["expression"])
    if first.fields is None or second.fields is None or len(first.fields) != len(second.fields):
        return query(context, body)
    wide = [field.type.name == "numeric" for field in first.fields]
    for one, other in zip(first.fields, second.fields, strict=True):
        if one.type.integer and other.type.name == "numeric":
            raise SqlError(
                f'recursive query "{name}" has type {one.type.name} in its non-recursive term but numeric'
                " overall",
                sqlstate="42804",
                hint="Cast the output of the non-recursive term to the correct type.",
            )
    if not any(wide):
        return query(context, body)
    names = [f"c{i}" for i in range(len(wide))]

    def said(made: TranslatedQuery) -> str:
        columns = [
            f"CAST({each} AS {NUMERIC.spark}) AS {each}" if grows else each
            for each, grows in zip(names, wide, strict=True)
        ]
        return f"SELECT {', '.join(columns)} FROM ({made.sql}) AS q({', '.join(names)})"

    fields = tuple(replace(each, type=_widest(each.type)) for each in first.fields)
    return _tail(context, TranslatedQuery(f"({said(first)}) UNION ALL ({said(second)})", fields), body)


def _renamed(
    fields: tuple[NamedColumn, ...] | None, names: list[str], node: exp.Expr
) -> tuple[NamedColumn, ...] | None:
    if fields is None:
        return None
    if len(names) > len(fields):
        raise SqlError("more column names than columns", sqlstate="42P10", position=position(node))
    return tuple(
        replace(field, name=names[i] if i < len(names) else field.name) for i, field in enumerate(fields)
    )


def _parenthesized(context: Context, node: exp.Expr) -> TranslatedQuery:
    inner = query(context, node.this)
    order, limit = node.args.get("order"), limits(context, node)
    if order is None and not limit:
        return TranslatedQuery(inner.sql, inner.fields)
    return _tail(context, TranslatedQuery(f"SELECT * FROM ({inner.sql})", inner.fields), node)


def _tail(context: Context, made: TranslatedQuery, node: exp.Expr) -> TranslatedQuery:
    """ORDER BY and LIMIT of a set operation: only its columns can be named."""
    parts = []
    order = node.args.get("order")
    for item in order.expressions if order is not None else []:
        place = output_of(made.fields, item.this)
        if place is None:
            raise refuse("ORDER BY here can only name columns of the result", item)
        if made.fields is not None and 1 <= place <= len(made.fields):
            check_distinct([made.fields[place - 1].type], item)
        parts.append(f"{place} {direction(item)}")
    sql = made.sql + (f" ORDER BY {', '.join(parts)}" if parts else "") + limits(context, node)
    return TranslatedQuery(sql, made.fields)


def _set_operation(context: Context, node: exp.Expr) -> TranslatedQuery:
    branches = _branches(node)
    if len(branches) > MANY:
        return _tail(context, _union(context, branches, node), node)
    left, right = query(context, node.this), query(context, node.args["expression"])
    fields = left.fields
    if left.fields is not None and right.fields is not None:
        if len(left.fields) != len(right.fields):
            word = _SETS[type(node)]
            raise SqlError(f"each {word} query must have the same number of columns", sqlstate="42601")
        kinds = [joint_type(pair) for pair in zip(left.fields, right.fields, strict=True)]
        for a, b, kind in zip(left.fields, right.fields, kinds, strict=True):
            if kind.name == "any" and "any" not in (a.type.name, b.type.name):
                raise refuse(
                    f"types {a.type.name} and {b.type.name} cannot be matched", node, sqlstate="42804"
                )
        if node.args.get("distinct") or not isinstance(node, exp.Union):
            check_distinct(kinds, node)
        left, right = retyped(left, kinds), retyped(right, kinds)
        fields = tuple(replace(a, type=kind) for a, kind in zip(left.fields or (), kinds, strict=True))
    word = _SETS[type(node)] + ("" if node.args.get("distinct") else " ALL")
    return _tail(context, TranslatedQuery(f"({left.sql}) {word} ({right.sql})", fields), node)


def _branches(node: exp.Expr) -> list[exp.Expr]:
    """The queries of a chain of UNION ALL, of which each stands inside of the next."""
    found: list[exp.Expr] = []
    while isinstance(node, exp.Union) and not node.args.get("distinct"):
        if found and any(node.args.get(part) for part in ("with_", "order", "limit", "offset")):
            break
        found.append(node.args["expression"])
        node = node.this
    return [node, *reversed(found)] if found else []


def _union(context: Context, branches: list[exp.Expr], node: exp.Expr) -> TranslatedQuery:
    """Many queries side by side: Spark can neither read them inside of each other nor plan many quickly."""
    first = query(context, branches[0])
    if first.fields is not None and all(map(_is_line, branches)):
        rows = [context.exprs([part.unalias() for part in each.expressions]) for each in branches]
        if any(len(line) != len(first.fields) for line in rows):
            raise SqlError("each UNION query must have the same number of columns", sqlstate="42601")
        made = _relation(rows)
        names = [field.name for field in first.fields]
        shown = ", ".join(f"column{i} AS {quoted(name)}" for i, name in enumerate(names, 1))
        fields = tuple(
            replace(field, name=name) for field, name in zip(made.fields or (), names, strict=True)
        )
        return TranslatedQuery(made.sql.replace("SELECT *", f"SELECT {shown}", 1), fields)
    parts = [first, *(query(context, each) for each in branches[1:])]
    known = [part.fields for part in parts if part.fields is not None]
    fields_ = first.fields
    if len(known) == len(parts):
        if len({len(each) for each in known}) != 1:
            raise SqlError("each UNION query must have the same number of columns", sqlstate="42601")
        kinds = [joint_type(column) for column in zip(*known, strict=True)]
        for kind, column in zip(kinds, zip(*known, strict=True), strict=True):
            if kind.name == "any" and not any(field.type.name == "any" for field in column):
                names = sorted({field.type.name for field in column})
                raise refuse(f"types {' and '.join(names)} cannot be matched", node, sqlstate="42804")
        parts = [retyped(part, kinds) for part in parts]
        fields_ = tuple(replace(a, type=kind) for a, kind in zip(known[0], kinds, strict=True))
    return TranslatedQuery(" UNION ALL ".join(f"({part.sql})" for part in parts), fields_)


def _is_line(node: exp.Expr) -> bool:
    """Whether it is a SELECT of nothing but constants."""
    only = not any(value for key, value in node.args.items() if key not in ("expressions", "kind"))
    return (
        isinstance(node, exp.Select) and only and all(constant(each.unalias()) for each in node.expressions)
    )


def _values(context: Context, node: exp.Expr) -> TranslatedQuery:
    rows = [
        context.exprs(row.expressions) if isinstance(row, exp.Tuple) else [context.expr(row)]
        for row in node.expressions
    ]
    if len({len(row) for row in rows}) != 1:
        raise SqlError("VALUES lists must all be the same length", sqlstate="42601", position=position(node))
    return _tail(context, _relation(rows), node)


def _relation(rows: Sequence[Sequence[Typed]]) -> TranslatedQuery:
    """Lines of values, as columns of one type each."""
    columns = [unify(column) for column in zip(*rows, strict=True)]
    lines = [", ".join(marked(values[i].sql) for values, _ in columns) for i in range(len(rows))]
    names = [f"column{i + 1}" for i in range(len(columns))]
    sql = f"SELECT * FROM VALUES {', '.join(f'({line})' for line in lines)} AS v({', '.join(names)})"
    return TranslatedQuery(
        sql, tuple(NamedColumn(name, "", kind) for name, (_, kind) in zip(names, columns, strict=True))
    )


def _select(context: Context, node: exp.Expr) -> TranslatedQuery:
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
    rows: list[Typed] = []
    items = items_of(replace(inner, rows=rows), node)
    groups = group_of(inner, node, items)
    beside = bool(rows) and _grouped(node) and not lockstep.grouped(rows, groups, node)
    if rows and not beside:
        from_sql = f"{from_sql or ' FROM (SELECT 1)'}{lockstep.view([value.sql for value in rows])}"
    where = node.args.get("where")
    tail = from_sql + (f" WHERE {truth(inner.expr(where.this))}" if where is not None else "")
    tail += groups
    having = node.args.get("having")
    tail += f" HAVING {truth(inner.expr(having.this))}" if having is not None else ""
    distinct = node.args.get("distinct")
    fields = _fields(items) if items is not None else None
    if distinct is not None and distinct.args.get("on") is None and fields is not None:
        check_distinct([field.type for field in fields], node)
    if distinct is not None and distinct.args.get("on") is not None:
        if rows:
            raise refuse("DISTINCT ON beside set-returning functions is not supported", node)
        return _distinct_on(inner, node, items, tail)
    word = "SELECT DISTINCT" if distinct is not None else "SELECT"
    if beside:
        assert items is not None
        said = lockstep.beside_groups(items, rows, tail, node)
        return _tail(context, TranslatedQuery(f"{word} {said}", fields), node)
    shown = _shown(items) if items is not None else "*"
    return TranslatedQuery(
        f"{word} {shown}{tail}{order_of(inner, node, fields, items)}{limits(inner, node)}",
        fields,
    )


def _grouped(node: exp.Expr) -> bool:
    """Whether a SELECT has aggregates or windows of its own."""
    if node.args.get("group") or node.args.get("having"):
        return True
    parts = (part for item in node.expressions for part in item.walk(prune=_inner))
    return any(isinstance(part, exp.AnonymousAggFunc | exp.Window) for part in parts)


def _inner(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query)


def _fields(items: Sequence[tuple[str, Typed]]) -> tuple[NamedColumn, ...]:
    return tuple(NamedColumn(name, "", value.type, literal_text(value)) for name, value in items)


def _shown(items: Sequence[tuple[str, Typed]]) -> str:
    parts = []
    for name, value in items:
        parts.append(f"{value.sql} AS {quoted(name)}")
    return ", ".join(parts)


def _distinct_on(
    context: Context, node: exp.Expr, items: list[tuple[str, Typed]] | None, tail: str
) -> TranslatedQuery:
    """The first row of each group: numbered in the wanted order, and the first kept."""
    if items is None:
        raise refuse("DISTINCT ON over columns that are not known is not supported", node)
    on = node.args["distinct"].args["on"]
    keys = on.expressions if isinstance(on, exp.Tuple) else [on.this if isinstance(on, exp.Paren) else on]
    fields = _fields(items)

    def said(part: exp.Expr) -> str:
        place = output_of(fields, part)
        value = items[place - 1][1] if place is not None else context.expr(part)
        check_distinct([value.type], part)
        return value.sql

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
    return TranslatedQuery(sql + limits(context, node), fields)
