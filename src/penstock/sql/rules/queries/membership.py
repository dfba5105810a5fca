"""Names of columns, and subqueries inside expressions: scalar, EXISTS, IN, ANY and ALL."""

from __future__ import annotations

from sqlglot import exp

from penstock.dialect.spark.casts import cast, coerce
from penstock.dialect.spark.core import (
    Context,
    Field,
    Query,
    Scope,
    Typed,
    alias_of,
    name_of,
    position,
    quoted,
    refuse,
    rule,
)
from penstock.dialect.spark.operators import compare, row
from penstock.dialect.spark.types import ANY, BOOL, RECORD, TEXT, Type, array, common
from penstock.errors import SqlError


@rule(exp.Column)
def _column(context: Context, node: exp.Expr) -> Typed:
    table = name_of(node.args.get("table")) or None
    if isinstance(node.this, exp.Star):
        raise refuse("* is not supported here", node)
    name = name_of(node.this)
    scope: Scope | None = context.scope
    while scope is not None:
        found = find(scope, table, name, node)
        if found is not None:
            return Typed(found.sql, found.type)
        scope = scope.outer
    return _unresolved(context, table, name, node)


def find(scope: Scope, table: str | None, name: str, node: exp.Expr) -> Field | None:
    """What a name means among the relations of one FROM."""
    if table is None:
        for field in scope.merged:
            if field.name == name:
                return field
    matches: list[Field] = []
    for source in scope.sources:
        if table is not None and source.name != table:
            continue
        matches += [field for field in source.fields or () if field.name == name]
    if not matches and not _is_quoted(node):
        # Names of Spark keep their case, and its people do not quote them.
        for source in scope.sources:
            if table is None or source.name == table:
                matches += [field for field in source.fields or () if field.name.lower() == name]
    if len(matches) > 1:
        raise SqlError(f'column reference "{name}" is ambiguous', sqlstate="42702", position=position(node))
    return matches[0] if matches else None


def _is_quoted(node: exp.Expr) -> bool:
    return isinstance(node.this, exp.Identifier) and bool(node.this.args.get("quoted"))


def _unresolved(context: Context, table: str | None, name: str, node: exp.Expr) -> Typed:
    scope: Scope | None = context.scope
    while scope is not None:
        for source in scope.sources:
            if table is None and source.name == name and source.fields is not None:
                # The name of a relation is its whole row.
                parts = ", ".join(f"{text_key(field.name)}, {field.sql}" for field in source.fields)
                return Typed(f"named_struct({parts})", RECORD, source.fields)
            if source.fields is None and table in (None, source.name):
                return Typed(f"{alias_of(source.name)}.{quoted(name)}", ANY)
        scope = scope.outer
    shown = f"{table}.{name}" if table else f'"{name}"'
    raise SqlError(f"column {shown} does not exist", sqlstate="42703", position=position(node))


def text_key(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


@rule(exp.Dot)
def _dot(context: Context, node: exp.Expr) -> Typed:
    if isinstance(node.args["expression"], exp.Func):
        # pg_catalog.lower(x) is lower(x).
        if name_of(node.this) != "pg_catalog":
            raise refuse("functions of schemas are not supported", node)
        return context.expr(node.args["expression"])
    inner = node.this.this if isinstance(node.this, exp.Paren) else node.this
    if isinstance(inner, exp.Column) and not inner.args.get("table"):
        column = exp.Column(this=node.args["expression"], table=inner.this)
        if any(source.name == name_of(inner.this) for source in context.scope.sources):
            return _column(context, column)
    value = context.expr(inner)
    if value.type.native:
        return Typed(f"{value.sql}.{quoted(name_of(node.args['expression']))}", ANY)
    raise refuse("a field of this value is not supported", node)


def _single(query: Query, node: exp.Expr) -> Type:
    if query.fields is None:
        return ANY
    if len(query.fields) != 1:
        raise SqlError("subquery must return only one column", sqlstate="42601", position=position(node))
    return query.fields[0].type


@rule(exp.Subquery)
def _scalar(context: Context, node: exp.Expr) -> Typed:
    query = context.query(node)
    return Typed(f"({query.sql})", _single(query, node))


@rule(exp.Select, exp.Union, exp.Values)
def _bare(context: Context, node: exp.Expr) -> Typed:
    query = context.query(node)
    return Typed(f"({query.sql})", _single(query, node))


@rule(exp.Exists)
def _exists(context: Context, node: exp.Expr) -> Typed:
    return Typed(f"EXISTS ({context.query(node.this).sql})", BOOL)


@rule(exp.In)
def _in(context: Context, node: exp.Expr) -> Typed:
    query = node.args.get("query")
    if query is not None:
        return _in_query(context, node.this, query)
    members = row(node.this)
    if members is not None:
        parts = [
            context.expr(exp.EQ(this=node.this.copy(), expression=item.copy())).sql
            for item in node.expressions
        ]
        return Typed(f"({' OR '.join(parts)})", BOOL)
    value = context.expr(node.this)
    items = [context.expr(item) for item in node.expressions]
    kind = common([value.type, *(item.type for item in items)])
    if kind.name == "numeric" or kind.name == "bpchar" or (value.type.name == "date" and kind.name != "date"):
        return Typed(f"({' OR '.join(compare('=', value, item).sql for item in items)})", BOOL)
    given = coerce(value, kind).sql
    return Typed(f"({given} IN ({', '.join(coerce(item, kind).sql for item in items)}))", BOOL)


def _in_query(context: Context, left: exp.Expr, node: exp.Expr) -> Typed:
    query = context.query(node)
    members = row(left)
    values = context.exprs(members) if members is not None else [context.expr(left)]
    fields = query.fields
    if fields is not None and len(fields) == len(values):
        kinds = [common([value.type, field.type]) for value, field in zip(values, fields, strict=True)]
        values = [coerce(value, kind) for value, kind in zip(values, kinds, strict=True)]
        query = retyped(query, kinds)
    sql = ", ".join(value.sql for value in values)
    return Typed(f"({f'({sql})' if len(values) > 1 else sql} IN ({query.sql}))", BOOL)


def retyped(query: Query, kinds: list[Type]) -> Query:
    """A query whose columns that are bare literals are given the types that PostgreSQL finds for them."""
    if query.fields is None or not any(
        field.type.name == "unknown" and kind.name not in ("unknown", "any", "text")
        for field, kind in zip(query.fields, kinds, strict=True)
    ):
        return query
    names = [f"c{i}" for i in range(len(kinds))]
    columns = [
        f"CAST({name} AS {kind.spark}) AS {quoted(field.name)}"
        if field.type.name == "unknown"
        else f"{name} AS {quoted(field.name)}"
        for name, kind, field in zip(names, kinds, query.fields, strict=True)
    ]
    fields = tuple(
        Field(field.name, field.sql, kind if field.type.name == "unknown" else field.type)
        for field, kind in zip(query.fields, kinds, strict=True)
    )
    return Query(f"SELECT {', '.join(columns)} FROM ({query.sql}) AS q({', '.join(names)})", fields)


def quantified(context: Context, left: exp.Expr, sign: str, right: exp.Expr) -> Typed:
    """``left sign ANY (…)`` and ALL, of a query or of an array."""
    every = isinstance(right, exp.All)
    inner: exp.Expr = right.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.Select | exp.Union | exp.Subquery):
        return _quantified_query(context, left, sign, inner, every=every)
    value = context.expr(left)
    items = elements(context, inner, value.type)
    element = items.type.element or ANY
    test = compare(sign, value, Typed("x_e", element)).sql
    if not every:
        return Typed(f"exists({items.sql}, x_e -> {test})", BOOL)
    return Typed(f"forall({items.sql}, x_e -> {test})", BOOL)


def elements(context: Context, node: exp.Expr, beside: Type) -> Typed:
    """An array whose elements are compared with a value of type ``beside``."""
    items = context.expr(node)
    if items.type.name == "unknown":
        return cast(items, array(TEXT if beside.name in ("unknown", "any") else beside))
    if items.type.name != "array":
        raise refuse("ANY and ALL want an array or a query", node, sqlstate="42809")
    if items.type.element is not None and items.type.element.name == "unknown":
        return Typed(f"CAST({items.sql} AS {array(beside).spark})", array(beside))
    return items


def _quantified_query(context: Context, left: exp.Expr, sign: str, inner: exp.Expr, *, every: bool) -> Typed:
    if sign == "=" and not every:
        return _in_query(context, left, inner)
    if sign == "<>" and every:
        return Typed(f"(NOT {_in_query(context, left, inner).sql})", BOOL)
    if sign not in ("<", "<=", ">", ">="):
        raise refuse(f"{sign} {'ALL' if every else 'ANY'} of a query is not supported", inner)
    query = context.query(inner)
    kind = _single(query, inner)
    value = context.expr(left)
    # One row says all: the extreme, whether there is a NULL, and whether there is a row at all.
    extreme = "max" if (sign[0] == ">") == every else "min"
    row_ = f"named_struct('m', {extreme}(a.x), 'n', count(*), 'k', count(a.x))"
    told = f"(SELECT {row_} FROM ({query.sql}) AS a(x))"

    def body(v: str) -> str:
        test = compare(sign, value, Typed(f"{v}.m", kind)).sql
        if every:
            first = f"WHEN {v}.n = 0 THEN true WHEN NOT {test} THEN false"
        else:
            first = f"WHEN {v}.n = 0 THEN false WHEN {test} THEN true"
        return f"CASE {first} WHEN {v}.n > {v}.k THEN NULL ELSE {test} END"

    return Typed(f"({body(told)})", BOOL)


@rule(exp.Any, exp.All)
def _misplaced(_context: Context, node: exp.Expr) -> Typed:
    raise refuse("ANY and ALL stand at the right of an operator", node, sqlstate="42601")
