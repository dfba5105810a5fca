"""FROM: relations, joins, functions that give rows."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.rules.core import (
    Context,
    FromItem,
    NamedColumn,
    NameScope,
    TranslatedQuery,
    Typed,
    alias_of,
    name_of,
    position,
    quoted,
    refuse,
)
from penstock.sql.rules.queries.rowsets import rows_of
from penstock.sql.rules.types import TEXT, common, of_spark
from penstock.sql.rules.values.operators import compare, truth
from penstock.sql.rules.values.texts import plain


def from_clause(context: Context, select: exp.Expr) -> tuple[str, NameScope]:
    """The text after FROM, and what names mean over it."""
    scope = context.scope
    start = select.args.get("from_")
    if start is None:
        return "", scope
    sql, scope = _relation(context, start.this, scope)
    for join in select.args.get("joins") or []:
        sql, scope = _join(context, sql, scope, join)
    return f" FROM {sql}", scope


def _relation(context: Context, node: exp.Expr, scope: NameScope) -> tuple[str, NameScope]:
    """One item of FROM with the joins that hang on it."""
    sql, source = _source(context, node, scope)
    inner = replace(scope, sources=(*scope.sources, *source))
    for join in node.args.get("joins") or []:
        sql, inner = _join(context, sql, inner, join)
    return sql, inner


def _join(context: Context, left: str, scope: NameScope, join: exp.Expr) -> tuple[str, NameScope]:
    odd = set(join.args) & {"global", "match_condition", "hint", "expressions", "pivots"}
    if (
        join.args.get("kind") not in (None, "", "INNER", "OUTER", "CROSS")
        or join.args.get("method") not in (None, "", "NATURAL")
        or any(join.args[name] for name in odd)
    ):
        raise refuse("this join is not supported", join)
    sql, sources = _source(context, join.this, scope)
    hung = join.this.args.get("joins") or []
    if hung:
        inner = replace(scope, sources=sources)
        for other in hung:
            sql, inner = _join(context, sql, inner, other)
        sql, sources = f"({sql})", inner.sources
    side = join.args.get("side") or ""
    condition, using = join.args.get("on"), [name_of(part) for part in join.args.get("using") or []]
    if join.args.get("method") == "NATURAL":
        using = _shared(scope, sources)
    joined = replace(scope, sources=(*scope.sources, *sources))
    if (
        not join.args.get("kind")
        and not side
        and condition is None
        and not using
        and not join.args.get("method")
    ):
        return f"{left} CROSS JOIN {sql}", joined
    if join.args.get("kind") == "CROSS" or (join.args.get("method") and not using):
        return f"{left} CROSS JOIN {sql}", joined
    if using:
        merged = tuple(_merged(scope, sources, name, side, join) for name in using)
        tests = " AND ".join(_using_test(scope, sources, name, join) for name in using)
        joined = replace(
            joined, merged=(*(field for field in scope.merged if field.name not in using), *merged)
        )
        return f"{left} {side} JOIN {sql} ON {tests}".replace("  ", " "), joined
    test = truth(context.inside(joined).expr(condition))
    return f"{left} {side} JOIN {sql} ON {test}".replace("  ", " "), joined


def _shared(scope: NameScope, sources: tuple[FromItem, ...]) -> list[str]:
    left = {field.name for source in scope.sources for field in source.fields or ()}
    return [field.name for source in sources for field in source.fields or () if field.name in left]


def _fields(sources: tuple[FromItem, ...], name: str, join: exp.Expr) -> NamedColumn:
    found = [field for source in sources for field in source.fields or () if field.name == name]
    if not found:
        raise SqlError(
            f'column "{name}" of USING does not exist on both sides',
            sqlstate="42703",
            position=position(join),
        )
    if len(found) > 1:
        raise SqlError(f'column "{name}" of USING is ambiguous', sqlstate="42702", position=position(join))
    return found[0]


def _left(scope: NameScope, name: str, join: exp.Expr) -> NamedColumn:
    for field in scope.merged:
        if field.name == name:
            return field
    return _fields(scope.sources, name, join)


def _using_test(scope: NameScope, sources: tuple[FromItem, ...], name: str, join: exp.Expr) -> str:
    left, right = _left(scope, name, join), _fields(sources, name, join)
    if "bpchar" in (left.type.name, right.type.name):
        return compare("=", Typed(left.sql, left.type), Typed(right.sql, right.type), join).sql
    return f"{left.sql} = {right.sql}"


def _merged(
    scope: NameScope, sources: tuple[FromItem, ...], name: str, side: str, join: exp.Expr
) -> NamedColumn:
    left, right = _left(scope, name, join), _fields(sources, name, join)
    kind = common([left.type, right.type])
    one, other = (plain(Typed(f.sql, f.type)) if kind == TEXT else f.sql for f in (left, right))
    if side == "FULL":
        return NamedColumn(name, f"coalesce({one}, {other})", kind)
    return NamedColumn(name, other if side == "RIGHT" else one, kind)


def _source(context: Context, node: exp.Expr, scope: NameScope) -> tuple[str, tuple[FromItem, ...]]:
    alias = node.args.get("alias")
    name = name_of(alias.this) if alias is not None and alias.this is not None else ""
    columns = [name_of(_bare(part)) for part in alias.args.get("columns") or []] if alias is not None else []
    if isinstance(node, exp.Table) and not isinstance(node.this, exp.Func):
        return _table(context, node, name, columns)
    if node.args.get("sample") or node.args.get("pivots"):
        raise refuse("samples and pivots are not supported", node)
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        # A join in parentheses.
        inner_sql, inner = _relation(context, node.this, replace(scope, sources=()))
        return f"({inner_sql})", inner.sources
    if isinstance(node, exp.Subquery | exp.Values):
        return _derived(context.query(node), name, columns, "")
    if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
        query = context.inside(scope).query(node.this)
        return _derived(query, name, columns, "LATERAL ")
    return _function(context, node, scope, name, columns)


def _bare(part: exp.Expr) -> exp.Expr:
    return part.this if isinstance(part, exp.ColumnDef) else part


def _table(
    context: Context, node: exp.Table, alias: str, columns: list[str]
) -> tuple[str, tuple[FromItem, ...]]:
    if any(
        node.args.get(name)
        for name in ("sample", "pivots", "version", "when", "changes", "hints", "partition")
    ):
        raise refuse("this form of a relation is not supported", node)
    path = tuple(name_of(part) for part in node.parts)
    name = alias or path[-1]
    cte = context.scope.ctes.get(path[0]) if len(path) == 1 else None
    if cte is not None:
        return _named(cte.sql, cte.fields, name, columns)
    found = context.target(path)
    if found is None:
        shown = ".".join(path)
        raise SqlError(f'relation "{shown}" does not exist', sqlstate="42P01", position=position(node))
    fields = tuple(NamedColumn(column, "", of_spark(kind)) for column, kind in found.columns.items())
    return _named(found.name, fields, name, columns)


def _named(
    sql: str, fields: tuple[NamedColumn, ...] | None, name: str, columns: list[str]
) -> tuple[str, tuple[FromItem, ...]]:
    """A relation under its alias. Names of columns are renamed here only: Spark sees its own."""
    if fields is None:
        names = f"({', '.join(map(quoted, columns))})" if columns else ""
        return f"{sql} AS {alias_of(name)}{names}", (FromItem(name, None),)
    if len(columns) > len(fields):
        raise SqlError(
            f'table "{name}" has {len(fields)} columns available but {len(columns)} specified',
            sqlstate="42P10",
        )
    doubled = len({field.name.lower() for field in fields}) != len(fields)
    if doubled:
        # Spark finds columns by name, whatever their case: columns that share one are given names of ours.
        inner = [f"c{i}" for i in range(len(fields))]
        sql = f"{sql} AS {alias_of(name)}({', '.join(inner)})"
    else:
        inner = [field.name for field in fields]
        sql = f"{sql} AS {alias_of(name)}"
    shown = [*columns, *(field.name for field in fields[len(columns) :])]
    made = tuple(
        NamedColumn(label, f"{alias_of(name)}.{quoted(spark)}", field.type)
        for label, spark, field in zip(shown, inner, fields, strict=True)
    )
    return sql, (FromItem(name, made),)


def _derived(
    query: TranslatedQuery, name: str, columns: list[str], lateral: str
) -> tuple[str, tuple[FromItem, ...]]:
    return _named(f"{lateral}({query.sql})", query.fields, name or "unnamed_subquery", columns)


def _function(
    context: Context, node: exp.Expr, scope: NameScope, name: str, columns: list[str]
) -> tuple[str, tuple[FromItem, ...]]:
    """A function that gives rows; it may name what stands before it in FROM."""
    inner = node
    ordinal = None
    while isinstance(inner, exp.Lateral | exp.Table):
        ordinal = ordinal or inner.args.get("ordinality")
        inner = inner.this
    offset = inner.args.get("offset")
    with_ordinality = bool(ordinal or offset)
    if isinstance(offset, exp.Identifier):
        columns = [*columns, name_of(offset)]
    here = context.inside(replace(scope, outer=context.scope.outer))
    rows, called = rows_of(here, inner, with_ordinality=with_ordinality)
    name = name or called
    fields = list(rows.fields or ())
    if len(fields) == 1 + with_ordinality and not columns:
        # A function with one column is named like its alias.
        fields[0] = replace(fields[0], name=name if name != called else fields[0].name)
    shown = [*columns, *(field.name for field in fields[len(columns) :])]
    inside = [f"f{i}" for i in range(len(fields))]
    made = tuple(
        NamedColumn(label, f"{alias_of(name)}.{spark}", field.type)
        for label, spark, field in zip(shown, inside, fields, strict=True)
    )
    lateral = "LATERAL " if scope.sources else ""
    return f"{lateral}({rows.sql}) AS {alias_of(name)}({', '.join(inside)})", (FromItem(name, made),)
