"""Dates, times and intervals that clients send."""

from __future__ import annotations

import re
import struct
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal

from penstock.errors import SqlError
from penstock.gateway.pgwire.refusals import bad_binary, bad_text, moment_out_of_range, unsupported

_DATE = re.compile(r"(\d{4,6})-(\d{1,2})-(\d{1,2})|(\d{4})(\d\d)(\d\d)|(\d{4,6})/(\d{1,2})/(\d{1,2})")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d*))?)?")
_MOMENT = re.compile(
    rf"(?P<date>{_DATE.pattern})(?:(?:\s+|\s*[Tt]\s*)(?P<clock>{_CLOCK.pattern}))?\s*(?P<zone>[A-Za-z+-][^\s]*)?"
)
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?")
_EPOCH = datetime(2000, 1, 1)
_INFINITE = {"infinity", "-infinity", "+infinity", "inf", "-inf"}
_REFUSED = "infinity has no place in Spark's dates and time stamps: use a far date, such as 9999-12-31"
_UNITS = {
    "microsecond": Decimal("0.000001"), "us": Decimal("0.000001"), "usec": Decimal("0.000001"),
    "millisecond": Decimal("0.001"), "ms": Decimal("0.001"), "msec": Decimal("0.001"),
    "second": Decimal(1), "sec": Decimal(1), "s": Decimal(1),
    "minute": Decimal(60), "min": Decimal(60), "m": Decimal(60),
    "hour": Decimal(3600), "hr": Decimal(3600), "h": Decimal(3600),
    "day": Decimal(86_400), "d": Decimal(86_400),
    "week": Decimal(604_800), "w": Decimal(604_800),
}  # fmt: skip
_MONTHS = {"month", "mon", "year", "yr", "y", "decade", "century", "centuries"}
_SPAN = re.compile(r"([+-])?(\d+):(\d\d)(?::(\d\d(?:\.\d*)?))?")
_COUNTED = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*([a-z]+)")
_ISO = re.compile(
    r"P(?:(?P<y>[+-]?[\d.]+)Y)?(?:(?P<m>[+-]?[\d.]+)M)?(?:(?P<week>[+-]?[\d.]+)W)?(?:(?P<day>[+-]?[\d.]+)D)?"
    r"(?:T(?:(?P<hour>[+-]?[\d.]+)H)?(?:(?P<minute>[+-]?[\d.]+)M)?(?:(?P<second>[+-]?[\d.]+)S)?)?"
)


def date_from_text(text: str) -> date:
    # A client may send a time stamp for a date; PostgreSQL takes the day of it.
    return _moment(text, "date")[0].date()


def timestamp_from_text(text: str, zone: str | None) -> datetime:
    """Without a zone if ``zone`` is None; then an offset in the text is passed over, as PostgreSQL does."""
    name = "timestamp" if zone is None else "timestamp with time zone"
    moment, told = _moment(text, name)
    if zone is None:
        return moment
    try:
        return moment.replace(tzinfo=_zone(told or zone, text)).astimezone(UTC)
    except OverflowError:
        raise moment_out_of_range(name, text) from None


def _moment(text: str, name: str) -> tuple[datetime, str | None]:
    word = text.strip()
    if word.lower() in _INFINITE:
        raise unsupported(f"the {name} {word}", _REFUSED)
    if word.lower() == "epoch":
        return datetime(1970, 1, 1), "UTC"
    if word.upper().endswith((" BC", " AD")):
        if word.upper().endswith("BC"):
            raise moment_out_of_range(name, word)
        word = word[:-3]
    match = _MOMENT.fullmatch(word)
    if match is None:
        raise bad_text(name, text)
    parts = _DATE.fullmatch(match["date"])
    assert parts is not None
    year, month, day = (int(part) for part in parts.groups() if part is not None)
    if not 1 <= year <= 9999:
        raise moment_out_of_range(name, word)
    try:
        moment = datetime(year, month, day)
        return moment + _clock(match["clock"] or "00:00", name, text), match["zone"]
    except ValueError:
        raise SqlError(f'date/time field value out of range: "{text[:200]}"', sqlstate="22008") from None
    except OverflowError:
        raise moment_out_of_range(name, word) from None


def _clock(text: str, name: str, whole: str) -> timedelta:
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise bad_text(name, whole)
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    fraction = round(Decimal("0." + (match[4] or "0")) * 1_000_000)
    span = timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=fraction)
    if minutes > 59 or seconds > 60 or span > timedelta(days=1):
        raise SqlError(f'date/time field value out of range: "{whole[:200]}"', sqlstate="22008")
    return span


def _zone(name: str, text: str) -> tzinfo:
    if name.upper() in {"Z", "UTC", "GMT"}:
        return UTC
    match = _OFFSET.fullmatch(name)
    if match is not None:
        size = timedelta(hours=int(match[2]), minutes=int(match[3] or 0), seconds=int(match[4] or 0))
        if size >= timedelta(hours=16):
            raise SqlError(f'time zone displacement out of range: "{text[:200]}"', sqlstate="22009")
        return timezone(-size if match[1] == "-" else size)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise SqlError(f'time zone "{name[:200]}" not recognized', sqlstate="22023") from None


def time_from_text(text: str) -> time:
    word = text.strip()
    span = _clock(word, "time", text)
    if span >= timedelta(days=1):
        raise unsupported("the time 24:00:00", "use 00:00:00, or 23:59:59.999999")
    return (_EPOCH + span).time()


def interval_from_text(text: str) -> timedelta:
    """In the styles postgres, postgres_verbose and ISO 8601."""
    word = text.strip()
    seconds = _iso_span(word) if word.startswith("P") else _spoken_span(word.lower())
    if seconds is None:
        raise bad_text("interval", text)
    try:
        return timedelta(microseconds=round(seconds * 1_000_000))
    except OverflowError:
        raise SqlError(f'interval field value out of range: "{text[:200]}"', sqlstate="22015") from None


def _iso_span(word: str) -> Decimal | None:
    match = _ISO.fullmatch(word)
    if match is None or word.endswith(("P", "T")):
        return None
    try:
        if Decimal(match["y"] or 0) or Decimal(match["m"] or 0):
            raise _months()
        units = ("week", "day", "hour", "minute", "second")
        return sum((Decimal(match[unit] or 0) * _UNITS[unit] for unit in units), Decimal(0))
    except ArithmeticError:
        return None


def _spoken_span(word: str) -> Decimal | None:
    ago = word.endswith(" ago")
    rest = word.removeprefix("@").removesuffix(" ago").strip()
    if not rest:
        return None
    total = Decimal(0)
    while rest:
        if (match := _SPAN.match(rest)) is not None:
            size = int(match[2]) * 3600 + int(match[3]) * 60 + Decimal(match[4] or 0)
            total += -size if match[1] == "-" else size
        elif (match := _COUNTED.match(rest)) is not None:
            unit = match[2] if match[2] in _UNITS or match[2] in _MONTHS else match[2].removesuffix("s")
            if unit in _MONTHS and Decimal(match[1]):
                raise _months()
            if unit not in _UNITS and unit not in _MONTHS:
                return None
            total += Decimal(match[1]) * _UNITS.get(unit, Decimal(0))
        elif (match := re.fullmatch(r"[+-]?\d+(\.\d*)?", rest)) is not None:
            # A number alone counts seconds.
            total += Decimal(match[0])
        else:
            return None
        rest = rest[match.end() :].lstrip()
    return -total if ago else total


def _months() -> SqlError:
    return unsupported(
        "an interval of months or years as a parameter",
        "write it in the statement (INTERVAL '1 month'), or count it in days",
    )


def date_from_binary(data: bytes) -> date:
    if len(data) != 4:
        raise bad_binary("date")
    (days,) = struct.unpack(">i", data)
    if days in {-(1 << 31), (1 << 31) - 1}:
        raise unsupported("the date infinity", _REFUSED)
    try:
        return _EPOCH.date() + timedelta(days=days)
    except OverflowError:
        raise moment_out_of_range("date", f"{days} days from 2000-01-01") from None


def timestamp_from_binary(data: bytes, *, zoned: bool) -> datetime:
    if len(data) != 8:
        raise bad_binary("timestamp")
    (micros,) = struct.unpack(">q", data)
    if micros in {-(1 << 63), (1 << 63) - 1}:
        raise unsupported("the timestamp infinity", _REFUSED)
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise moment_out_of_range("timestamp", f"{micros} microseconds from 2000-01-01") from None
    return moment.replace(tzinfo=UTC) if zoned else moment


def time_from_binary(data: bytes) -> time:
    if len(data) != 8:
        raise bad_binary("time")
    (micros,) = struct.unpack(">q", data)
    if not 0 <= micros < 86_400_000_000:
        raise SqlError("time out of range", sqlstate="22008")
    return (_EPOCH + timedelta(microseconds=micros)).time()


def interval_from_binary(data: bytes) -> timedelta:
    if len(data) != 16:
        raise bad_binary("interval")
    micros, days, months = struct.unpack(">qii", data)
    if months:
        raise _months()
    return timedelta(days=days, microseconds=micros)
