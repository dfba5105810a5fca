"""Functions that give rows: generate_series, unnest, the elements of json, matches of a pattern."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from penstock.sql.parse.interval_input import Parts
from penstock.sql.rules.core import Context, NamedColumn, TranslatedQuery, Typed, refuse
from penstock.sql.rules.time import intervals, zones
from penstock.sql.rules.time.moments import shifted
from penstock.sql.rules.types import ANY, INT8, TEXT, TIMESTAMP, Type, array, common
from penstock.sql.rules.values.casts import cast, coerce

Array = Callable[[Context, list[Typed], exp.Expr], Typed]
ARRAYS: dict[str, Array] = {}
"""Functions of rows that are the elements of an array."""


def rows_of(context: Context, node: exp.Expr, *, with_ordinality: bool) -> tuple[TranslatedQuery, str]:
    """The query that gives the rows of a function, and the function's name."""
    if isinstance(node, exp.Unnest):
        if len(node.expressions) != 1:
            return _side_by_side(
                context.exprs(node.expressions), node, with_ordinality=with_ordinality
            ), "unnest"
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
        return _each(args[0], name), name
    raise refuse(f"the function {name} is not supported in FROM", node, sqlstate="42883")


def _range(args: list[Typed]) -> TranslatedQuery | None:
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
    return TranslatedQuery(sql, (NamedColumn("generate_series", "", kind),))


def _exploded(value: Typed, name: str, *, with_ordinality: bool) -> TranslatedQuery:
    if value.type.name != "array":
        raise refuse(f"{name} wants an array", sqlstate="42883")
    fields = [NamedColumn(name, "", value.type.element or ANY)]
    if not with_ordinality:
        return TranslatedQuery(f"SELECT * FROM explode({value.sql}) AS x(e)", tuple(fields))
    fields.append(NamedColumn("ordinality", "", INT8))
    return TranslatedQuery(
        f"SELECT e, CAST(p + 1 AS BIGINT) FROM posexplode({value.sql}) AS x(p, e)", tuple(fields)
    )


def _side_by_side(values: list[Typed], node: exp.Expr, *, with_ordinality: bool) -> TranslatedQuery:
    if any(value.type.name != "array" for value in values):
        raise refuse("unnest wants arrays", node, sqlstate="42883")
    fields = [NamedColumn("unnest", "", value.type.element or ANY) for value in values]
    zipped = f"arrays_zip({', '.join(f'coalesce({value.sql}, array())' for value in values)})"
    names = ", ".join(f"e{i}" for i in range(len(values)))
    if not with_ordinality:
        return TranslatedQuery(f"SELECT * FROM inline({zipped}) AS x({names})", tuple(fields))
    members = ", ".join(f"s.`{i}`" for i in range(len(values)))
    fields.append(NamedColumn("ordinality", "", INT8))
    sql = f"SELECT {members}, CAST(p + 1 AS BIGINT) FROM posexplode({zipped}) AS x(p, s)"
    return TranslatedQuery(sql, tuple(fields))


def _each(value: Typed, name: str) -> TranslatedQuery:
    from penstock.sql.rules.json import text
    from penstock.sql.rules.json.access import each

    as_text = name.endswith("text")
    inner = text.shown("v", binary=False) if as_text else "v"
    sql = f"SELECT k, {inner} FROM inline({each(name, value)}) AS x(k, v)"
    kind = TEXT if as_text else Type(name.partition("_")[0])
    return TranslatedQuery(sql, (NamedColumn("key", "", TEXT), NamedColumn("value", "", kind)))


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
    amount = intervals.moving(step)
    on_clocks = whole.name == "timestamptz" and zones.clocks_change() and bool(parts.days)
    if parts.months or on_clocks:
        # Each is counted from the one before: after a short month the day stays short, and after an hour that
        # clocks leave out, the hour stays the one that was taken instead.
        count = (
            f"CAST(months_between({end}, {start}) / {parts.months} + 2 AS INT)"
            if parts.months
            else f"(datediff({end}, {start}) DIV {parts.days} + 2)"
        )
        following = shifted(Typed("element_at(x_acc, -1)", whole), step, "+").sql
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
