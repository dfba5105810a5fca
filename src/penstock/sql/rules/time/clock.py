"""Times of day. Spark's type for them is not ready: they are texts such as 09:05:00.5."""

from __future__ import annotations

import re
from decimal import Decimal

from penstock.errors import SqlError
from penstock.sql.parse.interval_input import DAY, Parts
from penstock.sql.rules.core import Typed, once, refuse, text
from penstock.sql.rules.time import intervals
from penstock.sql.rules.types import DAYTIME, TIME, TIMESTAMP
from penstock.sql.rules.values.texts import plain

_LITERAL = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d*)?))?\s*([ap]m)?", re.IGNORECASE | re.ASCII)
_TEXT = "^[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?$"


def constant(value: str) -> Typed:
    """``time 'value'``."""
    found = _LITERAL.fullmatch(value.strip(" \t\n\r\v\f"))
    if found is None:
        if re.search(r"[a-z]|[+-]", value, re.IGNORECASE):
            raise refuse(
                f'"{value}" is not a time that is understood here', hint="Write times as 23:59:59.5."
            )
        raise SqlError(f'invalid input syntax for type time: "{value}"', sqlstate="22007")
    hour, half = int(found[1]), (found[4] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            raise _out_of_range(value)
        hour = hour % 12 + (12 if half == "pm" else 0)
    seconds = Decimal(found[3] or 0)
    micros = (hour * 3600 + int(found[2]) * 60) * 1_000_000 + round(seconds * 1_000_000)
    if int(found[2]) > 59 or seconds > 60 or micros > DAY:
        raise _out_of_range(value)
    return Typed(text(_written(micros)), TIME)


def _written(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    shown = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{shown}.{fraction:06}".rstrip("0") if fraction else shown


def _out_of_range(value: str) -> SqlError:
    return SqlError(f'date/time field value out of range: "{value}"', sqlstate="22008")


def of_moment(sql: str) -> Typed:
    """What a clock shows at a moment."""
    return Typed(f"substring_index(CAST({sql} AS STRING), ' ', -1)", TIME)


def cast(value: Typed) -> Typed:
    """``value::time``."""
    if value.type.name in ("timestamp", "timestamptz"):
        return of_moment(value.sql)
    if value.type.textual:
        fault = "CAST(raise_error('invalid input syntax for type time') AS STRING)"
        read = of_moment("CAST(concat('1970-01-01 ', x_t) AS TIMESTAMP_NTZ)").sql
        inner = f"IF(x_t IS NULL OR x_t RLIKE {text(_TEXT)}, {read}, {fault})"
        return Typed(f"transform(array({plain(value)}), x_t -> {inner})[0]", TIME)
    raise refuse(f"a cast from {value.type.name} to time is not supported")


def moment(value: Typed, day: str = "'1970-01-01'") -> Typed:
    """The timestamp of a time on a day."""
    return Typed(f"CAST(concat({day}, ' ', {value.sql}) AS TIMESTAMP_NTZ)", TIMESTAMP)


def arithmetic(sign: str, left: Typed, right: Typed) -> Typed:
    """With intervals, dates and other times."""
    kinds = (left.type.name, right.type.name)
    if kinds == ("time", "time") and sign == "-":
        sql = f"CAST({moment(left).sql} - {moment(right).sql} AS INTERVAL DAY TO SECOND)"
        return Typed(sql, DAYTIME)
    if set(kinds) == {"date", "time"} and sign == "+":
        day, time = (left, right) if kinds[0] == "date" else (right, left)
        return moment(time, f"CAST({day.sql} AS STRING)")
    if kinds == ("interval", "time") and sign == "+":
        left, right, kinds = right, left, ("time", "interval")
    if kinds == ("time", "interval") and sign in "+-":
        if isinstance(right.value, Parts):
            moved = intervals.moving(intervals.constant(Parts(0, 0, right.value.micros)))
        else:
            moved = once(right, lambda v: _time_of(Typed(v, right.type)))
        return of_moment(f"({moment(left).sql} {sign} {moved})")
    raise refuse(f"operator {kinds[0]} {sign} {kinds[1]} is not supported", sqlstate="42883")


def _time_of(value: Typed) -> str:
    """An interval without its months and days, to be added to a time."""
    return intervals.moving(intervals.of_parts("0", "0", intervals.micros(value)))
