"""What PostgreSQL reads from the text of an interval.

Three forms, which it tells apart by what they begin with and hold: units (``1 day 02:03:04``, ``2 weeks
ago``), SQL's own (``1-2 3 4:05:06``) and ISO 8601 (``P1Y2M3DT4H5M6S``, ``P0001-02-03T04:05:06``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from penstock.errors import SqlError

DAY = 86_400_000_000
"""Microseconds."""
_UNITS = {
    "microsecond": ("us", "usec", "usecs", "usecond", "useconds", "microsecon"),
    "millisecond": ("ms", "msec", "msecs", "msecond", "mseconds", "millisecon"),
    "second": ("s", "sec", "secs", "second", "seconds"),
    "minute": ("m", "min", "mins", "minute", "minutes"),
    "hour": ("h", "hr", "hrs", "hour", "hours"),
    "day": ("d", "day", "days"),
    "week": ("w", "week", "weeks"),
    "month": ("mon", "mons", "month", "months"),
    "year": ("y", "yr", "yrs", "year", "years"),
    "decade": ("dec", "decs", "decade", "decades"),
    "century": ("c", "cent", "century", "centuries"),
    "millennium": ("mil", "mils", "millennia", "millennium"),
}
_WORDS = {word: unit for unit, words in _UNITS.items() for word in words}
_LONGEST_WORD = 10
"""PostgreSQL looks at so many letters of a word."""
_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}
_YEARS = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
_TOKEN = re.compile(
    r"[\s,]*(?:(?P<clock>(?:[+-]\s*)?\d++(?::\d*+)++(?:\.\d*+)?+)(?![+.-])|(?P<years>(?:[+-]\s*)?\d+-\d+)(?![\d:-])"
    r"|(?P<number>(?:[+-]\s*)?\d++(?:\.\d*+)?+|\.\d++)(?!-)|(?P<word>[a-zA-Z]+)(?![-./])|(?P<mark>@))",
    re.ASCII,
)
_CLOCK = re.compile(r"(\d+):(\d*)(?::(\d*))?(?:\.(\d*))?", re.ASCII)
_ISO_PART = re.compile(r"([+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+))([YMWDHS])", re.ASCII)
_ISO_DATE = re.compile(r"([+-]?\d+)-([+-]?\d+)(?:-([+-]?\d+))?", re.ASCII)
_ISO_CLOCK = re.compile(r"([+-]?\d+):(\d+)(?::(\d+(?:\.\d*|,\d+)?))?", re.ASCII)
_ISO_UNITS = {"Y": "year", "M": "month", "W": "week", "D": "day"}
_ISO_TIMES = {"H": "hour", "M": "minute", "S": "second"}
_BLANKS = " \t\n\r\v\f"
_GLUED = frozenset({"d", "h", "m", "mm", "mon", "s", "t", "y"})
"""Units behind which a number may follow without a blank: 2h30m."""
_GOES_ON = re.compile("[0-9+]")
_MOST = 2**31
_MOST_MICROS = 2**63


@dataclass(frozen=True, slots=True)
class Parts:
    """An interval as PostgreSQL has it: months, days and the rest, each with a sign of its own."""

    months: int = 0
    days: int = 0
    micros: int = 0

    def __neg__(self) -> Parts:
        return Parts(-self.months, -self.days, -self.micros)

    def __add__(self, other: Parts) -> Parts:
        return Parts(self.months + other.months, self.days + other.days, self.micros + other.micros)

    @property
    def size(self) -> int:
        """By which PostgreSQL compares: a month has 30 days, a day 24 hours."""
        return (self.months * 30 + self.days) * DAY + self.micros

    def times(self, factor: Fraction) -> Parts:
        """As PostgreSQL multiplies: what is left of months becomes days, what is left of days time."""
        months, days = self.months * factor, self.days * factor
        whole = Parts(int(months), int(days))
        spare = _rounded((months - whole.months) * 30)
        seconds = _rounded((days - whole.days + spare - int(spare)) * 86_400)
        more = int(seconds / 86_400) if abs(seconds) >= 86_400 else 0
        micros = round(self.micros * factor + (seconds - more * 86_400) * 1_000_000)
        return Parts(whole.months, whole.days + int(spare) + more, micros)


def parsed(text: str, fields: str = "", precision: int | None = None) -> Parts:
    """``interval 'text' fields``, as ``interval '1' day`` or ``interval(3) '…'``.

    Raises `SqlError` as PostgreSQL does: 22007 for what is no interval, 22015 for what is too large.
    """
    body = text.strip(_BLANKS)
    if re.fullmatch(r"[+-]?inf(inity)?", body, re.IGNORECASE):
        raise SqlError(
            f"the interval {body} is not supported", sqlstate="0A000", hint="Intervals here are finite."
        )
    if re.search(r"\d{1000}", body):
        # No interval has so many digits, and Python does not make a number of many more.
        raise SqlError("interval field value out of range", sqlstate="22015")
    parts = _iso(text) if text.startswith("P") else _spoken(body, fields.lower())
    if parts is None:
        raise SqlError(f'invalid input syntax for type interval: "{text}"', sqlstate="22007")
    if max(abs(parts.months), abs(parts.days)) >= _MOST or abs(parts.micros) >= _MOST_MICROS:
        raise SqlError(f'interval field value out of range: "{text}"', sqlstate="22015")
    return restricted(parts, fields.lower(), precision)


def restricted(parts: Parts, fields: str = "", precision: int | None = None) -> Parts:
    """What ``interval day to hour`` and ``interval(3)`` keep of a value."""
    last = fields.rsplit(" to ", maxsplit=1)[-1] if fields else ""
    if last == "year":
        return Parts(int(parts.months / 12) * 12)
    if last == "month":
        return Parts(parts.months)
    if last == "day":
        return replace(parts, micros=0)
    if last in ("hour", "minute"):
        return replace(parts, micros=int(Fraction(parts.micros, _MICROS[last])) * _MICROS[last])
    if precision is not None and precision < 6:
        step = 10 ** (6 - precision)
        size = (abs(parts.micros) + step // 2) // step * step
        return replace(parts, micros=size if parts.micros >= 0 else -size)
    return parts


_CLOCK_FIELDS = ("hour", "minute", "second", "millisecond", "microsecond")


@dataclass
class _Sum:
    """The fields that were read; a kind of field comes once."""

    parts: Parts = Parts()
    seen: frozenset[str] = frozenset()

    def add(self, amount: Fraction, unit: str) -> bool:
        # Seconds with a fraction are milliseconds and microseconds, too.
        kinds = _CLOCK_FIELDS[2:] if unit == "second" and amount.denominator != 1 else (unit,)
        return self._add(_piece(amount, unit), kinds)

    def add_clock(self, micros: int) -> bool:
        return self._add(Parts(micros=micros), _CLOCK_FIELDS)

    def _add(self, parts: Parts, kinds: Sequence[str]) -> bool:
        if not self.seen.isdisjoint(kinds):
            return False
        self.seen, self.parts = self.seen.union(kinds), self.parts + parts
        return True


def _piece(amount: Fraction, unit: str) -> Parts:
    whole = int(amount)
    rest = amount - whole
    if unit in _MICROS:
        return Parts(micros=whole * _MICROS[unit] + _nearest(rest * _MICROS[unit]))
    if unit == "day":
        return Parts(days=whole, micros=_nearest(rest * DAY))
    if unit in ("week", "month"):
        size = 7 if unit == "week" else 30
        days = int(rest * size)
        micros = _nearest((rest * size - days) * DAY)
        return Parts(0, whole * 7 + days, micros) if unit == "week" else Parts(whole, days, micros)
    months = round(rest * _YEARS[unit] * 12)
    return Parts(whole * _YEARS[unit] * 12 + months)


def _spoken(text: str, fields: str) -> Parts | None:
    tokens = list(_tokens(text))
    if not tokens or tokens[-1][0] == "bad":
        return None
    total, unit, waiting, ago = _Sum(), "", False, False
    # From the end: a number is counted in the unit behind it.
    for place in range(len(tokens) - 1, -1, -1):
        kind, value = tokens[place]
        if kind == "word":
            if value == "ago" and place == len(tokens) - 1:
                ago = True
                continue
            if waiting or value[:_LONGEST_WORD] not in _WORDS:
                return None
            unit, waiting = _WORDS[value[:_LONGEST_WORD]], True
            continue
        if kind == "mark":
            continue
        if kind == "clock":
            micros = None if waiting else _clock(value, fields)
            added = micros is not None and total.add_clock(micros)
            # A number before it is one of days.
            unit = "day"
        elif kind == "years":
            added, unit = total.add(Fraction(_years(value)), "month"), "month"
        else:
            unit = unit or ("" if ago else _default(fields))
            added = bool(unit) and total.add(Fraction(_point(value)), unit)
            unit = "day" if unit == "hour" else unit
        if not added:
            return None
        waiting = False
    if waiting or not total.seen:
        return None
    return -total.parts if ago else total.parts


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            if text[at:].strip(_BLANKS):
                yield "bad", ""
            return
        at = found.end()
        word = found[found.lastgroup].lower()
        if found.lastgroup == "word" and _GOES_ON.match(text, at) and word not in _GLUED:
            yield "bad", ""
            return
        yield found.lastgroup, re.sub(r"\s", "", word)


def _default(fields: str) -> str:
    """The unit of a number that has none."""
    return fields.rsplit(" to ", maxsplit=1)[-1] if fields else "second"


def _clock(text: str, fields: str) -> int | None:
    """``h:m``, ``h:m:s``; with a fraction and two numbers, or as ``minute to second``, ``m:s``."""
    found = _CLOCK.fullmatch(text.lstrip("+-"))
    if found is None:
        return None
    first, second = int(found[1]), int(found[2] or 0)
    fraction = Fraction(f"0.{found[4] or 0}")
    if found[3] is not None:
        hours, minutes, seconds = first, second, int(found[3] or 0) + fraction
    elif found[4] is not None or fields == "minute to second":
        hours, minutes, seconds = 0, first, second + fraction
    else:
        hours, minutes, seconds = first, second, fraction
    if minutes > 59 or seconds > 60:
        raise SqlError(f'interval field value out of range: "{text}"', sqlstate="22015")
    micros = (hours * 60 + minutes) * 60_000_000 + _nearest(seconds * 1_000_000)
    return -micros if text.startswith("-") else micros


def _years(text: str) -> int:
    years, months = text.lstrip("+-").split("-")
    if int(months) > 11:
        raise SqlError(f'interval field value out of range: "{text}"', sqlstate="22015")
    total = int(years) * 12 + int(months)
    return -total if text.startswith("-") else total


def _iso(text: str) -> Parts | None:
    day, mark, clock = text[1:].partition("T")
    if (not day and not clock) or (mark and not clock):
        return None
    total = _Sum()
    for body, units in ((day, _ISO_UNITS), (clock, _ISO_TIMES)):
        if body and not (_iso_pieces(body, units, total) or _iso_plain(body, units is _ISO_TIMES, total)):
            return None
    return total.parts


def _iso_pieces(body: str, units: dict[str, str], total: _Sum) -> bool:
    pieces = list(_ISO_PART.finditer(body))
    if not pieces or "".join(piece[0] for piece in pieces) != body:
        return False
    return all(
        piece[2] in units and total.add(Fraction(_point(piece[1])), units[piece[2]]) for piece in pieces
    )


def _iso_plain(body: str, clock: bool, total: _Sum) -> bool:
    """``0001-02-03`` and ``04:05:06``."""
    found = (_ISO_CLOCK if clock else _ISO_DATE).fullmatch(body)
    if found is None:
        return False
    units = ("hour", "minute", "second") if clock else ("year", "month", "day")
    return all(
        value is None or total.add(Fraction(_point(value)), unit)
        for value, unit in zip(found.groups(), units, strict=True)
    )


def _point(number: str) -> str:
    plain = number.replace(",", ".")
    return plain + "0" if plain.endswith(".") else plain


def _nearest(value: Fraction) -> int:
    """The nearest whole number; a half goes towards zero."""
    whole = int(value)
    rest = value - whole
    return whole + (1 if rest > Fraction(1, 2) else -1 if rest < Fraction(-1, 2) else 0)


def _rounded(value: Fraction) -> Fraction:
    return Fraction(math.floor(value * 1_000_000 + Fraction(1, 2)), 1_000_000)
