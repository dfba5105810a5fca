"""Values written as PostgreSQL writes them, one after the other, by compiled loops.

They take plain numbers and bytes. ``offsets`` and ``out`` are filled: where each value begins, and all of
their bytes, for which there must be space.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.server.pgwire.encode.compiling import compiled

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Ints = npt.NDArray[np.int64]
    Offsets = npt.NDArray[np.int32]
    Floats = npt.NDArray[np.floating[Any]]

_MINUS, _PLUS, _POINT, _COLON, _SPACE, _ZERO = (ord(each) for each in "-+.: 0")
_MICROS = 1_000_000
_HOUR = 3_600_000_000
_DAY = 86_400_000_000
_NEGATIVE = 0x4000
NOT_PLAIN = 255
"""Where `plain` has found nothing."""


# digits


@compiled
def _digits(out: Bytes, at: int, number: int, least: int) -> int:
    """A number that is not negative, with zeros before it up to ``least`` digits."""
    count, rest = 1, number // 10
    while rest:
        rest //= 10
        count += 1
    count = max(count, least)
    for place in range(at + count - 1, at - 1, -1):
        rest = number // 10
        out[place] = _ZERO + number - rest * 10
        number = rest
    return at + count


@compiled
def _two(out: Bytes, at: int, number: int) -> int:
    """A number below 100, always with two digits."""
    tens = number * 103 >> 10
    out[at] = _ZERO + tens
    out[at + 1] = _ZERO + number - tens * 10
    return at + 2


@compiled
def point(texts: Offsets, data: Bytes, scale: int, offsets: Offsets, out: Bytes) -> None:
    """Whole numbers in digits, with a point before the last ``scale`` of them, or zeros behind them."""
    at = 0
    for row in range(len(texts) - 1):
        offsets[row] = at
        first, last = texts[row], texts[row + 1]
        if first < last and data[first] == _MINUS:
            out[at] = _MINUS
            at += 1
            first += 1
        if first == last:
            continue
        whole = last - first - scale
        if whole <= 0:
            out[at] = _ZERO
            at += 1
        for place in range(first, last):
            if place - first == whole:
                out[at] = _POINT
                at += 1
            elif place == first and whole < 0:
                out[at] = _POINT
                at += 1
                for _ in range(-whole):
                    out[at] = _ZERO
                    at += 1
            out[at] = data[place]
            at += 1
        if scale < 0 and not (last - first == 1 and data[first] == _ZERO):
            for _ in range(-scale):
                out[at] = _ZERO
                at += 1
    offsets[-1] = at


@compiled
def pack(texts: Offsets, data: Bytes, scale: int, offsets: Offsets, out: Bytes) -> None:
    """The same numbers as groups of four digits around the point, without groups of zeros at either end."""
    at = 0
    shown = max(scale, 0)
    for row in range(len(texts) - 1):
        offsets[row] = at
        first, last = texts[row], texts[row + 1]
        if first == last:
            continue
        sign = 0
        if data[first] == _MINUS:
            sign = _NEGATIVE
            first += 1
        whole = last - first - scale
        # How many are before the point: fewer than none if the first ones after it are zeros.
        groups = -(-whole // 4)
        weight = groups - 1
        place = first - (groups * 4 - whole)
        begin = end = at + 8
        while place < last:
            group = 0
            for digit in range(place, place + 4):
                group = group * 10 + (data[digit] - _ZERO if first <= digit < last else 0)
            place += 4
            out[begin], out[begin + 1] = group >> 8, group & 255
            begin += 2
            if group:
                end = begin
        count = (end - at - 8) // 2
        if count == 0:
            sign = weight = 0
        for number in (count, weight, sign, shown):
            out[at], out[at + 1] = (number >> 8) & 255, number & 255
            at += 2
        at = end
    offsets[-1] = at


@compiled
def plain(values: Floats, powers: Floats, least: float, most: float, numbers: Ints, places: Bytes) -> int:
    """Find decimals of few digits: ``numbers / 10**places`` is the value, and no fewer places would do.

    Both are exact as floats, so that the quotient is the float nearest to that decimal, and its digits are
    the fewest that give the float back. Values below ``least`` are left out, and what is not less than
    ``most`` without its point. How many there are is the result.
    """
    found = 0
    for row in range(len(values)):
        size = abs(values[row])
        places[row] = NOT_PLAIN
        if size < least and size != 0:
            continue
        for place in range(len(powers)):
            scaled = size * powers[place]
            if not scaled < most:
                break
            number = np.rint(scaled)
            if number / powers[place] == size:
                numbers[row], places[row] = np.int64(number), place
                found += 1
                break
    return found


@compiled
def decimals(
    values: Floats, numbers: Ints, places: Bytes, texts: Offsets, data: Bytes, offsets: Offsets, out: Bytes
) -> None:
    """Write what `plain` has found; the others are in ``texts``, in their order."""
    at = other = 0
    for row in range(len(values)):
        offsets[row] = at
        if places[row] == NOT_PLAIN:
            for place in range(texts[other], texts[other + 1]):
                out[at] = data[place]
                at += 1
            other += 1
            continue
        if math.copysign(1.0, values[row]) < 0:
            out[at] = _MINUS
            at += 1
        behind = int(places[row])
        end = _digits(out, at, numbers[row], behind + 1)
        if behind:
            for place in range(end, end - behind, -1):
                out[place] = out[place - 1]
            out[end - behind] = _POINT
            end += 1
        at = end
    offsets[-1] = at


# dates and times


@compiled
def _date(out: Bytes, at: int, days: int) -> tuple[int, bool]:
    """``YYYY-MM-DD`` of days since 1970, and whether it is before Christ.

    The calendar is the Gregorian, without end in both directions. Counted in years that begin in March, so
    that the leap day is the last one.
    """
    days += 719_468
    era = days // 146_097
    day = days - era * 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    year += era * 400 + (1 if month >= 10 else 0)
    month += -9 if month >= 10 else 3
    before = year < 1
    if 0 < year < 10_000:
        at = _two(out, _two(out, at, year // 100), year % 100)
    else:
        at = _digits(out, at, 1 - year if before else year, 4)
    out[at] = _MINUS
    at = _two(out, at + 1, month)
    out[at] = _MINUS
    return _two(out, at + 1, day), before


@compiled
def _clock(out: Bytes, at: int, hours: int, micros: int) -> int:
    """``HH:MM:SS.ffffff`` without zeros at the end of the fraction; ``micros`` are less than an hour."""
    seconds = micros // _MICROS
    micros -= seconds * _MICROS
    at = _two(out, at, hours) if hours < 100 else _digits(out, at, hours, 2)
    out[at] = _COLON
    minutes = seconds // 60
    at = _two(out, at + 1, minutes)
    out[at] = _COLON
    at = _two(out, at + 1, seconds - minutes * 60)
    if micros:
        out[at] = _POINT
        high = micros // 10_000
        low = micros - high * 10_000
        at = _two(out, _two(out, _two(out, at + 1, high), low // 100), low % 100)
        while out[at - 1] == _ZERO:
            at -= 1
    return at


@compiled
def _before_christ(out: Bytes, at: int) -> int:
    out[at], out[at + 1], out[at + 2] = _SPACE, ord("B"), ord("C")
    return at + 3


@compiled
def _offset(out: Bytes, at: int, seconds: int) -> int:
    """``+HH``, with minutes and seconds where there are any."""
    out[at] = _MINUS if seconds < 0 else _PLUS
    seconds = abs(seconds)
    at = _two(out, at + 1, seconds // 3600)
    if seconds % 3600:
        out[at] = _COLON
        at = _two(out, at + 1, seconds // 60 % 60)
    if seconds % 60:
        out[at] = _COLON
        at = _two(out, at + 1, seconds % 60)
    return at


@compiled
def dates(days: Ints, offsets: Offsets, out: Bytes) -> None:
    at = 0
    for row in range(len(days)):
        offsets[row] = at
        at, before = _date(out, at, days[row])
        if before:
            at = _before_christ(out, at)
    offsets[-1] = at


@compiled
def times(micros: Ints, offsets: Offsets, out: Bytes) -> None:
    at = 0
    for row in range(len(micros)):
        offsets[row] = at
        at = _clock(out, at, micros[row] // _HOUR, micros[row] % _HOUR)
    offsets[-1] = at


@compiled
def _copied(out: Bytes, at: int, begin: int, end: int) -> int:
    for place in range(begin, end):
        out[at + place - begin] = out[place]
    return at + end - begin


@compiled
def timestamps(micros: Ints, shift: Ints, offsets: Offsets, out: Bytes) -> None:
    """Each ``shift`` seconds east of UTC: all the same if there is one, without a zone if there is none."""
    at = east = 0
    # Neighbours are mostly of the same day: its text is copied.
    known, begin, end, before = np.int64(1) << 62, 0, 0, False
    for row in range(len(micros)):
        offsets[row] = at
        if len(shift):
            east = shift[row if len(shift) > 1 else 0]
        # The shift is added to the time of day: near the end of all numbers, the whole would run over.
        days = micros[row] // _DAY
        local = micros[row] - days * _DAY + east * _MICROS
        days += local // _DAY
        local %= _DAY
        if days == known:
            at = _copied(out, at, begin, end)
        else:
            known, begin = days, at
            at, before = _date(out, at, days)
            end = at
        out[at] = _SPACE
        at = _clock(out, at + 1, local // _HOUR, local % _HOUR)
        if len(shift):
            at = _offset(out, at, east)
        if before:
            at = _before_christ(out, at)
    offsets[-1] = at


@compiled
def _signed(out: Bytes, at: int, spaced: bool, number: int, negative: bool) -> int:
    """What comes before a part of an interval; a plus only after a part that is ``negative``."""
    if spaced:
        out[at] = _SPACE
        at += 1
    if number < 0 or (negative and number > 0):
        out[at] = _MINUS if number < 0 else _PLUS
        at += 1
    return at


@compiled
def intervals(months: Ints, days: Ints, micros: Ints, units: Bytes, offsets: Offsets, out: Bytes) -> None:
    """In the style ``postgres``; ``units`` are the words for years, months and days, four letters each."""
    at = 0
    for row in range(len(months)):
        offsets[row] = at
        begin, negative = at, False
        years = abs(months[row]) // 12 * (-1 if months[row] < 0 else 1)
        for place, number in enumerate((years, months[row] - years * 12, days[row])):
            if number == 0:
                continue
            at = _signed(out, at, at > begin, number, negative)
            negative = number < 0
            at = _digits(out, at, abs(number), 1)
            out[at] = _SPACE
            at += 1
            for letter in range(place * 4, place * 4 + 4):
                if units[letter] != _SPACE:
                    out[at] = units[letter]
                    at += 1
            if number != 1:
                out[at] = ord("s")
                at += 1
        left = micros[row]
        if left == 0 and at > begin:
            continue
        at = _signed(out, at, at > begin, left, negative)
        # Not by its absolute value: the smallest number has none.
        hours = left // _HOUR
        left -= hours * _HOUR
        if hours < 0 and left:
            hours += 1
            left -= _HOUR
        at = _clock(out, at, abs(hours), abs(left))
    offsets[-1] = at
