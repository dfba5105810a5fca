"""Functions on dates, timestamps and intervals."""

from __future__ import annotations

from sqlglot import exp

from penstock.dialect.spark import intervals
from penstock.dialect.spark.casts import cast, coerce
from penstock.dialect.spark.core import FUNCTIONS, Call, Context, Typed, function, refuse, rule
from penstock.dialect.spark.formats import moment_text, number_text, parsed
from penstock.dialect.spark.operators import double
from penstock.dialect.spark.rowsets import ARRAYS
from penstock.dialect.spark.types import (
    BOOL,
    DATE,
    DAYTIME,
    INT4,
    MONTHS,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Type,
)  # fmt: skip

_TRUNCATED = frozenset(
    {"microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year"}
)


@function("date_trunc")
def _date_trunc(call: Call) -> Typed:
    call.expect(2, 3)
    unit = str(call.args[0].value).lower()
    value = call.args[1]
    if value.type.name == "unknown":
        value = cast(value, TIMESTAMPTZ)
    if len(call.args) == 3:
        raise call.refuse("a time zone is not supported")
    if not value.type.moment:
        raise call.refuse(f"a value of type {value.type.name} is not supported")
    kind = TIMESTAMPTZ if value.type.name == "date" else value.type
    if unit in ("decade", "century", "millennium"):
        size = {"decade": 10, "century": 100, "millennium": 1000}[unit]
        first = (
            f"CAST(floor(year({value.sql}) / 10) * 10 AS INT)"
            if size == 10
            else f"CAST((ceil(year({value.sql}) / {size}) - 1) * {size} + 1 AS INT)"
        )
        return Typed(f"CAST(make_date({first}, 1, 1) AS {kind.spark})", kind)
    if unit not in _TRUNCATED:
        raise call.refuse(f'the unit "{unit}" is not supported')
    word = {"microseconds": "MICROSECOND", "milliseconds": "MILLISECOND"}.get(unit, unit.upper())
    if value.type.name == "date" and word in ("DAY", "HOUR", "MINUTE", "SECOND"):
        return Typed(f"CAST({value.sql} AS {kind.spark})", kind)
    if value.type.name == "date":
        return Typed(f"CAST(trunc({value.sql}, '{word}') AS {kind.spark})", kind)
    return Typed(f"CAST(date_trunc('{word}', {value.sql}) AS {kind.spark})", kind)


@rule(exp.CurrentDate)
def _today(_context: Context, _node: exp.Expr) -> Typed:
    return Typed("current_date()", DATE)


@rule(exp.CurrentTimestamp)
def _now(_context: Context, _node: exp.Expr) -> Typed:
    return Typed("current_timestamp()", TIMESTAMPTZ)


@rule(exp.Localtimestamp)
def _local(_context: Context, _node: exp.Expr) -> Typed:
    return Typed("localtimestamp()", TIMESTAMP)


@function("now", "transaction_timestamp", "statement_timestamp", "clock_timestamp", "current_timestamp")
def _nows(call: Call) -> Typed:
    call.expect(0)
    return Typed("current_timestamp()", TIMESTAMPTZ)


@rule(exp.AtTimeZone)
def _zone(context: Context, node: exp.Expr) -> Typed:
    return at_zone(context.expr(node.this), context.expr(node.args["zone"]), node)


@function("timezone")
def _timezone(call: Call) -> Typed:
    call.expect(2)
    return at_zone(call.args[1], call.args[0], call.node)


def at_zone(value: Typed, zone: Typed, node: exp.Expr) -> Typed:
    """A timestamp of a zone becomes a moment; a moment becomes what the zone's clocks show."""
    if zone.type.name == "interval":
        raise refuse("a zone that is an interval is not supported", node)
    name = zone.value
    if isinstance(name, str) and name[:1] in "+-":
        # POSIX signs are the other way round.
        raise refuse(
            "a zone that is an offset is not supported", node, hint="Use a name, such as Europe/Berlin."
        )
    if value.type.name == "unknown":
        value = cast(value, TIMESTAMPTZ)
    if value.type.name == "date":
        value = coerce(value, TIMESTAMPTZ)
    spelled = coerce(zone, TEXT).sql
    if value.type.name == "timestamptz":
        return Typed(
            f"convert_timezone(current_timezone(), {spelled}, CAST({value.sql} AS TIMESTAMP_NTZ))", TIMESTAMP
        )
    if value.type.name == "timestamp":
        return Typed(
            f"CAST(convert_timezone({spelled}, current_timezone(), {value.sql}) AS TIMESTAMP)", TIMESTAMPTZ
        )
    raise refuse(f"AT TIME ZONE of {value.type.name} is not supported", node)


@function("make_date")
def _make_date(call: Call) -> Typed:
    call.expect(3)
    return Typed(f"make_date({', '.join(coerce(arg, INT4).sql for arg in call.args)})", DATE)


@function("make_timestamp")
def _make_timestamp(call: Call) -> Typed:
    call.expect(6)
    whole = ", ".join(coerce(arg, INT4).sql for arg in call.args[:5])
    return Typed(f"make_timestamp_ntz({whole}, CAST({double(call.args[5])} AS DECIMAL(16,6)))", TIMESTAMP)


@function("make_interval")
def _make_interval(call: Call) -> Typed:
    names = ("years", "months", "weeks", "days", "hours", "mins", "secs")
    given: dict[str, Typed] = {}
    for i, arg in enumerate(call.node.expressions):
        if isinstance(arg, exp.Kwarg):
            given[str(arg.this.name).lower()] = call.context.expr(arg.args["expression"])
        else:
            given[names[i]] = call.context.expr(arg)
    if set(given) - set(names):
        raise call.refuse("an argument is not known")
    if all(isinstance(value.value, int) for value in given.values()):
        words = {"mins": "minutes", "secs": "seconds"}
        return intervals.literal(
            " ".join(f"{value.value} {words.get(name, name)}" for name, value in given.items()) or "0 days"
        )
    months = [name for name in given if name in ("years", "months")]
    if months and len(months) != len(given):
        raise call.refuse("months and days together are only supported as constants")
    if months:
        parts = [f"{given[name].sql} * {12 if name == 'years' else 1}" for name in months]
        return Typed(f"make_ym_interval(0, CAST({' + '.join(parts)} AS INT))", MONTHS)
    days = [
        f"{given[name].sql} * {7 if name == 'weeks' else 1}" for name in ("weeks", "days") if name in given
    ]
    rest = [given[name].sql if name in given else "0" for name in ("hours", "mins")]
    seconds = f"CAST({given['secs'].sql} AS DECIMAL(18,6))" if "secs" in given else "0"
    return Typed(
        f"make_dt_interval(CAST({' + '.join(days) or '0'} AS INT), {', '.join(rest)}, {seconds})", DAYTIME
    )


@function("to_timestamp")
def _to_timestamp(call: Call) -> Typed:
    call.expect(1, 2)
    if len(call.args) == 1:
        if not call.args[0].type.number:
            raise call.refuse("a number is wanted")
        return Typed(
            f"timestamp_micros(CAST(round({double(call.args[0])} * 1000000) AS BIGINT))", TIMESTAMPTZ
        )
    return Typed(parsed(call, "TIMESTAMP"), TIMESTAMPTZ)


@function("to_date")
def _to_date(call: Call) -> Typed:
    call.expect(2)
    return Typed(f"CAST({parsed(call, 'TIMESTAMP_NTZ')} AS DATE)", DATE)


@function("to_char")
def _to_char(call: Call) -> Typed:
    call.expect(2)
    value, pattern = call.args
    if not isinstance(pattern.value, str):
        raise call.refuse("the pattern must be a literal")
    if value.type.moment:
        return Typed(moment_text(call, value, pattern.value), TEXT)
    if value.type.number:
        return Typed(number_text(call, value, pattern.value), TEXT)
    raise call.refuse(f"a value of type {value.type.name} is not supported")


@function("date")
def _date(call: Call) -> Typed:
    call.expect(1)
    return cast(call.args[0], DATE)


@function("isfinite")
def _isfinite(call: Call) -> Typed:
    call.expect(1)
    return Typed(f"IF({call.args[0].sql} IS NULL, NULL, true)", BOOL)


@function("age")
def _age(call: Call) -> Typed:
    raise call.refuse("Spark has no interval of months and days together")


@function("justify_days", "justify_hours", "justify_interval")
def _justify(call: Call) -> Typed:
    raise call.refuse("Spark's intervals have no parts to move")


def _rows(name: str) -> None:
    """A function of rows in the list of SELECT."""

    def body(call: Call) -> Typed:
        value = ARRAYS[name](call.context, call.args, call.node)
        return Typed(f"explode({value.sql})", value.type.element or Type("any"))

    FUNCTIONS.setdefault(name, body)


for _name in list(ARRAYS):
    _rows(_name)
