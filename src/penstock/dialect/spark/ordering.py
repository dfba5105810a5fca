"""ORDER BY and LIMIT."""

from __future__ import annotations

from sqlglot import exp

from penstock.dialect.spark.core import Context, refuse


def direction(item: exp.Expr) -> str:
    """How a key sorts. NULLs are PostgreSQL's largest values and Spark's smallest, so it is always said."""
    nulls_first = item.args.get("nulls_first")
    descending = bool(item.args.get("desc"))
    if nulls_first is None:
        nulls_first = descending
    if item.args.get("with_fill") or item.args.get("using"):
        raise refuse("this form of ORDER BY is not supported", item)
    return f"{'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


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
