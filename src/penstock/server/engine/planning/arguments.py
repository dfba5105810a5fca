"""Values of parameters, as Spark takes them."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import SqlError
from penstock.server.engine.planning.inlining import inlined
from penstock.sql.parse.interval_input import DAY, Parts
from penstock.sql.rules.core import Elements
from penstock.types import postgres as pg

_MOST_DIGITS = 38
_SCALARS = (str, int, float, decimal.Decimal, dt.date, uuid.UUID)
_LONGEST, _LONGEST_LIST = 1000, 20
"""Letters of a text, and members of an array, that may stand in a statement."""


def arguments(text: str, values: Sequence[object], count: int) -> tuple[str, dict[str, Any]]:
    """The statement, and arguments of it by name: ``p1``, ``p2`` …; NULL for those not given.

    The text casts each to its type. What PySpark would convert by the rules of the machine's own time
    zone, or not at all, is handed over as text.
    """
    padded = [*values, *[None] * (count - len(values))]
    plain = {f"p{number}": _plain_or_array(value) for number, value in enumerate(padded, 1)}
    text, left = inlined(text, plain)
    return text, {name: _argument(value) for name, value in left.items()}


def kinds_of(parameters: Sequence[int], values: Sequence[object]) -> list[str]:
    """The types of parameters in Spark.

    A numeric has the digits of its value: to fewer, Spark would round it without a word.
    """
    padded = [*values, *[None] * (len(parameters) - len(values))]
    return [
        _kind(oid, value, number)
        for number, (oid, value) in enumerate(zip(parameters, padded, strict=False), 1)
    ]


def _kind(oid: int, value: object, number: int) -> str:
    if oid == pg.NUMERIC:
        return _decimal([value], number) or pg.spark_type(oid)
    if oid == pg.NUMERIC_ARRAY and isinstance(value, (list, tuple)):
        kind = _decimal(value, number)
        return f"ARRAY<{kind}>" if kind else pg.spark_type(oid)
    return pg.spark_type(oid)


def _decimal(values: Sequence[object], number: int) -> str | None:
    """The decimal that holds all of these; None if there is nothing to hold."""
    known = [found for value in values if (found := _number(value)) is not None]
    if not known:
        return None
    whole = max(found.adjusted() + 1 if found else 0 for found in known)
    scale = max(_scale(found) for found in known)
    if max(whole, 0) + scale > _MOST_DIGITS:
        # Zeros at the end are shown, but mean nothing.
        scale = max(_scale(_shortest(found)) for found in known)
    whole = max(whole, 0, 1 - scale)
    if whole + scale > _MOST_DIGITS:
        raise SqlError(
            f"parameter ${number} has {whole + scale} digits, of {_MOST_DIGITS} that a numeric can have here",
            sqlstate="22003",
            hint="round it, or give it as double precision",
        )
    return f"DECIMAL({whole + scale},{scale})"


def _number(value: object) -> decimal.Decimal | None:
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            value = decimal.Decimal(value)
        except decimal.InvalidOperation:
            # Spark says what is wrong with it.
            return None
    return value if isinstance(value, decimal.Decimal) and value.is_finite() else None


def _scale(value: decimal.Decimal) -> int:
    return max(0, -int(value.as_tuple().exponent))


def _shortest(value: decimal.Decimal) -> decimal.Decimal:
    """Without the zeros at its end, and without the rounding that `Decimal.normalize` does."""
    sign, digits, exponent = value.as_tuple()
    kept = list(digits)
    ending = int(exponent)
    while ending < 0 and len(kept) > 1 and kept[-1] == 0:
        kept.pop()
        ending += 1
    return decimal.Decimal((sign, kept, ending)) if any(kept) else decimal.Decimal(0)


def as_parts(value: object) -> Parts | None:
    """An interval, however a client's protocol brings it; None if it is none."""
    if isinstance(value, Parts):
        return value
    if isinstance(value, dt.timedelta):
        micros = round(value / dt.timedelta(microseconds=1))
        days = abs(micros) // DAY * (1 if micros >= 0 else -1)
        return Parts(0, days, micros - days * DAY)
    if isinstance(value, pa.MonthDayNano):
        return Parts(value.months, value.days, value.nanoseconds // 1000)
    return None


def constants(values: Sequence[object], *, every: bool) -> dict[int, object]:
    """Values that stand in the text, by number: intervals, which no type of Spark holds, and long arrays,
    which may be lists of IN; with ``every``, all that some place of a statement may want as a constant.
    """
    found: dict[int, object] = {}
    for number, value in enumerate(values, 1):
        interval = as_parts(value)
        if interval is not None:
            found[number] = interval
        elif isinstance(value, (list, tuple)) and len(value) > _LONGEST_LIST:
            if all(each is None or isinstance(each, _SCALARS) for each in value):
                found[number] = Elements(_plain(each) for each in value)
        elif every and _is_short(value):
            found[number] = list(value) if isinstance(value, (list, tuple)) else value
    return found


def _is_short(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= _LONGEST_LIST and all(isinstance(each, str) for each in value)
    return isinstance(value, int) or (isinstance(value, str) and len(value) <= _LONGEST)


def _plain_or_array(value: object) -> Any:
    if isinstance(value, (list, tuple)) and as_parts(value) is None:
        return [_plain(each) for each in value]
    parts = as_parts(value)
    # One with months stands in the text.
    return None if parts is not None and parts.months else _plain(value)


def _argument(value: Any) -> Any:
    from pyspark.sql import functions as F

    if not isinstance(value, list):
        return value
    if None in value and any(each is not None for each in value):
        what = "an array of bytea with a NULL in it cannot be a parameter"
        raise SqlError(what, sqlstate="0A000", hint="write the array into the statement")
    return F.array(*(F.lit(each) for each in value))


def _plain(value: object) -> Any:
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytearray(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if (parts := as_parts(value)) is not None:
        return _interval(parts)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (list, tuple)):
        what = "an array of several dimensions cannot be a parameter"
        raise SqlError(what, sqlstate="0A000", hint="write the array into the statement")
    return str(value)


def _interval(value: Parts) -> str:
    """As Spark reads an interval of days to seconds."""
    if value.months:
        what = "an interval of months cannot be a parameter here"
        raise SqlError(what, sqlstate="0A000", hint="write it into the statement, or count it in days")
    seconds, fraction = divmod(abs(value.size), 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{'-' if value.size < 0 else ''}{day} {hour:02d}:{minute:02d}:{second:02d}.{fraction:06d}"


def check_spark(fixed: Mapping[int, object]) -> None:
    """Spark's own SQL has values beside its text: refuse those that it cannot have."""
    for value in fixed.values():
        if isinstance(value, Parts):
            _interval(value)
