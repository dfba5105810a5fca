"""What clocks of a zone show, and when they show it.

In autumn they show an hour twice. PostgreSQL takes the later one, Java the earlier: an hour of difference. In
spring they leave an hour out, and functions of Spark that take moments only move a timestamp out of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.sql.rules.core import Typed, once
from penstock.sql.rules.types import TIMESTAMP, TIMESTAMPTZ

_DAY = "INTERVAL '1' DAY"
_MICRO = "INTERVAL '0.000001' SECOND"
_STEADY = re.compile(r"(?i:utc|gmt|zulu|z|etc/.*)|(UTC|GMT)?[+-][0-9:]+")
"""Zones whose clocks never change."""
_LITERAL = re.compile(r"TIMESTAMP_NTZ ?'[^']*'|CAST\(DATE ?'[^']*' AS TIMESTAMP_NTZ\)")
"""What Spark can make a constant of, which it wants in VALUES."""
_DAYS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_changing: ContextVar[bool] = ContextVar("_changing", default=True)


@contextmanager
def session_zone(name: str | None) -> Iterator[None]:
    """Translate for sessions of this ``timezone``; for any zone if it is not known."""
    token = _changing.set(name is None or _STEADY.fullmatch(name) is None)
    try:
        yield
    finally:
        _changing.reset(token)


def clocks_change() -> bool:
    """Whether the clocks of the session's zone may show an hour twice, or not at all."""
    return _changing.get()


def moment_of(local: str) -> str:
    """The moment at which the session's clocks show ``local``, a timestamp without a zone."""
    if not clocks_change():
        return f"CAST({local} AS TIMESTAMP)"
    return second_of(local) if _LITERAL.fullmatch(local) else once(Typed(local, TIMESTAMP), second_of)


def second_of(v: str) -> str:
    """The same for a name or a literal, of which Spark can make a constant."""
    # By the difference to UTC that holds a day later; if clocks then show the same, this is the second time.
    second = f"timestamp_micros(unix_micros(CAST({v} + {_DAY} AS TIMESTAMP)) - 86400000000)"
    return f"IF(CAST({second} AS TIMESTAMP_NTZ) = {v}, {second}, CAST({v} AS TIMESTAMP))"


def elapsed(later: str, earlier: str) -> str:
    """The time between two moments. Spark's own difference is what clocks show in between."""
    micros = f"(unix_micros({later}) - unix_micros({earlier}))"
    return f"CAST({micros} * {_MICRO} AS INTERVAL DAY TO SECOND)"


def truncated(value: Typed, word: str) -> str:
    """``date_trunc`` of a timestamp, with or without a zone, to one of Spark's units."""
    if not clocks_change():
        return f"CAST(date_trunc('{word}', {value.sql}) AS {value.type.spark})"
    if word in _DAYS:
        day = f"CAST({value.sql} AS DATE)"
        start = day if word == "DAY" else f"trunc({day}, '{word}')"
        first = f"CAST({start} AS TIMESTAMP_NTZ)"
        return moment_of(first) if value.type.name == "timestamptz" else first
    # The rest of an hour is taken off as time that elapsed: of two equal hours, each stays what it is.
    if value.type.name == "timestamptz":
        return once(value, lambda v: f"timestamp_micros(unix_micros({v}) - {_rest(v, word)})")
    return once(value, lambda v: f"({v} - {_rest(v, word)} * {_MICRO})")


def _rest(v: str, word: str) -> str:
    """Microseconds since the hour, minute or second began."""
    seconds = f"CAST(extract(SECOND FROM {v}) * 1000000 AS BIGINT)"
    if word == "HOUR":
        return f"(minute({v}) * 60000000L + {seconds})"
    size = {"MINUTE": 60_000_000, "SECOND": 1_000_000, "MILLISECOND": 1000, "MICROSECOND": 1}[word]
    return f"({seconds} % {size})"


def instant(local: str, zone: str) -> Typed:
    """The moment at which the clocks of a zone show ``local``, a timestamp without a zone."""
    return Typed(once(Typed(local, TIMESTAMP), lambda v: _at_utc(_in_utc(v, zone))), TIMESTAMPTZ)


def shown(moment: str, zone: str) -> Typed:
    """What the clocks of a zone show at a moment."""
    seconds = f"CAST(CAST(unix_micros({moment}) AS DECIMAL(20,0)) / 1000000BD AS DECIMAL(18,6))"
    # Not by way of the session's zone, in which two moments may be shown alike.
    utc = f"(TIMESTAMP_NTZ'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, {seconds}))"
    return Typed(f"convert_timezone('UTC', {zone}, {utc})", TIMESTAMP)


def _in_utc(local: str, zone: str) -> str:
    first = f"convert_timezone({zone}, 'UTC', {local})"
    # By the difference to UTC that holds a day later; if clocks then show the same, this is the second time.
    second = f"({local} - (({local} + {_DAY}) - convert_timezone({zone}, 'UTC', {local} + {_DAY})))"
    again = f"convert_timezone('UTC', {zone}, {second})"
    return f"IF({second} > {first} AND {again} = {local}, {second}, {first})"


def _at_utc(clock: str) -> str:
    return f"CAST(concat(CAST({clock} AS STRING), 'Z') AS TIMESTAMP)"
