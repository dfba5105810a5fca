"""Functions over windows."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from penstock.sql.rules.core import FUNCTIONS, Context, Typed, name_of, refuse, rule
from penstock.sql.rules.queries.aggregates import call
from penstock.sql.rules.queries.clauses import check_distinct, direction, sortable
from penstock.sql.rules.types import FLOAT8, INT4, INT8, TEXT
from penstock.sql.rules.values.casts import coerce, unify

RANKS = {
    "row_number": INT8, "rank": INT8, "dense_rank": INT8, "percent_rank": FLOAT8, "cume_dist": FLOAT8,
    "ntile": INT4,
}  # fmt: skip
_VALUES = ("lag", "lead", "first_value", "last_value", "nth_value")


@rule(exp.Window)
def _window(context: Context, node: exp.Expr) -> Typed:
    context = replace(context, rows=None)
    inner: exp.Expr = node.this
    bare = inner
    while isinstance(bare, exp.Filter):
        bare = bare.this
    name = str(bare.name).lower()
    if isinstance(bare, exp.AnonymousAggFunc):
        return call(context, inner, _over(context, node, ranked=False))
    if isinstance(inner, exp.Anonymous) and (name in RANKS or name in _VALUES):
        args = context.exprs(inner.expressions)
        over = _over(context, node, ranked=name in RANKS or name in ("lag", "lead"))
        if name in RANKS:
            sizes = ", ".join(f"CAST({arg.sql} AS INT)" for arg in args)
            return Typed(f"CAST({name}({sizes}) OVER {over} AS {RANKS[name].spark})", RANKS[name])
        return _valued(name, args, over)
    raise refuse(f"{name} over a window is not supported", node)


def _valued(name: str, args: list[Typed], over: str) -> Typed:
    value = coerce(args[0], TEXT) if args[0].type.name == "unknown" else args[0]
    rest = [arg.sql for arg in args[1:2]]
    if len(args) > 2:
        (value, default), kind = unify([value, args[2]])
        return Typed(f"{name}({', '.join([value.sql, *rest, default.sql])}) OVER {over}", kind)
    return Typed(f"{name}({', '.join([value.sql, *rest])}) OVER {over}", value.type)


def _over(context: Context, node: exp.Expr, *, ranked: bool) -> str:
    """The text after OVER. A window that only names another is that one."""
    partition, order, spec = _parts(context, node, 0)
    parts = []
    if partition:
        keys_ = context.exprs(partition)
        check_distinct([key.type for key in keys_], node)
        parts.append(f"PARTITION BY {', '.join(key.sql for key in keys_)}")
    if order:
        keys = [f"{sortable(context.expr(item.this)).sql} {direction(item)}" for item in order]
        parts.append(f"ORDER BY {', '.join(keys)}")
    elif ranked:
        parts.append("ORDER BY NULL")
    if spec is not None and not (ranked and not order):
        parts.append(_frame(context, spec))
    return f"({' '.join(parts)})"


def _parts(
    context: Context, node: exp.Expr, depth: int
) -> tuple[list[exp.Expr], list[exp.Expr], exp.Expr | None]:
    alias = node.args.get("alias")
    partition = list(node.args.get("partition_by") or [])
    order = node.args.get("order")
    keys = list(order.expressions) if order is not None else []
    spec = node.args.get("spec")
    if alias is not None and depth < 10:
        base = context.scope.windows.get(name_of(alias))
        if base is None:
            raise refuse(f'window "{alias.name}" does not exist', node, sqlstate="42704")
        above = _parts(context, base, depth + 1)
        partition, keys, spec = partition or above[0], keys or above[1], spec or above[2]
    return partition, keys, spec


def _frame(context: Context, spec: exp.Expr) -> str:
    kind = str(spec.args.get("kind") or "RANGE").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude") is not None:
        exclude = spec.args.get("exclude")
        if kind == "GROUPS" or (exclude is not None and str(exclude.name).upper() != "NO OTHERS"):
            raise refuse("GROUPS and EXCLUDE of a window are not supported", spec)
    ends = []
    for end in ("start", "end"):
        bound, side = spec.args.get(end), spec.args.get(f"{end}_side")
        if bound is None:
            ends.append("CURRENT ROW")
        elif isinstance(bound, exp.Expr):
            ends.append(f"{context.expr(bound).sql} {side}")
        else:
            ends.append(f"{bound} {side or ''}".strip())
    return f"{kind} BETWEEN {ends[0]} AND {ends[1]}"


def _alone(name: str) -> None:
    def body(_call: object) -> Typed:
        raise refuse(f"window function {name} requires an OVER clause", sqlstate="42809")

    FUNCTIONS[name] = body


for _name in (*RANKS, *_VALUES):
    _alone(_name)
