"""The clauses of SELECT: its list, GROUP BY, ORDER BY and LIMIT."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.rules.core import Context, NamedColumn, NameScope, Typed, name_of, position, refuse
from penstock.sql.rules.queries.membership import find
from penstock.sql.rules.time import intervals
from penstock.sql.rules.types import BPCHAR, PARTS, TEXT, Type, numeric
from penstock.sql.rules.values.operators import ranked
from penstock.sql.rules.values.texts import plain


def output_of(fields: Sequence[NamedColumn] | None, node: exp.Expr) -> int | None:
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


def _star(scope: NameScope, table: str, node: exp.Expr) -> list[NamedColumn] | None:
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
        return str(place) if items[place - 1][1].value is not None else _alike(items[place - 1][1], part)
    if isinstance(part, exp.Column) and not part.args.get("table") and items is not None:
        # A column of FROM comes before an output column of that name.
        name = name_of(part.this)
        if find(context.scope, None, name, part) is None:
            places = [i for i, (label, _) in enumerate(items) if label == name]
            if places:
                found = items[places[0]][1]
                return str(places[0] + 1) if found.value is not None else _alike(found, part)
    return _alike(context.expr(part), part)


def _alike(value: Typed, node: exp.Expr) -> str:
    """A key to group by: what Spark takes for one value is what PostgreSQL takes for one."""
    check_distinct([value.type], node)
    return value.sql


def check_distinct(kinds: Sequence[Type], node: exp.Expr) -> None:
    """Refuse types of which different values are equal, where equal ones become one."""
    single = [kind.element if kind.name == "array" else kind for kind in kinds]
    if any(kind is not None and kind.name in ("json", "jsonb") for kind in single):
        raise refuse("json cannot be grouped or sorted", node, hint="Use its text: (…)::text.")
    if PARTS in single:
        raise refuse(
            "intervals of several parts cannot be grouped: 1 mon equals 30 days",
            node,
            hint="Group by extract(epoch from …).",
        )
    if BPCHAR in single:
        raise refuse(
            "values of type bpchar cannot be grouped if they may have different numbers of blanks at the end",
            node,
            hint="Cast them: (…)::text, or (…)::char(10).",
        )


def order_of(
    context: Context,
    node: exp.Expr,
    fields: Sequence[NamedColumn] | None,
    items: Sequence[tuple[str, Typed]] | None,
) -> str:
    order = node.args.get("order")
    if order is None:
        return ""
    return " ORDER BY " + ", ".join(_key(context, item, fields, items) for item in order.expressions)


def _key(
    context: Context,
    item: exp.Expr,
    fields: Sequence[NamedColumn] | None,
    items: Sequence[tuple[str, Typed]] | None,
) -> str:
    place = output_of(fields, item.this)
    if place is not None:
        if fields is not None and not 1 <= place <= len(fields):
            raise SqlError(
                f"ORDER BY position {place} is not in select list", sqlstate="42P10", position=position(item)
            )
        if items is not None and (key := sortable(items[place - 1][1])) != items[place - 1][1]:
            return f"{key.sql} {direction(item)}"
        return f"{place} {direction(item)}"
    value = sortable(context.expr(item.this))
    sql = f"{value.sql} || ''" if value.value is not None and value.type.name == "unknown" else value.sql
    return f"{sql} {direction(item)}"


def direction(item: exp.Expr) -> str:
    """How a key sorts. NULLs are PostgreSQL's largest values and Spark's smallest, so it is always said."""
    nulls_first = item.args.get("nulls_first")
    descending = bool(item.args.get("desc"))
    if nulls_first is None:
        nulls_first = descending
    if item.args.get("with_fill") or item.args.get("using"):
        raise refuse("this form of ORDER BY is not supported", item)
    return f"{'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


def sortable(value: Typed) -> Typed:
    """A key by which Spark can sort: it knows no order among intervals with all their parts.

    Nor does it pass over blanks at the end of a bpchar.
    """
    if value.type.name in ("json", "jsonb"):
        raise refuse("json cannot be sorted", hint="Sort by its text: (…)::text.")
    if value.type == BPCHAR:
        return Typed(plain(value), TEXT)
    if value.type.name == "array":
        return Typed(ranked(value), value.type)
    return Typed(intervals.size(value), numeric(38, 0)) if value.type == PARTS else value


def limits(context: Context, node: exp.Expr) -> str:
    """LIMIT and OFFSET, however they are written."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    count = None
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
            raise refuse("FETCH … WITH TIES is not supported", node)
        count = limit.args.get("count") or exp.Literal.number(1)
    elif limit is not None:
        count = limit.args["expression"]
    sql = ""
    if count is not None and not isinstance(count, exp.Null) and str(count.name).upper() != "ALL":
        sql += f" LIMIT {_count(context, count)}"
    if offset is not None and not isinstance(offset.args["expression"], exp.Null):
        sql += f" OFFSET {_count(context, offset.args['expression'])}"
    return sql


def _count(context: Context, node: exp.Expr) -> str:
    value = context.expr(node)
    if isinstance(value.value, int):
        # Spark counts rows to keep in 32 bits.
        return str(min(value.value, 2**31 - 1))
    return f"CAST({value.sql} AS INT)"
