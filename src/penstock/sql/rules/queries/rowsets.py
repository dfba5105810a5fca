"""Functions that give rows: generate_series, unnest, the elements of json, matches of a pattern."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from penstock.dialect.spark.casts import cast, coerce
from penstock.dialect.spark.core import Context, Field, Query, Typed, refuse
from penstock.dialect.spark.intervals import Parts
from penstock.dialect.spark.types import ANY, INT8, JSON, TEXT, TIMESTAMP, Type, array, common

Array = Callable[[Context, list[Typed], exp.Expr], Typed]
ARRAYS: dict[str, Array] = {}
"""Functions of rows that are the elements of an array."""


def rows_of(context: Context, node: exp.Expr, *, with_ordinality: bool) -> tuple[Query, str]:
    """The query that gives the rows of a function, and the function's name."""
    if isinstance(node, exp.Unnest):
        if len(node.expressions) != 1:
            raise refuse("unnest of several arrays is not supported", node)
        return _exploded(
            context.expr(node.expressions[0]), "unnest", with_ordinality=with_ordinality
        ), "unnest"
    name = node.name.lower()
    args = context.exprs(node.expressions)
    if name == "generate_series" and not with_ordinality:
        found = _range(args)
        if found is not None:
            return found, name
    if name in ARRAYS:
        return _exploded(ARRAYS[name](context, args, node), name, with_ordinality=with_ordinality), name
    if name in ("json_each", "jsonb_each", "json_each_text", "jsonb_each_text") and not with_ordinality:
        return _each(args[0], as_text=name.endswith("text")), name
    raise refuse(f"the function {name} is not supported in FROM", node, sqlstate="42883")


def _range(args: list[Typed]) -> Query | None:
    """A series of whole constants: Spark spreads it over its tasks."""
    values = [arg.value for arg in args]
    if not all(isinstance(value, int) for value in values) or len(args) not in (2, 3):
        return None
    start, end = int(str(values[0])), int(str(values[1]))
    step = int(str(values[2])) if len(values) == 3 else 1
    if step == 0:
        raise refuse("step size cannot equal zero", sqlstate="22023")
    kind = common([arg.type for arg in args])
    stop = end + (1 if step > 0 else -1)
    sql = f"SELECT CAST(id AS {kind.spark}) FROM range({start}, {stop}, {step}, 1)"
    if abs(stop - start) > 1_000_000 * abs(step):
        sql = f"SELECT CAST(id AS {kind.spark}) FROM range({start}, {stop}, {step})"
    return Query(sql, (Field("generate_series", "", kind),))


def _exploded(value: Typed, name: str, *, with_ordinality: bool) -> Query:
    if value.type.name != "array":
        raise refuse(f"{name} wants an array", sqlstate="42883")
    fields = [Field(name, "", value.type.element or ANY)]
    if not with_ordinality:
        return Query(f"SELECT * FROM explode({value.sql}) AS x(e)", tuple(fields))
    fields.append(Field("ordinality", "", INT8))
    return Query(f"SELECT e, CAST(p + 1 AS BIGINT) FROM posexplode({value.sql}) AS x(p, e)", tuple(fields))


def _each(value: Typed, *, as_text: bool) -> Query:
    from penstock.dialect.spark.json import variant

    inner = "variant_get(v, '$', 'string')" if as_text else "to_json(v)"
    sql = f"SELECT k, {inner} FROM explode(CAST({variant(value)} AS MAP<STRING, VARIANT>)) AS x(k, v)"
    return Query(sql, (Field("key", "", TEXT), Field("value", "", TEXT if as_text else JSON)))


def series(_context: Context, args: list[Typed], node: exp.Expr) -> Typed:
    """``generate_series`` as an array."""
    if len(args) not in (2, 3):
        raise refuse("generate_series with this many arguments is not supported", node)
    kind = common([arg.type for arg in args[:2]])
    if kind.integer:
        start, end = (coerce(arg, kind).sql for arg in args[:2])
        step = coerce(args[2], kind).sql if len(args) == 3 else "1"
        up = (
            f"{start} <= {end}"
            if len(args) == 2
            else f"(({step} > 0 AND {start} <= {end}) OR ({step} < 0 AND {start} >= {end}))"
        )
        return Typed(
            f"IF({up}, sequence({start}, {end}, CAST({step} AS {kind.spark})),"
            f" CAST(array() AS {array(kind).spark}))",
            array(kind),
        )
    if kind.moment and len(args) == 3:
        return _moments(args, kind, node)
    raise refuse("generate_series of these types is not supported", node)


def _moments(args: list[Typed], kind: Type, node: exp.Expr) -> Typed:
    # PostgreSQL turns dates into timestamps with time zone; as the zone is the session's, days stay days.
    whole = Type("timestamptz") if kind.name in ("date", "timestamptz") else TIMESTAMP
    start, end = (coerce(arg, whole).sql for arg in args[:2])
    step = cast(args[2], Type("interval", unit="dt")) if args[2].type.name == "unknown" else args[2]
    parts = step.value
    if not isinstance(parts, Parts) or (parts.months < 0 or parts.days < 0 or parts.micros < 0):
        raise refuse("generate_series of moments wants a constant step that goes forward", node)
    amount = f"make_interval(0, {parts.months}, 0, {parts.days}, 0, 0, {parts.micros / 1_000_000:.6f})"
    if parts.months:
        # Each is counted from the one before: after a short month the day stays short.
        count = f"CAST(months_between({end}, {start}) / {parts.months} + 2 AS INT)"
        following = f"element_at(x_acc, -1) + {amount}"
        grown = f"IF({following} <= {end}, array_append(x_acc, {following}), x_acc)"
        values = f"aggregate(sequence(1, {count}), array({start}), (x_acc, x_i) -> {grown})"
    else:
        values = f"sequence({start}, {end}, {amount})"
    empty = f"CAST(array() AS {array(whole).spark})"
    return Typed(f"IF({start} <= {end}, {values}, {empty})", array(whole))


def _unnest(_context: Context, args: list[Typed], node: exp.Expr) -> Typed:
    if len(args) != 1:
        raise refuse("unnest of several arrays is not supported", node)
    return args[0]


ARRAYS["generate_series"] = series
ARRAYS["unnest"] = _unnest
