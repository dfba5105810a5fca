"""Parameters as PostgreSQL reads them: Python's values in its text format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

from penstock.errors import SqlError
from penstock.sql.parse.interval_input import Parts

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:+-")


def dump(value: object) -> bytes | None:
    """One parameter; None is NULL."""
    return None if value is None else text(value).encode("utf-8", "replace")


def text(value: object) -> str:
    """A value that is not NULL."""
    match value:
        case bool():
            return "t" if value else "f"
        case str():
            if "\0" in value:
                raise SqlError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
            return value
        case int() | Decimal() | UUID():
            return str(value)
        case float():
            if math.isfinite(value):
                return repr(value)
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes() | bytearray() | memoryview():
            return "\\x" + bytes(value).hex()
        case datetime():
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case timedelta() | Parts():
            return _interval(value)
        case list() | tuple():
            return _array(value)
    raise SqlError(f"a parameter cannot be a {type(value).__name__}", sqlstate="22P02")


def _interval(value: timedelta | Parts) -> str:
    # A sign on each part: in one of PostgreSQL's styles the first sign would count for all.
    if isinstance(value, Parts):
        return f"{value.months:+d} mons {value.days:+d} days {value.micros:+d} microseconds"
    return f"{value.days:+d} days {value.seconds:+d}.{value.microseconds:06d} seconds"


def _array(values: Sequence[object]) -> str:
    return "{" + ",".join(_element(value) for value in values) + "}"


def _element(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list | tuple):
        return _array(value)
    written = text(value)
    if written and written.upper() != "NULL" and _BARE.issuperset(written):
        return written
    return '"' + written.replace("\\", "\\\\").replace('"', '\\"') + '"'
