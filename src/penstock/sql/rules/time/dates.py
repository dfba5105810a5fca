"""Functions on dates, timestamps and intervals."""

from __future__ import annotations

import re

from sqlglot import exp

from penstock.sql.rules.core import Call, Context, Typed, function, once, refuse, rule, text
from penstock.sql.rules.text.formats import moment_text, parsed
from penstock.sql.rules.text.number_formats import number_text
from penstock.sql.rules.time import clock, zones
from penstock.sql.rules.time.moments import in_range
from penstock.sql.rules.types import BOOL, DATE, INT4, TEXT, TIMESTAMP, TIMESTAMPTZ
from penstock.sql.rules.values.casts import cast, coerce
from penstock.sql.rules.values.operators import double

_ZONE = r"(?i:utc|gmt)|[A-Za-z_]+(/[A-Za-z0-9_+-]+)+"
_YEAR_2000 = 946_684_800
_FIRST_YEAR = -4713
_TRUNCATED = frozenset(
    {"microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year"}
)


@function("date_trunc")
def _date_trunc(call: Call) -> Typed:
    call.expect(2, 3)
    if not isinstance(call.args[0].value, str):
        raise call.refuse("the unit must be a literal")
    unit = call.args[0].value.lower()
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
        return cast(Typed(f"make_date({first}, 1, 1)", DATE), kind)
    if unit not in _TRUNCATED:
        raise call.refuse(f'the unit "{unit}" is not supported')
    word = {"microseconds": "MICROSECOND", "milliseconds": "MILLISECOND"}.get(unit, unit.upper())
    if value.type.name == "date" and word in ("DAY", "HOUR", "MINUTE", "SECOND"):
        return cast(value, kind)
    if value.type.name == "date":
        return cast(Typed(f"trunc({value.sql}, '{word}')", DATE), kind)
    return Typed(zones.truncated(value, word), kind)


@rule(exp.CurrentDate)
def _today(_context: Context, _node: exp.Expr) -> Typed:
    return Typed("current_date()", DATE)


@rule(exp.CurrentTimestamp)
def _now(_context: Context, _node: exp.Expr) -> Typed:
    return Typed("current_timestamp()", TIMESTAMPTZ)


@rule(exp.Localtimestamp)
def _local(_context: Context, _node: exp.Expr) -> Typed:
    return Typed("localtimestamp()", TIMESTAMP)


@rule(exp.Localtime)
def _localtime(_context: Context, _node: exp.Expr) -> Typed:
    return clock.of_moment("current_timestamp()")


@rule(exp.CurrentTime)
def _current_time(_context: Context, node: exp.Expr) -> Typed:
    raise refuse("current_time is not supported: Spark has no time with a zone", node, hint="Use localtime.")


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


def _zone_name(zone: Typed, node: exp.Expr) -> str:
    """A zone that both know alike: signs of offsets are the other way round, and PST has no summer time."""
    sql = coerce(zone, TEXT).sql
    if isinstance(zone.value, str):
        if not re.fullmatch(_ZONE, zone.value):
            raise refuse(
                f'the time zone "{zone.value}" is not supported',
                node,
                hint="Use a name, such as Europe/Berlin.",
            )
        # Their names are the only ones that Spark wants in capitals.
        return text(zone.value.upper()) if "/" not in zone.value else sql
    fault = (
        "CAST(raise_error('this time zone is not supported: use a name, such as Europe/Berlin') AS STRING)"
    )
    return once(Typed(sql, TEXT), lambda v: f"IF({v} RLIKE {text(f'^({_ZONE})$')}, {v}, {fault})")


def at_zone(value: Typed, zone: Typed, node: exp.Expr) -> Typed:
    """A timestamp of a zone becomes a moment; a moment becomes what the zone's clocks show."""
    if zone.type.name == "interval":
        raise refuse("a zone that is an interval is not supported", node)
    if value.type.name == "unknown":
        value = cast(value, TIMESTAMPTZ)
    if value.type.name == "date":
        value = coerce(value, TIMESTAMPTZ)
    spelled = _zone_name(zone, node)
    if value.type.name == "timestamptz":
        return zones.shown(value.sql, spelled)
    if value.type.name == "timestamp":
        return zones.instant(value.sql, spelled)
    raise refuse(f"AT TIME ZONE of {value.type.name} is not supported", node)


def _day(call: Call) -> str:
    """Year, month and day. A negative year is one before the year 1, before which there is no year 0."""
    year, month, day = (coerce(arg, INT4) for arg in call.args[:3])
    fault = "CAST(raise_error('date field value out of range') AS INT)"
    before = f"{{v}} + IF({{v}} < 0 AND {{v}} >= {_FIRST_YEAR}, 1, {fault})"
    counted = once(year, lambda v: f"IF({v} IS NULL OR {v} > 0, {v}, {before.format(v=v)})")
    known = isinstance(year.value, int) and year.value > 0
    return f"{year.sql if known else counted}, {month.sql}, {day.sql}"


@function("make_date")
def _make_date(call: Call) -> Typed:
    call.expect(3)
    return Typed(f"make_date({_day(call)})", DATE)


@function("make_timestamp")
def _make_timestamp(call: Call) -> Typed:
    call.expect(6)
    whole = ", ".join([_day(call), *(coerce(arg, INT4).sql for arg in call.args[3:5])])
    seconds = f"CAST(CAST(rint({double(call.args[5])} * 1e6D) AS DECIMAL(16,0)) / 1000000 AS DECIMAL(16,6))"
    return Typed(f"make_timestamp_ntz({whole}, {seconds})", TIMESTAMP)


@function("to_timestamp")
def _to_timestamp(call: Call) -> Typed:
    call.expect(1, 2)
    if len(call.args) == 1:
        if not call.args[0].type.number:
            raise call.refuse("a number is wanted")
        # PostgreSQL counts from the year 2000, and loses digits on the way there.
        micros = f"CAST(rint(({double(call.args[0])} - {_YEAR_2000}D) * 1e6D) AS BIGINT)"
        return in_range(Typed(f"timestamp_micros({micros} + {_YEAR_2000}000000)", TIMESTAMPTZ))
    return Typed(zones.moment_of(parsed(call)), TIMESTAMPTZ)


@function("to_date")
def _to_date(call: Call) -> Typed:
    call.expect(2)
    return Typed(f"CAST({parsed(call)} AS DATE)", DATE)


@function("to_char")
def _to_char(call: Call) -> Typed:
    call.expect(2)
    value, pattern = call.args
    if not isinstance(pattern.value, str):
        raise call.refuse("the pattern must be a literal")
    if value.type.moment:
        said = pattern.value
        return Typed(once(value, lambda v: moment_text(call, Typed(v, value.type), said)), TEXT)
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
