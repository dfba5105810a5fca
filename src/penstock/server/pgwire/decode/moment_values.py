"""Dates, times and intervals that clients send."""

from __future__ import annotations

import re
import struct
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal

from penstock.errors import SqlError
from penstock.server.pgwire.decode.refusals import (
    BLANKS,
    bad_binary,
    bad_text,
    moment_out_of_range,
    unsupported,
)
from penstock.sql.parse.interval_input import Parts, parsed

_DATE = re.compile(
    r"(\d{4,6})-(\d{1,2})-(\d{1,2})|(\d{4})(\d\d)(\d\d)|(\d{4,6})/(\d{1,2})/(\d{1,2})", re.ASCII
)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d*))?)?", re.ASCII)
# What comes right behind a day cannot be an offset to the west: it could be more of the day.
_MOMENT = re.compile(
    rf"(?P<date>{_DATE.pattern})(?:(?:\s+|\s*[Tt]\s*)(?P<clock>{_CLOCK.pattern})|(?!-))"
    r"\s*(?P<zone>[A-Za-z+-][^\s]*)?",
    re.ASCII,
)
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::(\d\d)(?::(\d\d))?|(\d\d))?", re.ASCII)
_EPOCH = datetime(2000, 1, 1)
_INFINITE = {"infinity", "-infinity", "+infinity", "inf", "-inf"}
_REFUSED = "infinity has no place in Spark's dates and time stamps: use a far date, such as 9999-12-31"


def date_from_text(text: str) -> date:
    # A client may send a time stamp for a date; PostgreSQL takes the day of it.
    return _moment(text, "date")[0].date()


def timestamp_from_text(text: str, zone: str | None) -> datetime:
    """Without a zone if ``zone`` is None; then an offset in the text is passed over, as PostgreSQL does."""
    name = "timestamp" if zone is None else "timestamp with time zone"
    moment, told = _moment(text, name)
    if zone is None:
        return moment
    there = moment.replace(tzinfo=_zone(told or zone, text))
    try:
        # Of an hour that clocks show twice, PostgreSQL takes the second.
        return max(there.astimezone(UTC), there.replace(fold=1).astimezone(UTC))
    except OverflowError:
        raise moment_out_of_range(name, text) from None


def _moment(text: str, name: str) -> tuple[datetime, str | None]:
    word = text.strip(BLANKS)
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
        if match["zone"] is not None:
            _zone(match["zone"], text)  # it must be one also where it does not count
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
        hours, minutes, seconds = int(match[2]), int(match[3] or match[5] or 0), int(match[4] or 0)
        size = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if size >= timedelta(hours=16) or max(minutes, seconds) > 59:
            raise SqlError(f'time zone displacement out of range: "{text[:200]}"', sqlstate="22009")
        return timezone(-size if match[1] == "-" else size)
    if "/" not in name:
        # PostgreSQL's CET has no summer time, that of the list of zones has.
        raise unsupported(f'the time zone "{name[:200]}"', "write an offset, or a name such as Europe/Berlin")
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise SqlError(f'time zone "{name[:200]}" not recognized', sqlstate="22023") from None


def time_from_text(text: str) -> time:
    word = text.strip(BLANKS)
    span = _clock(word, "time", text)
    if span >= timedelta(days=1):
        raise unsupported("the time 24:00:00", "use 00:00:00, or 23:59:59.999999")
    return (_EPOCH + span).time()


def interval_from_text(text: str) -> Parts:
    return parsed(text)


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


def interval_from_binary(data: bytes) -> Parts:
    if len(data) != 16:
        raise bad_binary("interval")
    micros, days, months = struct.unpack(">qii", data)
    if abs(micros) >= (1 << 63) - 1 and abs(days) >= (1 << 31) - 1 and abs(months) >= (1 << 31) - 1:
        raise unsupported("the interval infinity", "intervals here are finite")
    return Parts(months, days, micros)
