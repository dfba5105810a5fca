"""Arithmetic with dates, timestamps and intervals."""

from __future__ import annotations

import calendar
import datetime as dt

from penstock.dialect.spark import intervals
from penstock.dialect.spark.casts import cast, coerce
from penstock.dialect.spark.core import Typed, refuse
from penstock.dialect.spark.intervals import Parts
from penstock.dialect.spark.literals import date, timestamp
from penstock.dialect.spark.types import DATE, DAYTIME, INT4, TIMESTAMP, TIMESTAMPTZ


def arithmetic(sign: str, left: Typed, right: Typed) -> Typed | None:
    """``left sign right`` if a moment or an interval is part of it."""
    a, b = left.type, right.type
    if not (a.moment or b.moment or "interval" in (a.name, b.name)):
        return None
    if a.name == "unknown":
        left = _guess(left, right, sign)
    if b.name == "unknown":
        right = _guess(right, left, sign)
    a, b = left.type, right.type
    if a.moment and b.moment and sign == "-":
        return _difference(left, right)
    if sign == "+" and b.moment and not a.moment:
        left, right, a, b = right, left, b, a
    if a.moment and b.name == "interval" and sign in "+-":
        return shifted(left, right, sign)
    if a.name == "date" and b.integer and sign in "+-":
        return _days(left, right, sign)
    if a.name == "interval" and b.name == "interval" and sign in "+-":
        return _sum(left, right, sign)
    if sign == "*" and b.name == "interval":
        left, right, a, b = right, left, b, a
    if a.name == "interval" and b.number and sign in "*/":
        return _scaled(left, right, sign)
    raise refuse(f"operator {a.name} {sign} {b.name} is not supported", sqlstate="42883")


def _guess(value: Typed, other: Typed, sign: str) -> Typed:
    """A literal given the type that PostgreSQL finds: that of the other side, or what can be added to it."""
    if other.type.name == "interval" and sign in "*/":
        return cast(value, INT4) if str(value.value).lstrip("-").isdigit() else cast(value, DAYTIME)
    if other.type.moment and sign == "+":
        return cast(value, DAYTIME)
    return cast(value, other.type)


def _days(left: Typed, right: Typed, sign: str) -> Typed:
    if isinstance(left.value, dt.datetime) and isinstance(right.value, int):
        return date(left.value + dt.timedelta(days=right.value if sign == "+" else -right.value))
    word = "date_add" if sign == "+" else "date_sub"
    return Typed(f"{word}({left.sql}, CAST({right.sql} AS INT))", DATE)


def _difference(left: Typed, right: Typed) -> Typed:
    if left.type.name == right.type.name == "date":
        return Typed(f"datediff({left.sql}, {right.sql})", INT4)
    both = TIMESTAMPTZ if "timestamptz" in (left.type.name, right.type.name) else TIMESTAMP
    return Typed(
        f"CAST({coerce(left, both).sql} - {coerce(right, both).sql} AS INTERVAL DAY TO SECOND)", DAYTIME
    )


def shifted(left: Typed, right: Typed, sign: str) -> Typed:
    """A moment and an interval: months first, then days, then the rest, as PostgreSQL adds them."""
    parts = right.value
    if isinstance(parts, Parts) and isinstance(left.value, dt.datetime):
        folded = _folded(left.value, parts if sign == "+" else -parts)
        if folded is not None:
            return timestamp(folded)
    kind = TIMESTAMP if left.type.name == "date" else left.type
    sql = coerce(left, kind).sql
    if not isinstance(parts, Parts):
        # Days of Spark's intervals are 24 hours, which differs where clocks change.
        return Typed(f"({sql} {sign} {right.sql})", kind)
    amount = f"make_interval(0, {parts.months}, 0, {parts.days}, 0, 0, {parts.micros / 1_000_000:.6f})"
    return Typed(f"({sql} {sign} {amount})", kind)


def _folded(moment: dt.datetime, parts: Parts) -> dt.datetime | None:
    months = moment.year * 12 + moment.month - 1 + parts.months
    year, month = divmod(months, 12)
    if not 1000 <= year <= 9998:
        return None
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    moved = moment.replace(year=year, month=month + 1, day=day)
    return moved + dt.timedelta(days=parts.days, microseconds=parts.micros)


def _sum(left: Typed, right: Typed, sign: str) -> Typed:
    if isinstance(left.value, Parts) and isinstance(right.value, Parts):
        return _of(left.value + (right.value if sign == "+" else -right.value))
    if left.type.unit != right.type.unit:
        raise refuse("intervals of months and intervals of days cannot be added in Spark")
    return Typed(f"({intervals.sql(left)} {sign} {intervals.sql(right)})", left.type)


def _scaled(left: Typed, right: Typed, sign: str) -> Typed:
    if isinstance(left.value, Parts) and isinstance(right.value, int) and sign == "*":
        parts, factor = left.value, right.value
        return _of(Parts(parts.months * factor, parts.days * factor, parts.micros * factor))
    if left.type.unit == "ym" and (sign == "/" or not right.type.integer):
        raise refuse("only whole multiples of months are supported")
    return Typed(f"({intervals.sql(left)} {sign} {right.sql})", left.type)


def _of(parts: Parts) -> Typed:
    return intervals.literal(f"{parts.months} month {parts.days} day {parts.micros} microsecond")


def negative(value: Typed) -> Typed:
    if isinstance(value.value, Parts):
        return _of(-value.value)
    return Typed(f"(-{value.sql})", value.type)
