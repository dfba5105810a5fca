"""Values of parameters, as Spark takes them."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Sequence
from typing import Any

from penstock.errors import SqlError
from penstock.gateway import types as pg

_MOST_DIGITS = 38


def arguments(values: Sequence[object], count: int) -> dict[str, Any]:
    """Arguments of a statement by name: ``p1``, ``p2`` …; NULL for those not given.

    The text casts each to its type. What PySpark would convert by the rules of the machine's own time
    zone, or not at all, is handed over as text.
    """
    padded = [*values, *[None] * (count - len(values))]
    return {f"p{number}": _argument(value) for number, value in enumerate(padded, 1)}


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


def _argument(value: object) -> Any:
    from pyspark.sql import functions as F

    if not isinstance(value, (list, tuple)):
        return _plain(value)
    values = [_plain(each) for each in value]
    if None in values and any(each is not None for each in values):
        return _with_nulls(values)
    return F.array(*(F.lit(each) for each in values))


def _with_nulls(values: Sequence[Any]) -> Any:
    """Spark takes no list in which a NULL stands beside values, unless all are text."""
    from penstock.spark.session import text_array

    if any(isinstance(each, bytearray) for each in values):
        what = "an array of bytea with a NULL in it cannot be a parameter"
        raise SqlError(what, sqlstate="0A000", hint="write the array into the statement")
    return text_array([None if each is None else str(each) for each in values])


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
    if isinstance(value, dt.timedelta):
        return _interval(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (list, tuple)):
        what = "an array of several dimensions cannot be a parameter"
        raise SqlError(what, sqlstate="0A000", hint="write the array into the statement")
    return str(value)


def _interval(value: dt.timedelta) -> str:
    """As Spark reads an interval of days to seconds."""
    micros = round(value / dt.timedelta(microseconds=1))
    seconds, fraction = divmod(abs(micros), 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{'-' if micros < 0 else ''}{day} {hour:02d}:{minute:02d}:{second:02d}.{fraction:06d}"
