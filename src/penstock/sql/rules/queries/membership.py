"""Names of columns, and subqueries inside expressions: scalar, EXISTS, IN, ANY and ALL."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.rules.core import (
    Call,
    Context,
    NamedColumn,
    NameScope,
    TranslatedQuery,
    Typed,
    alias_of,
    function,
    name_of,
    position,
    quoted,
    refuse,
    rule,
    text,
)
from penstock.sql.rules.queries.conditions import null_is_false
from penstock.sql.rules.time import intervals
from penstock.sql.rules.types import ANY, BOOL, BPCHAR, PARTS, RECORD, TEXT, Type, array, common
from penstock.sql.rules.values import lists
from penstock.sql.rules.values.casts import cast, coerce, matched, unify
from penstock.sql.rules.values.literals import decimal
from penstock.sql.rules.values.operators import compare, exact, row, unpruned
from penstock.sql.rules.values.texts import plain

VALUES = {
    "user": "user", "current_user": "user", "session_user": "user", "current_role": "user",
    "current_catalog": "database", "current_schema": "schema",
}  # fmt: skip
"""Words that are a value to PostgreSQL, and never the name of a column unless they stand in quotes."""


def session_value(context: Context, word: str, node: exp.Expr) -> Typed:
    """Who asks, and where."""
    if context.session is None:
        raise refuse(
            f"{word} is not supported here: it would be another one for everybody who asks",
            node,
            hint=f'A column of that name is written in quotes: "{word}".',
        )
    value = context.session.get(VALUES[word])
    return Typed("CAST(NULL AS STRING)" if value is None else text(value), TEXT)


_WORDS: dict[type[exp.Expr], str] = {
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentRole: "current_role",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentSchema: "current_schema",
}


@rule(*_WORDS)
def _session(context: Context, node: exp.Expr) -> Typed:
    return session_value(context, _WORDS[type(node)], node)


@function("current_user", "session_user", "current_schema", "current_database")
def _session_call(call: Call) -> Typed:
    call.expect(0)
    word = "current_catalog" if call.name == "current_database" else call.name
    return session_value(call.context, word, call.node)


@rule(exp.Column)
def _column(context: Context, node: exp.Expr) -> Typed:
    table = name_of(node.args.get("table")) or None
    if isinstance(node.this, exp.Star):
        raise refuse("* is not supported here", node)
    name = name_of(node.this)
    if table is None and name in VALUES and not _is_quoted(node):
        return session_value(context, name, node)
    scope: NameScope | None = context.scope
    while scope is not None:
        found = find(scope, table, name, node)
        if found is not None:
            return Typed(found.sql, found.type)
        scope = scope.outer
    return _unresolved(context, table, name, node)


def find(scope: NameScope, table: str | None, name: str, node: exp.Expr) -> NamedColumn | None:
    """What a name means among the relations of one FROM."""
    if table is None:
        for field in scope.merged:
            if field.name == name:
                return field
    matches: list[NamedColumn] = []
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
    scope: NameScope | None = context.scope
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


def _single(query: TranslatedQuery, node: exp.Expr) -> Type:
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
        return _in_query(context, node.this, query, node)
    members = row(node.this)
    if members is not None:
        if (found := lists.row_in(context, node, members)) is not None:
            return Typed(found, BOOL)
        parts = [
            context.expr(exp.EQ(this=node.this.copy(), expression=item.copy())).sql
            for item in node.expressions
        ]
        return Typed(f"({' OR '.join(parts)})", BOOL)
    value = context.expr(node.this)
    items = [context.expr(item) for item in node.expressions]
    kind = matched([value.type, *(item.type for item in items)], compared=True)
    if value.type.name == "bpchar" and kind == TEXT:
        raise refuse("char(n) IN a list with texts is not supported", node, hint="Cast it: x::text IN (…).")
    if len(items) > lists.MANY and (said := lists.one_of(value, items)) is not None:
        return said
    if kind.name == "numeric" or kind.name == "bpchar" or (value.type.name == "date" and kind.name != "date"):
        value, items = exact(value, kind), [exact(item, kind) for item in items]
        return Typed(f"({' OR '.join(compare('=', value, item).sql for item in items)})", BOOL)
    if kind.floating and len(items) > lists.HASHED and (said := lists.one_of(value, items)) is not None:
        return said
    if kind.name == "interval":
        (value, *items), kind = unify([value, *items])
    given = unpruned(value, coerce(value, kind).sql)
    if kind == PARTS:
        tests = [compare("=", value, item).sql for item in items]
        return Typed(f"({' OR '.join(tests)})", BOOL)
    return Typed(f"({given} IN ({', '.join(coerce(item, kind).sql for item in items)}))", BOOL)


def _in_query(context: Context, left: exp.Expr, node: exp.Expr, condition: exp.Expr) -> Typed:
    query = context.query(node)
    members = row(left)
    values = context.exprs(members) if members is not None else [context.expr(left)]
    fields = query.fields
    if fields is not None and len(fields) == len(values):
        for value, field in zip(values, fields, strict=True):
            matched([value.type, field.type], compared=True)
        values = [exact(value, field.type) for value, field in zip(values, fields, strict=True)]
        kinds = [
            joint_type([NamedColumn("", "", value.type), field])
            for value, field in zip(values, fields, strict=True)
        ]
        values = [coerce(value, kind) for value, kind in zip(values, kinds, strict=True)]
        kinds = [_without_blanks(kind, field.type) for kind, field in zip(kinds, fields, strict=True)]
        values = [coerce(value, kind) for value, kind in zip(values, kinds, strict=True)]
        if PARTS in kinds:
            raise refuse("IN with a query of intervals is not supported", left)
        query = retyped(query, kinds)
    sql = ", ".join(value.sql for value in values)
    test = f"({f'({sql})' if len(values) > 1 else sql} IN ({query.sql}))"
    if null_is_false(condition):
        return Typed(test, BOOL)
    if len(values) > 1:
        raise refuse("IN with several columns is only supported as a condition of WHERE", left)
    told = f"(SELECT named_struct('n', count(*), 'k', count(a.x)) FROM ({query.sql}) AS a(x))"
    unsure = f"WHEN {told}.n = 0 THEN false WHEN {sql} IS NULL OR {told}.n > {told}.k THEN NULL"
    return Typed(f"(CASE WHEN {test} THEN true {unsure} ELSE false END)", BOOL)


def _without_blanks(kind: Type, field: Type) -> Type:
    """Texts, if one of the two is a char(n): so both are compared without its blanks."""
    return TEXT if kind.textual and "bpchar" in (kind.name, field.name) else kind


def literal_text(value: Typed) -> str | None:
    """What is written, if the value is a literal that has no type yet."""
    return value.value if value.type.name == "unknown" and isinstance(value.value, str) else None


def joint_type(columns: Sequence[NamedColumn]) -> Type:
    """The type of columns that become one. Among numerics a literal has the digits that are written."""
    kind = common([column.type for column in columns])
    if kind.name == "bpchar" and any(column.literal is not None for column in columns):
        return BPCHAR
    if kind.name != "numeric":
        return kind
    literals = [column.literal for column in columns if column.type.name == "unknown"]
    return common([kind, *(decimal(literal).type for literal in literals if literal is not None)])


def retyped(query: TranslatedQuery, kinds: list[Type]) -> TranslatedQuery:
    """A query whose columns that are bare literals are given the types that PostgreSQL finds for them.

    Intervals are given the parts of those that they stand beside, and char(n) loses its blanks beside a text.
    Moments become of one kind by our own rules: Spark's own cast takes another hour where clocks change.
    """
    if query.fields is None:
        return query
    changed = [
        (field.type.name == "unknown" and kind.name not in ("unknown", "any", "text"))
        or (field.type.name == kind.name == "interval" and field.type != kind)
        or (field.type.name == "bpchar" and kind.name == "text")
        or (field.type.moment and kind.moment and field.type.name != kind.name)
        for field, kind in zip(query.fields, kinds, strict=True)
    ]
    if not any(changed):
        return query
    names = [f"c{i}" for i in range(len(kinds))]
    columns = [
        f"{_retyped(name, field.type, kind) if other else name} AS {quoted(field.name)}"
        for name, kind, field, other in zip(names, kinds, query.fields, changed, strict=True)
    ]
    fields = tuple(
        NamedColumn(field.name, field.sql, kind if other else field.type)
        for field, kind, other in zip(query.fields, kinds, changed, strict=True)
    )
    return TranslatedQuery(f"SELECT {', '.join(columns)} FROM ({query.sql}) AS q({', '.join(names)})", fields)


def _retyped(name: str, given: Type, kind: Type) -> str:
    if given.name == "interval":
        return intervals.converted(Typed(name, given), kind.unit).sql
    if given.moment and kind.moment:
        return cast(Typed(name, given), kind).sql
    return f"CAST({plain(Typed(name, given))} AS {kind.spark})"


def quantified(context: Context, left: exp.Expr, sign: str, right: exp.Expr) -> Typed:
    """``left sign ANY (…)`` and ALL, of a query or of an array."""
    every = isinstance(right, exp.All)
    inner: exp.Expr = right.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if (listed := _array_query(inner)) is not None:
        inner = listed
    if isinstance(inner, exp.Select | exp.Union | exp.Subquery):
        return _quantified_query(context, left, sign, inner, every=every)
    value = context.expr(left)
    if isinstance(inner, exp.Array) and len(inner.expressions) > lists.MANY:
        # Its elements alone: Spark would build the array again for each row.
        members = lists.members(context.exprs(inner.expressions))
        if (listed_ := _listed(sign, value, members, every=every)) is not None:
            return listed_
    items = elements(context, inner, value.type)
    known = lists.elements_of(items)
    if known is not None and (listed_ := _listed(sign, value, known, every=every)) is not None:
        return listed_
    element = items.type.element or ANY
    test = compare(sign, value, Typed("x_e", element)).sql
    if not every:
        return Typed(f"exists({items.sql}, x_e -> {test})", BOOL)
    return Typed(f"forall({items.sql}, x_e -> {test})", BOOL)


def _listed(sign: str, value: Typed, items: list[Typed], *, every: bool) -> Typed | None:
    """``= ANY`` is IN, ``<> ALL`` is NOT IN."""
    if (sign, every) not in (("=", False), ("<>", True)):
        return None
    said = lists.one_of(value, items)
    return said if said is None or not every else Typed(f"(NOT {said.sql})", BOOL)


def _array_query(node: exp.Expr) -> exp.Expr | None:
    """The query of ``ARRAY(SELECT …)``, whose elements are its rows."""
    named = isinstance(node, exp.Anonymous) and node.name.lower() == "array"
    if (isinstance(node, exp.Array) or named) and len(node.expressions) == 1:
        only: exp.Expr = node.expressions[0]
        return only if isinstance(only, exp.Query) else None
    return None


def elements(context: Context, node: exp.Expr, beside: Type) -> Typed:
    """An array whose elements are compared with a value of type ``beside``."""
    items = context.expr(node)
    if items.type.name == "unknown":
        return coerce(items, array(TEXT if beside.name in ("unknown", "any") else beside))
    if items.type.name != "array":
        raise refuse("ANY and ALL want an array or a query", node, sqlstate="42809")
    if items.type.element is not None and items.type.element.name == "unknown":
        return Typed(f"CAST({items.sql} AS {array(beside).spark})", array(beside))
    return items


def _quantified_query(context: Context, left: exp.Expr, sign: str, inner: exp.Expr, *, every: bool) -> Typed:
    condition = left.parent or exp.Null()
    if sign == "=" and not every:
        return _in_query(context, left, inner, condition)
    if sign == "<>" and every:
        # The NOT is ours.
        return Typed(f"(NOT {_in_query(context, left, inner, exp.Null()).sql})", BOOL)
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
