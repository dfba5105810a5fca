"""The clauses of SELECT: its list, GROUP BY and ORDER BY."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.dialect.spark.core import Context, Field, Scope, Typed, name_of, position, refuse
from penstock.dialect.spark.membership import find
from penstock.dialect.spark.ordering import direction
from penstock.errors import SqlError


def output_of(fields: Sequence[Field] | None, node: exp.Expr) -> int | None:
    """The number of the output column that is named, if one is."""
    if isinstance(node, exp.Literal) and not node.args.get("is_string"):
        return int(node.name)
    if isinstance(node, exp.Column) and not node.args.get("table") and fields is not None:
        name = name_of(node.this)
        found = [i for i, field in enumerate(fields) if field.name == name]
        if found:
            return found[0] + 1
    return None


def items_of(context: Context, node: exp.Expr) -> list[tuple[str, Typed]] | None:
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


def group_of(context: Context, node: exp.Expr, items: Sequence[tuple[str, Typed]] | None) -> str:
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


def order_of(context: Context, node: exp.Expr, fields: Sequence[Field] | None) -> str:
    order = node.args.get("order")
    if order is None:
        return ""
    return " ORDER BY " + ", ".join(_key(context, item, fields) for item in order.expressions)


def _key(context: Context, item: exp.Expr, fields: Sequence[Field] | None) -> str:
    place = output_of(fields, item.this)
    if place is not None:
        if fields is not None and not 1 <= place <= len(fields):
            raise SqlError(
                f"ORDER BY position {place} is not in select list", sqlstate="42P10", position=position(item)
            )
        return f"{place} {direction(item)}"
    value = context.expr(item.this)
    sql = f"{value.sql} || ''" if value.value is not None and value.type.name == "unknown" else value.sql
    return f"{sql} {direction(item)}"
