"""Fields of dates, timestamps and intervals: extract and date_part."""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp

from penstock.sql.parse.interval_input import Parts
from penstock.sql.rules.core import Call, Context, Typed, function, once, refuse, rule
from penstock.sql.rules.time import clock, intervals
from penstock.sql.rules.types import FLOAT8, TIMESTAMP, numeric
from penstock.sql.rules.values.casts import cast
from penstock.sql.rules.values.literals import decimal
from penstock.sql.rules.values.operators import double

# There is no year 0, and no such century: before the year 1 comes -1.
_YEAR = "(year({v}) - IF(year({v}) > 0, 0, 1))"
_ISOYEAR = "(extract(YEAROFWEEK FROM {v}) - IF(extract(YEAROFWEEK FROM {v}) > 0, 0, 1))"
_FIELDS = {
    "year": _YEAR, "years": _YEAR, "month": "month({v})", "months": "month({v})",
    "day": "day({v})", "days": "day({v})",
    "quarter": "quarter({v})", "doy": "dayofyear({v})",
    "week": "weekofyear({v})",
    "dow": "(dayofweek({v}) - 1)", "isodow": "(weekday({v}) + 1)", "isoyear": _ISOYEAR,
    "decade": "CAST(floor(year({v}) / 10) AS INT)",
    "century": "CAST(ceil(year({v}) / 100) - IF(year({v}) > 0, 0, 1) AS INT)",
    "millennium": "CAST(ceil(year({v}) / 1000) - IF(year({v}) > 0, 0, 1) AS INT)", "julian": "",
}  # fmt: skip
_OF_TIME = frozenset(
    {"hour", "hours", "minute", "minutes", "second", "seconds", "millisecond", "milliseconds",
     "microsecond", "microseconds", "epoch"}
)  # fmt: skip
_TIMES = {"hour": "hour({v})", "hours": "hour({v})", "minute": "minute({v})", "minutes": "minute({v})"}


@rule(exp.Extract)
def _extract(context: Context, node: exp.Expr) -> Typed:
    return extract(str(node.this.name).lower(), context.expr(node.args["expression"]), node)


@function("date_part")
def _date_part(call: Call) -> Typed:
    call.expect(2)
    if not isinstance(call.args[0].value, str):
        raise call.refuse("the field must be a literal")
    found = extract(call.args[0].value.lower(), call.args[1], call.node)
    return Typed(double(found), FLOAT8)


def extract(field: str, value: Typed, node: exp.Expr) -> Typed:
    """A field of a moment or an interval, as numeric."""
    if value.type.name == "interval":
        return _of_interval(field, value, node)
    value = _moment(field, value, node)
    if not value.type.moment:
        raise refuse(f"extract from {value.type.name} is not supported", node)
    if _FIELDS.get(field):
        return _whole(_FIELDS[field].format(v=value.sql))
    if field == "epoch":
        return _epoch(value)
    if value.type.name == "date":
        raise refuse(f"field {field} of a date is not supported", node)
    if field in _TIMES:
        return _whole(_TIMES[field].format(v=value.sql))
    seconds = f"extract(SECOND FROM {value.sql})"
    if field in ("second", "seconds"):
        return Typed(f"CAST({seconds} AS DECIMAL(8,6))", numeric(8, 6))
    if field in ("millisecond", "milliseconds"):
        return Typed(f"CAST({seconds} * 1000 AS DECIMAL(8,3))", numeric(8, 3))
    if field in ("microsecond", "microseconds"):
        return _whole(f"{seconds} * 1000000")
    if field in ("timezone", "timezone_hour", "timezone_minute") and value.type.name == "timestamptz":
        return _zone(field, value)
    raise refuse(f"the field {field} is not supported", node)


def _whole(sql: str) -> Typed:
    """A whole number, and a numeric all the same: what it is divided by must not cut it."""
    kind = numeric(10, 0)
    return Typed(f"CAST({sql} AS {kind.spark})", kind)


def _zone(field: str, value: Typed) -> Typed:
    local = f"CAST(CAST(CAST({value.sql} AS TIMESTAMP_NTZ) AS STRING) || 'Z' AS TIMESTAMP)"
    offset = f"(unix_seconds({local}) - unix_seconds({value.sql}))"
    whole_parts = {
        "timezone": offset,
        "timezone_hour": f"({offset} DIV 3600)",
        "timezone_minute": f"({offset} DIV 60 % 60)",
    }
    return Typed(f"CAST({whole_parts[field]} AS DECIMAL(10,0))", numeric(10, 0))


def _moment(field: str, value: Typed, node: exp.Expr) -> Typed:
    """What has the field: a literal is a timestamp, a time one of any day."""
    if value.type.name == "unknown":
        return cast(value, TIMESTAMP)
    if value.type.name != "time":
        return value
    if field not in _OF_TIME:
        raise refuse(f"the field {field} of a time is not supported", node)
    return clock.moment(value)


def _epoch(value: Typed) -> Typed:
    if value.type.name == "date":
        sql = f"CAST(CAST(unix_date({value.sql}) AS BIGINT) * 86400 AS DECIMAL(20,0))"
        return Typed(sql, numeric(20, 0))
    sql = value.sql
    if value.type.name == "timestamp":
        # As if the clock showed UTC.
        sql = f"CAST(concat(CAST({sql} AS STRING), 'Z') AS TIMESTAMP)"
    return Typed(
        f"CAST(CAST(unix_micros({sql}) AS DECIMAL(20,0)) / 1000000BD AS DECIMAL(20,6))", numeric(20, 6)
    )


_OF_INTERVAL = {
    "year": "({m} DIV 12)", "month": "({m} % 12)", "day": "{d}", "hour": "({t} DIV 3600000000)",
    "minute": "({t} DIV 60000000 % 60)", "decade": "({m} DIV 120)", "century": "({m} DIV 1200)",
    "millennium": "({m} DIV 12000)", "quarter": "({m} % 12 DIV 3 + 1)",
    "microsecond": "({t} % 60000000)",
}  # fmt: skip


def _of_interval(field: str, value: Typed, node: exp.Expr) -> Typed:
    if isinstance(value.value, Parts):
        return _of_parts(_singular(field), value.value, node)
    return _of_column(_singular(field), value, node)


def _singular(field: str) -> str:
    return field.removesuffix("s") if field != "centuries" else "century"


def _of_column(field: str, value: Typed, node: exp.Expr) -> Typed:
    def said(form: str) -> str:
        def body(v: str) -> str:
            each = Typed(v, value.type)
            return form.format(m=intervals.months(each), d=intervals.days(each), t=intervals.micros(each))

        return once(value, body)

    if field in _OF_INTERVAL:
        return _whole(said(_OF_INTERVAL[field]))
    if field in ("second", "millisecond"):
        digits = 6 if field == "second" else 3
        part = said("CAST({t} % 60000000 AS DECIMAL(8,0))")
        kind = numeric(8, digits)
        return Typed(f"CAST({part} / 1{'0' * digits}BD AS {kind.spark})", kind)
    if field == "epoch":
        whole = "{m} DIV 12 * 31557600 + {m} % 12 * 2592000 + {d} * 86400"
        form = f"(CAST({whole} AS DECIMAL(14,0)) + CAST({{t}} AS DECIMAL(19,0)) / 1000000BD)"
        return Typed(f"CAST({said(form)} AS DECIMAL(22,6))", numeric(22, 6))
    raise refuse(f"the field {field} of an interval is not supported", node)


def _of_parts(field: str, parts: Parts, node: exp.Expr) -> Typed:
    sign = 1 if parts.micros >= 0 else -1
    micros = abs(parts.micros)
    years = abs(parts.months) // 12 * (1 if parts.months >= 0 else -1)
    months = parts.months - years * 12
    whole = {
        "year": years, "month": months, "day": parts.days, "hour": sign * (micros // 3_600_000_000),
        "minute": sign * (micros // 60_000_000 % 60), "quarter": _towards_zero(months, 3) + 1,
        "decade": _towards_zero(parts.months, 120), "century": _towards_zero(parts.months, 1200),
        "millennium": _towards_zero(parts.months, 12_000), "microsecond": sign * (micros % 60_000_000),
    }  # fmt: skip
    if field in whole:
        return _whole(f"({whole[field]})")
    if field in ("second", "millisecond"):
        digits = 6 if field == "second" else 3
        return decimal(f"{Decimal(sign * (micros % 60_000_000)).scaleb(-digits):.{digits}f}")
    if field == "epoch":
        total = (years * 31_557_600 + months * 2_592_000 + parts.days * 86_400) * 1_000_000 + parts.micros
        return decimal(f"{Decimal(total).scaleb(-6):.6f}")
    raise refuse(f"the field {field} of an interval is not supported", node)


def _towards_zero(value: int, size: int) -> int:
    return abs(value) // size * (1 if value >= 0 else -1)
