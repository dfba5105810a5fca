"""Arithmetic with dates, timestamps and intervals."""

from __future__ import annotations

import calendar
import datetime as dt
from contextlib import suppress

from penstock.sql.parse.interval_input import DAY, Parts
from penstock.sql.rules.core import Typed, between, once, refuse
from penstock.sql.rules.time import clock, intervals, zones
from penstock.sql.rules.types import DATE, DAYTIME, INT4, TIMESTAMP, TIMESTAMPTZ
from penstock.sql.rules.values.casts import cast, coerce
from penstock.sql.rules.values.literals import date, timestamp

_FEW_DAYS = 1_000_000
_FIRST, _LAST = -2_440_588, 2_145_031_948
"""The days between which PostgreSQL has dates, from 1970 on."""
_FIRST_MOMENT = "-4713-11-24 00:00:00"
"""PostgreSQL's first timestamp. Its last one is beyond what Spark can count to."""
_FEW = Parts(12 * 1000, 365 * 1000, 0)
"""What may be taken from any moment that somebody has rows of."""


def arithmetic(sign: str, left: Typed, right: Typed) -> Typed | None:
    """``left sign right`` if a moment or an interval is part of it."""
    a, b = left.type, right.type
    if not (a.moment or b.moment or {"interval", "time"} & {a.name, b.name}):
        return None
    if a.name == "unknown":
        left = _guess(left, right, sign)
    if b.name == "unknown":
        right = _guess(right, left, sign)
    a, b = left.type, right.type
    if "time" in (a.name, b.name):
        return clock.arithmetic(sign, left, right)
    if a.moment and b.moment and sign == "-":
        return _difference(left, right)
    if sign == "+" and b.moment and not a.moment:
        left, right, a, b = right, left, b, a
    if a.moment and b.name == "interval" and sign in "+-":
        return shifted(left, right, sign)
    if a.name == "date" and b.integer and sign in "+-":
        return _days(left, right, sign)
    if a.name == "interval" and b.name == "interval" and sign in "+-":
        return intervals.add(left, right, sign)
    if sign == "*" and b.name == "interval":
        left, right, a, b = right, left, b, a
    if a.name == "interval" and b.number and sign in "*/":
        return intervals.scaled(left, right, sign)
    raise refuse(f"operator {a.name} {sign} {b.name} is not supported", sqlstate="42883")


def _guess(value: Typed, other: Typed, sign: str) -> Typed:
    """A literal given the type that PostgreSQL finds: that of the other side, or what can be added to it."""
    if other.type.name == "interval" and sign in "*/":
        return cast(value, INT4) if str(value.value).lstrip("-").isdigit() else cast(value, DAYTIME)
    if (other.type.moment or other.type.name == "time") and sign == "+":
        return cast(value, DAYTIME)
    return cast(value, other.type)


def _days(left: Typed, right: Typed, sign: str) -> Typed:
    if isinstance(left.value, dt.datetime) and isinstance(right.value, int):
        # Python has the years 1 to 9999 alone.
        with suppress(OverflowError):
            return date(left.value + dt.timedelta(days=right.value if sign == "+" else -right.value))
    word = "date_add" if sign == "+" else "date_sub"
    moved = f"{word}({left.sql}, CAST({right.sql} AS INT))"
    if isinstance(right.value, int) and abs(right.value) < _FEW_DAYS:
        return Typed(moved, DATE)
    # Spark would begin again at the other end.
    near = between(_FIRST, f"(unix_date({left.sql}) {sign} CAST({right.sql} AS BIGINT))", _LAST)
    return Typed(f"IF(NOT {near}, CAST(raise_error('date out of range') AS DATE), {moved})", DATE)


def _difference(left: Typed, right: Typed) -> Typed:
    if left.type.name == right.type.name == "date":
        return Typed(f"datediff({left.sql}, {right.sql})", INT4)
    both = TIMESTAMPTZ if "timestamptz" in (left.type.name, right.type.name) else TIMESTAMP
    later, earlier = coerce(left, both).sql, coerce(right, both).sql
    if both == TIMESTAMPTZ:
        return Typed(zones.elapsed(later, earlier), DAYTIME)
    return Typed(f"CAST({later} - {earlier} AS INTERVAL DAY TO SECOND)", DAYTIME)


def shifted(left: Typed, right: Typed, sign: str) -> Typed:
    """A moment and an interval: months first, then days, then the rest, as PostgreSQL adds them."""
    parts = right.value
    if isinstance(parts, Parts) and isinstance(left.value, dt.datetime):
        folded = _folded(left.value, parts if sign == "+" else -parts)
        if folded is not None:
            return timestamp(folded)
    kind = TIMESTAMP if left.type.name == "date" else left.type
    sql = coerce(left, kind).sql
    if kind.name == "timestamptz" and zones.clocks_change():
        moved = Typed(_on_clocks(sql, right, sign), kind)
        return moved if isinstance(parts, Parts) and _is_short(parts) else in_range(moved)
    plain = right.type.unit == "ym" or (right.type.unit == "dt" and kind.name == "timestamp")
    if plain and not isinstance(parts, Parts):
        return in_range(Typed(f"({sql} {sign} {right.sql})", kind))
    # Days of Spark's other intervals are 24 hours, which differs where clocks change.
    moved = Typed(f"({sql} {sign} {intervals.moving(right)})", kind)
    return moved if isinstance(parts, Parts) and _is_short(parts) else in_range(moved)


def _on_clocks(sql: str, right: Typed, sign: str) -> str:
    """Months, then days, each on the session's clocks; the rest as time that elapses.

    Spark keeps the first of two hours that are shown alike if it comes from the summer.
    """

    def later(moment: str, step: str) -> str:
        return zones.moment_of(f"(CAST({moment} AS TIMESTAMP_NTZ) {sign} {step})")

    def waited(moment: str, micros: str) -> str:
        return f"timestamp_micros(unix_micros({moment}) {sign} {micros})"

    def body(v: str, i: str) -> str:
        each = Typed(i, right.type)
        month, day = (f"CAST({part(each)} AS INT)" for part in (intervals.months, intervals.days))
        first = f"IF({month} = 0, {v}, {later(v, f'make_interval(0, {month})')})"
        second = once(
            Typed(first, TIMESTAMPTZ),
            lambda m: f"IF({day} = 0, {m}, {later(m, f'make_interval(0, 0, 0, {day})')})",
        )
        return waited(second, intervals.micros(each))

    parts = right.value
    if not isinstance(parts, Parts):
        return once(Typed(sql, TIMESTAMPTZ), lambda v: once(right, lambda i: body(v, i)))
    # What has no months or no days leaves the clocks alone.
    if parts.months:
        sql = later(sql, f"make_interval(0, {parts.months})")
    if parts.days:
        sql = later(sql, f"make_interval(0, 0, 0, {parts.days})")
    return waited(sql, f"({parts.micros}L)") if parts.micros else sql


def _is_short(parts: Parts) -> bool:
    return abs(parts.months) <= _FEW.months and abs(parts.days) + abs(parts.micros) // DAY <= _FEW.days


def in_range(value: Typed) -> Typed:
    """A computed timestamp, which is an error where PostgreSQL has none."""
    zone = "+00:00" if value.type.name == "timestamptz" else ""
    first = f"{value.type.spark} '{_FIRST_MOMENT}{zone}'"
    fault = f"CAST(raise_error('timestamp out of range') AS {value.type.spark})"
    return Typed(once(value, lambda v: f"IF({v} < {first}, {fault}, {v})"), value.type)


def _folded(moment: dt.datetime, parts: Parts) -> dt.datetime | None:
    months = moment.year * 12 + moment.month - 1 + parts.months
    year, month = divmod(months, 12)
    if not 1000 <= year <= 9998:
        return None
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    moved = moment.replace(year=year, month=month + 1, day=day)
    try:
        return moved + dt.timedelta(days=parts.days, microseconds=parts.micros)
    except OverflowError:
        return None
