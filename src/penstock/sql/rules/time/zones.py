"""What clocks of a zone show, and when they show it.

In autumn they show an hour twice. PostgreSQL takes the later one, Java the earlier: an hour of difference.
"""

from __future__ import annotations

from penstock.sql.rules.core import Typed, once
from penstock.sql.rules.types import TIMESTAMP, TIMESTAMPTZ

_DAY = "INTERVAL '1' DAY"


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
