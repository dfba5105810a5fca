"""Intervals: PostgreSQL keeps months, days and microseconds apart; Spark has two types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

from penstock.dialect.spark.core import Typed, refuse
from penstock.dialect.spark.types import DAYTIME, MONTHS

_DAY = 86_400_000_000
_MICROS = {
    "microsecond": 1, "us": 1, "usec": 1, "millisecond": 1_000, "ms": 1_000, "msec": 1_000,
    "second": 1_000_000, "sec": 1_000_000, "s": 1_000_000,
    "minute": 60_000_000, "min": 60_000_000, "m": 60_000_000,
    "hour": 3_600_000_000, "hr": 3_600_000_000, "h": 3_600_000_000,
}  # fmt: skip
_DAYS = {"day": 1, "d": 1, "week": 7, "w": 7}
_MONTHS = {
    "month": 1, "mon": 1, "year": 12, "yr": 12, "y": 12, "decade": 120, "dec": 120, "century": 1200,
    "cent": 1200,
    "c": 1200, "millennium": 12_000, "mil": 12_000, "centurie": 1200, "millennia": 12_000,
}  # fmt: skip
_PIECE = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*([a-z]+)")
_CLOCK = re.compile(r"\s*([+-]?)(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?")
_YEARS = re.compile(r"\s*([+-]?)(\d+)-(\d+)$")


@dataclass(frozen=True, slots=True)
class Parts:
    """An interval as PostgreSQL has it."""

    months: int = 0
    days: int = 0
    micros: int = 0

    def __neg__(self) -> Parts:
        return Parts(-self.months, -self.days, -self.micros)

    def __add__(self, other: Parts) -> Parts:
        return Parts(self.months + other.months, self.days + other.days, self.micros + other.micros)

    @property
    def sql(self) -> str:
        """In Spark, where it fits one of its types."""
        if self.months and not self.days and not self.micros:
            return f"INTERVAL '{self.months}' MONTH"
        if self.days and not self.micros:
            return f"INTERVAL '{self.days}' DAY"
        seconds = Decimal(self.days * _DAY + self.micros) / 1_000_000
        return f"INTERVAL '{seconds:f}' SECOND"


def literal(text: str, unit: str = "") -> Typed:
    """``INTERVAL 'text' unit``."""
    parts = _read(text, unit)
    if parts.months and (parts.days or parts.micros):
        # Only useful beside a moment, where the parts are added one after the other.
        return Typed("", MONTHS, parts)
    return Typed(parts.sql, MONTHS if parts.months else DAYTIME, parts)


def sql(value: Typed) -> str:
    """An interval where Spark needs one value."""
    if not value.sql:
        raise refuse("an interval of months and days together is only supported beside a date or timestamp")
    return value.sql


def _read(text: str, unit: str) -> Parts:
    rest = text.strip().lower()
    if unit and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", rest):
        rest = f"{rest} {unit.lower()}"
    years = _YEARS.match(rest)
    if years:
        total = int(years[2]) * 12 + int(years[3])
        return Parts(-total if years[1] == "-" else total)
    ago = rest.endswith(" ago")
    parts, rest = Parts(), rest.removesuffix(" ago").removeprefix("@")
    while rest.strip():
        clock, piece = _CLOCK.match(rest), _PIECE.match(rest)
        if clock:
            micros = int(clock[2]) * 3_600_000_000 + int(clock[3]) * 60_000_000
            micros += int(Decimal(clock[4] or 0) * 1_000_000)
            parts, rest = parts + Parts(micros=-micros if clock[1] == "-" else micros), rest[clock.end() :]
        elif piece:
            parts, rest = parts + _piece(Decimal(piece[1]), piece[2], text), rest[piece.end() :]
        elif re.fullmatch(r"\s*[+-]?\d+(\.\d+)?\s*", rest):
            parts, rest = parts + _piece(Decimal(rest.strip()), "second", text), ""
        else:
            raise refuse(f'invalid input syntax for type interval: "{text}"', sqlstate="22007")
    return -parts if ago else parts


def _piece(amount: Decimal, unit: str, text: str) -> Parts:
    name = unit if unit in ("s", "ms", "us") else unit.rstrip("s")
    if name in _MICROS:
        return Parts(micros=_whole(amount * _MICROS[name]))
    if name in _DAYS:
        days = amount * _DAYS[name]
        return Parts(days=int(days), micros=_whole((days - int(days)) * _DAY))
    if name in _MONTHS:
        months = amount * _MONTHS[name]
        if months != int(months):
            if _MONTHS[name] == 1:
                days = (months - int(months)) * 30
                return Parts(int(months), int(days), _whole((days - int(days)) * _DAY))
            months = months.to_integral_value(rounding=ROUND_HALF_EVEN)
        return Parts(int(months))
    raise refuse(f'invalid input syntax for type interval: "{text}"', sqlstate="22007")


def _whole(amount: Decimal) -> int:
    return int(amount.to_integral_value(rounding=ROUND_HALF_EVEN))
