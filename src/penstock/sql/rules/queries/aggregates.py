"""Aggregates: alone, with FILTER and WITHIN GROUP, and over windows."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.rules.core import (
    AGGREGATES,
    AggregateCall,
    Context,
    Typed,
    aggregate,
    between,
    refuse,
    rule,
)
from penstock.sql.rules.queries.clauses import check_distinct, direction
from penstock.sql.rules.time import intervals
from penstock.sql.rules.types import (
    BOOL,
    FLOAT4,
    FLOAT8,
    INT4,
    INT8,
    PARTS,
    ROUGH,
    TEXT,
    Type,
    array,
    decimal,
    numeric,
)
from penstock.sql.rules.values.casts import cast, coerce
from penstock.sql.rules.values.decimals import divide
from penstock.sql.rules.values.operators import double, ranked, row, truth
from penstock.sql.rules.values.texts import plain, to_text


@rule(exp.AnonymousAggFunc, exp.Filter, exp.WithinGroup)
def _aggregate(context: Context, node: exp.Expr) -> Typed:
    return call(context, node, None)


def call(context: Context, node: exp.Expr, over: str | None) -> Typed:
    """An aggregate with all that hangs on it."""
    context = replace(context, rows=None)
    condition: str | None = None
    same_for_all = False
    order: list[exp.Expr] = []
    inner = node
    while isinstance(inner, exp.Filter | exp.WithinGroup):
        if isinstance(inner, exp.Filter):
            asked = inner.args["expression"].this
            condition = truth(context.expr(asked))
            same_for_all = asked.find(exp.Column, exp.Query) is None
        else:
            order = inner.args["expression"].expressions
        inner = inner.this
    name = str(inner.name).lower()
    found = AGGREGATES.get(name)
    if found is None:
        raise refuse(f"the aggregate {name} is not supported", node)
    nodes = list(inner.expressions)
    distinct = bool(nodes) and isinstance(nodes[0], exp.Distinct)
    if distinct:
        nodes = list(nodes[0].expressions)
    if nodes and isinstance(nodes[-1], exp.Order):
        order = nodes[-1].expressions
        nodes[-1] = nodes[-1].this
    if nodes and isinstance(nodes[-1], exp.Distinct):
        distinct, nodes = True, [*nodes[:-1], *nodes[-1].expressions]
    star = bool(nodes) and isinstance(nodes[0], exp.Star)
    rows = row(nodes[0]) if nodes and name == "count" else None
    args = [] if star else context.exprs(rows if rows is not None else nodes)
    keys = tuple((context.expr(item.this), direction(item)) for item in order)
    if any(key.type == PARTS for key, _ in keys):
        raise refuse(f"{name} in the order of intervals of several parts is not supported", node)
    if any(key.type.name in ("array", "json", "jsonb") for key, _ in keys):
        raise refuse(f"{name} in the order of arrays or json is not supported", node)
    if distinct:
        check_distinct([arg.type for arg in args], node)
    made = AggregateCall(context, name, args, inner, distinct, keys, condition, over)
    if rows is not None:
        # A row is counted even if members are NULL.
        made = replace(made, args=[Typed(f"struct({', '.join(arg.sql for arg in args)})", Type("record"))])
    if over and condition and same_for_all:
        return _chosen(condition, found(replace(made, filter=None)), name)
    return found(made)


def _chosen(condition: str, value: Typed, name: str) -> Typed:
    """A window over all rows or none. Spark cannot plan one with a FILTER that is always false."""
    empty = "0" if name in ("count", "regr_count") else "NULL"
    return Typed(f"IF({condition}, {value.sql}, CAST({empty} AS {value.type.spark}))", value.type)


@aggregate("count")
def _count(call: AggregateCall) -> Typed:
    return Typed(call.wrap("count", call.args[0].sql if call.args else "*"), INT8)


def _number(call: AggregateCall, place: int = 0) -> Typed:
    value = call.args[place]
    if value.type.name == "unknown":
        value = cast(value, FLOAT8)
    if not value.type.number:
        raise call.refuse(f"a value of type {value.type.name} is not supported")
    return value


@aggregate("sum")
def _sum(call: AggregateCall) -> Typed:
    if call.args[0].type.name == "interval":
        return _sum_of_intervals(call)
    value = _number(call)
    if value.type.name in ("int2", "int4"):
        return Typed(call.wrap("sum", value.sql), INT8)
    if value.type.name == "int8":
        return Typed(call.wrap("sum", f"CAST({value.sql} AS DECIMAL(20,0))"), numeric(30, 0))
    if value.type.name == "float4":
        return Typed(f"CAST({call.wrap('sum', value.sql)} AS FLOAT)", FLOAT4)
    kind = (
        FLOAT8 if value.type.floating else replace(value.type, precision=min(38, value.type.precision + 10))
    )
    return Typed(call.wrap("sum", value.sql), kind)


def _sum_of_intervals(call: AggregateCall) -> Typed:
    """Months, days and the rest, each by itself."""
    value = call.args[0]
    if value.type.unit == "ym":
        return Typed(call.wrap("sum", value.sql), value.type)
    if call.distinct:
        raise call.refuse("DISTINCT intervals are not supported")
    parts = (call.wrap("sum", part(value)) for part in (intervals.months, intervals.days, intervals.micros))
    return intervals.of_parts(*parts)


@aggregate("avg")
def _avg(call: AggregateCall) -> Typed:
    """A numeric's average is its sum divided by its count: Spark's own keeps only four more digits."""
    if call.args[0].type.name == "interval":
        count = Typed(call.wrap("count", call.args[0].sql), INT8)
        total = _sum_of_intervals(call)
        # Of no rows there is no average, and nothing is divided.
        return Typed(f"IF({count.sql} = 0, NULL, {intervals.scaled(total, count, '/').sql})", PARTS)
    value = _number(call)
    if value.type.floating:
        return Typed(call.wrap("avg", double(value)), FLOAT8)
    total = _sum(call)
    return divide(total.sql, decimal(total.type), call.wrap("count", value.sql), numeric(20, 0))


@aggregate("min", "max")
def _extreme(call: AggregateCall) -> Typed:
    value = coerce(call.args[0], TEXT) if call.args[0].type.name == "unknown" else call.args[0]
    if value.type.name in ("json", "jsonb", "bool", "record", "uuid", "bytea"):
        raise call.refuse(f"there is none for {value.type.name}")
    if value.type == PARTS or value.type.name in ("array", "bpchar"):
        size = {"interval": intervals.size, "array": ranked, "bpchar": plain}[value.type.name](value)
        return Typed(call.wrap(f"{call.name}_by", f"{value.sql}, {size}", distinct=False), value.type)
    return Typed(call.wrap(call.name, value.sql, distinct=False), value.type)


@aggregate("bool_and", "bool_or", "every")
def _truths(call: AggregateCall) -> Typed:
    return Typed(call.wrap(call.name, truth(call.args[0]), distinct=False), BOOL)


@aggregate("bit_and", "bit_or", "bit_xor")
def _bits(call: AggregateCall) -> Typed:
    if not call.args[0].type.integer:
        raise call.refuse("integers are wanted")
    return Typed(call.wrap(call.name, call.args[0].sql), call.args[0].type)


@aggregate("any_value")
def _any_value(call: AggregateCall) -> Typed:
    return Typed(call.wrap("any_value", f"{call.args[0].sql}, true", distinct=False), call.args[0].type)


@aggregate("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop")
def _spread(call: AggregateCall) -> Typed:
    value = _number(call)
    rough = value.type.integer or value.type.name == "numeric" or value.type == ROUGH
    return Typed(call.wrap(call.name, double(value)), ROUGH if rough else FLOAT8)


@aggregate("corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept",
           "regr_r2",
           "regr_slope", "regr_sxx", "regr_sxy", "regr_syy")  # fmt: skip
def _pairs(call: AggregateCall) -> Typed:
    call.expect(2)
    sql = call.wrap(call.name, f"{double(_number(call))}, {double(_number(call, 1))}")
    return Typed(sql, INT8 if call.name == "regr_count" else FLOAT8)


@aggregate("grouping")
def _grouping(call: AggregateCall) -> Typed:
    parts = [
        f"shiftleft(CAST(grouping({arg.sql}) AS INT), {len(call.args) - 1 - i})"
        for i, arg in enumerate(call.args)
    ]
    return Typed(f"({' + '.join(parts)})", INT4)


def _keys(call: AggregateCall) -> str:
    return ", ".join(f"{key.sql} {way}" for key, way in call.order)


@aggregate("string_agg")
def _string_agg(call: AggregateCall) -> Typed:
    call.expect(2)
    value, mark = call.args
    if value.type.name == "bytea":
        raise call.refuse("bytea is not supported")
    order = _keys(call)
    if call.over and order:
        raise call.refuse("ORDER BY over a window is not supported")
    sql = to_text(value)
    if call.distinct and not order and not call.over:
        order = f"{sql} ASC NULLS LAST"
    within = f" WITHIN GROUP (ORDER BY {order})" if order else ""
    delimiter = to_text(mark)
    if mark.value is None and mark.type.name == "unknown":
        delimiter = "''"
    return Typed(call.wrap("listagg", f"{sql}, {delimiter}", within=within), TEXT)


@aggregate("array_agg")
def _array_agg(call: AggregateCall) -> Typed:
    """All values, NULLs too, in order; NULL where there is no row."""
    call.expect(1)
    value = coerce(call.args[0], TEXT) if call.args[0].type.name == "unknown" else call.args[0]
    return Typed(nonempty(ordered(call, value.sql)), array(value.type))


def nonempty(sql: str) -> str:
    return f"nullif({sql}, array())"


def ordered(call: AggregateCall, sql: str) -> str:
    """The values of a group as an array, in the order that is asked for."""
    if call.over and (call.order or call.distinct):
        raise call.refuse("DISTINCT and ORDER BY over a window are not supported")
    if call.distinct:
        # PostgreSQL finds duplicates by sorting, so they come sorted.
        way = call.order[0][1] if call.order else "ASC NULLS LAST"
        if call.order and (len(call.order) > 1 or call.order[0][0].sql != sql):
            raise call.refuse("with DISTINCT, ORDER BY can only name the argument")
        values = f"array_distinct({_collected(call, sql)})"
        return f"array_sort({values}, (l, r) -> {_comparison([('l', 'r', way)])})"
    if not call.order:
        return _collected(call, sql)
    fields = ", ".join([f"{sql} AS v", *(f"{key.sql} AS k{i}" for i, (key, _) in enumerate(call.order))])
    rows = _collected(call, f"struct({fields})")
    ways = [(f"l.k{i}", f"r.k{i}", way) for i, (_, way) in enumerate(call.order)]
    return f"transform(array_sort({rows}, (l, r) -> {_comparison(ways)}), s -> s.v)"


def _collected(call: AggregateCall, sql: str) -> str:
    text = f"array_agg({sql}) RESPECT NULLS"
    if call.filter:
        text = f"array_agg({sql}) FILTER (WHERE {call.filter}) RESPECT NULLS"
    return f"{text} OVER {call.over}" if call.over else text


def _comparison(ways: list[tuple[str, str, str]]) -> str:
    """Which of two comes first: -1, 0 or 1."""
    parts = []
    for left, right, way in ways:
        down, first = way.startswith("DESC"), way.endswith("FIRST")
        before, after = ("-1", "1") if first else ("1", "-1")
        less, more = ("1", "-1") if down else ("-1", "1")
        parts.append(f"WHEN {left} IS NULL AND {right} IS NOT NULL THEN {before}")
        parts.append(f"WHEN {left} IS NOT NULL AND {right} IS NULL THEN {after}")
        parts.append(f"WHEN {left} < {right} THEN {less} WHEN {left} > {right} THEN {more}")
    return f"CASE {' '.join(parts)} ELSE 0 END"


@aggregate("percentile_cont", "percentile_disc")
def _percentile(call: AggregateCall) -> Typed:
    call.expect(1)
    if len(call.order) != 1:
        raise call.refuse("WITHIN GROUP (ORDER BY …) is wanted")
    key, way = call.order[0]
    share = call.args[0]
    several = share.type.name == "array"
    if share.type.name == "unknown" and share.value is not None:
        share = cast(share, FLOAT8)
    fraction = f"CAST({share.sql} AS ARRAY<DOUBLE>)" if several else double(share)
    down = "DESC" if way.startswith("DESC") else "ASC"
    if call.name == "percentile_cont":
        if not key.type.number:
            raise call.refuse(f"a value of type {key.type.name} is not supported")
        if "nan" in fraction.lower():
            # Spark wants a constant, and checks it, but for this one.
            raise SqlError("percentile value NaN is not between 0 and 1", sqlstate="22003")
        within = f" WITHIN GROUP (ORDER BY {double(key)} {down})"
        made = call.wrap("percentile_cont", fraction, within=within)
        if key.type.floating:
            made = _without_infinity(call, double(key), made, "ARRAY<DOUBLE>" if several else "DOUBLE")
        if not several:
            return Typed(made, FLOAT8)
        # A share that is NULL is 0 to Spark.
        shares = f"(x_p, x_i) -> IF({fraction}[x_i] IS NULL, NULL, x_p)"
        return Typed(f"transform({made}, {shares})", array(FLOAT8))
    # Spark's own gives doubles: take the value itself from the sorted ones.
    values = _collected(replace(call, order=()), key.sql)
    present = f"filter({values}, x_e -> x_e IS NOT NULL)"
    sort = f"sort_array({present}, {'false' if down == 'DESC' else 'true'})"
    picked = _picked("x_f" if several else fraction, key)
    if several:
        picked = f"IF(size(x_a) > 0, transform({fraction}, x_f -> {picked}), NULL)"
    return Typed(f"transform(array({sort}), x_a -> {picked})[0]", array(key.type) if several else key.type)


def _without_infinity(call: AggregateCall, key: str, made: str, kind: str) -> str:
    """What lies between infinity and something else is infinity to Spark, and NaN to PostgreSQL."""
    infinite = call.wrap("bool_or", f"abs({key}) = DOUBLE('Infinity')")
    fault = "raise_error('percentile_cont of infinite values is not supported')"
    return f"IF({infinite}, CAST({fault} AS {kind}), {made})"


def _picked(share: str, key: Typed) -> str:
    """The value of the sorted ones up to which a share of them lies."""
    fault = "raise_error('a percentile value is not between 0 and 1')"
    return (
        f"CASE WHEN {share} IS NULL THEN NULL WHEN {between(0, share, 1)}"
        f" THEN get(x_a, greatest(1, CAST(ceil({share} * size(x_a)) AS INT)) - 1)"
        f" ELSE CAST({fault} AS {key.type.spark}) END"
    )


@aggregate("mode")
def _mode(call: AggregateCall) -> Typed:
    key, way = call.order[0]
    check_distinct([key.type], call.node)
    down = "DESC" if way.startswith("DESC") else "ASC"
    return Typed(call.wrap("mode", "", within=f" WITHIN GROUP (ORDER BY {key.sql} {down})"), key.type)
