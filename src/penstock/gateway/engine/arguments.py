"""Values of parameters, as Spark takes them."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Sequence
from typing import Any

from penstock.errors import SqlError
from penstock.gateway import types as pg

_LARGEST_PRECISION, _USUAL_SCALE = 38, 18


def arguments(values: Sequence[object], count: int) -> dict[str, Any]:
    """Arguments of a statement by name: ``p1``, ``p2`` …; NULL for those not given.

    The text casts each to its type. What PySpark would convert by the rules of the machine's own time
    zone, or not at all, is handed over as text.
    """
    padded = [*values, *[None] * (count - len(values))]
    return {f"p{number}": _argument(value) for number, value in enumerate(padded, 1)}


def kinds_of(parameters: Sequence[int], values: Sequence[object]) -> list[str]:
    """The types of parameters in Spark. A numeric that is too large for the usual one gets its own."""
    padded = [*values, *[None] * (len(parameters) - len(values))]
    return [_kind(oid, value) for oid, value in zip(parameters, padded, strict=False)]


def _kind(oid: int, value: object) -> str:
    kind = pg.spark_type(oid)
    if oid != pg.NUMERIC or not isinstance(value, decimal.Decimal) or not value.is_finite():
        return kind
    room = _LARGEST_PRECISION - (value.adjusted() + 1)
    return kind if room >= _USUAL_SCALE else f"DECIMAL({_LARGEST_PRECISION},{max(room, 0)})"


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
