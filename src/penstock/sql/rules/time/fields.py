"""Fields of dates, timestamps and intervals: extract and date_part."""

from __future__ import annotations

from sqlglot import exp

from penstock.dialect.spark.casts import cast
from penstock.dialect.spark.core import Call, Context, Typed, function, once, refuse, rule
from penstock.dialect.spark.intervals import Parts
from penstock.dialect.spark.literals import decimal
from penstock.dialect.spark.operators import double
from penstock.dialect.spark.types import FLOAT8, INT4, TIMESTAMP, numeric

_FIELDS = {
    "year": "year({v})", "years": "year({v})", "month": "month({v})", "months": "month({v})",
    "day": "day({v})", "days": "day({v})",
    "quarter": "quarter({v})", "doy": "dayofyear({v})",
    "week": "weekofyear({v})",
    "dow": "(dayofweek({v}) - 1)", "isodow": "(weekday({v}) + 1)", "isoyear": "extract(YEAROFWEEK FROM {v})",
    "decade": "CAST(floor(year({v}) / 10) AS INT)", "century": "CAST(ceil(year({v}) / 100) AS INT)",
    "millennium": "CAST(ceil(year({v}) / 1000) AS INT)", "julian": "",
}  # fmt: skip
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
    if value.type.name == "unknown":
        value = cast(value, TIMESTAMP)
    if value.type.name == "interval":
        return _of_interval(field, value, node)
    if not value.type.moment:
        raise refuse(f"extract from {value.type.name} is not supported", node)
    whole = numeric(10, 0)
    if _FIELDS.get(field):
        return Typed(f"CAST({_FIELDS[field].format(v=value.sql)} AS INT)", INT4)
    if field == "epoch":
        return _epoch(value)
    if value.type.name == "date":
        raise refuse(f"field {field} of a date is not supported", node)
    if field in _TIMES:
        return Typed(_TIMES[field].format(v=value.sql), INT4)
    seconds = f"extract(SECOND FROM {value.sql})"
    if field in ("second", "seconds"):
        return Typed(f"CAST({seconds} AS DECIMAL(8,6))", numeric(8, 6))
    if field in ("millisecond", "milliseconds"):
        return Typed(f"CAST({seconds} * 1000 AS DECIMAL(8,3))", numeric(8, 3))
    if field in ("microsecond", "microseconds"):
        return Typed(f"CAST({seconds} * 1000000 AS INT)", INT4)
    if field in ("timezone", "timezone_hour", "timezone_minute") and value.type.name == "timestamptz":
        clock = f"CAST(CAST(CAST({value.sql} AS TIMESTAMP_NTZ) AS STRING) || 'Z' AS TIMESTAMP)"
        offset = f"(unix_seconds({clock}) - unix_seconds({value.sql}))"
        whole_parts = {
            "timezone": offset,
            "timezone_hour": f"({offset} DIV 3600)",
            "timezone_minute": f"({offset} DIV 60 % 60)",
        }
        return Typed(f"CAST({whole_parts[field]} AS DECIMAL(10,0))", whole)
    raise refuse(f"the field {field} is not supported", node)


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


def _of_interval(field: str, value: Typed, node: exp.Expr) -> Typed:
    if isinstance(value.value, Parts):
        return _of_parts(field, value.value, node)
    if value.type.unit == "ym":
        months = f"(extract(YEAR FROM {value.sql}) * 12 + extract(MONTH FROM {value.sql}))"
        if field in ("year", "month"):
            return Typed(f"extract({field.upper()} FROM {value.sql})", INT4)
        if field == "epoch":
            sql = f"({months} DIV 12 * 31557600 + {months} % 12 * 2592000)"
            return Typed(f"CAST({sql} AS DECIMAL(20,0))", numeric(20, 0))
        raise refuse(f"the field {field} of an interval of months is not supported", node)
    parts = {"day": "DAY", "hour": "HOUR", "minute": "MINUTE"}
    if field in parts:
        return Typed(f"CAST(extract({parts[field]} FROM {value.sql}) AS INT)", INT4)
    if field == "second":
        return Typed(f"CAST(extract(SECOND FROM {value.sql}) AS DECIMAL(8,6))", numeric(8, 6))
    if field == "epoch":
        sql = once(
            value,
            lambda v: (
                f"CAST(CAST(extract(DAY FROM {v}) AS BIGINT) * 86400 + extract(HOUR FROM {v}) * 3600"
                f" + extract(MINUTE FROM {v}) * 60 AS DECIMAL(20,0))"
                f" + CAST(extract(SECOND FROM {v}) AS DECIMAL(8,6))"
            ),
        )
        return Typed(f"CAST({sql} AS DECIMAL(20,6))", numeric(20, 6))
    raise refuse(f"the field {field} of an interval is not supported", node)


def _of_parts(field: str, parts: Parts, node: exp.Expr) -> Typed:
    sign = 1 if parts.micros >= 0 else -1
    micros = abs(parts.micros)
    years = abs(parts.months) // 12 * (1 if parts.months >= 0 else -1)
    months = parts.months - years * 12
    whole = {
        "year": years, "month": months, "day": parts.days, "hour": sign * (micros // 3_600_000_000),
        "minute": sign * (micros // 60_000_000 % 60),
    }  # fmt: skip
    if field in whole:
        return Typed(f"({whole[field]})", INT4)
    if field == "second":
        return decimal(f"{sign * (micros % 60_000_000) / 1_000_000:.6f}")
    if field == "epoch":
        total = (years * 31_557_600 + months * 2_592_000 + parts.days * 86_400) * 1_000_000 + parts.micros
        return decimal(
            f"{total // 1_000_000}.{total % 1_000_000:06}" if total >= 0 else f"{total / 1_000_000:.6f}"
        )
    raise refuse(f"the field {field} of an interval is not supported", node)
