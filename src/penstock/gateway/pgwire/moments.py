"""Dates, times, timestamps and intervals as PostgreSQL prints and packs them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.gateway.pgwire.fields import Field, Varying, binary_array, cells_of, field, nulls
from penstock.gateway.pgwire.numbers import zeroed
from penstock.gateway.pgwire.zones import offset_text, offsets

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.gateway.pgwire.fields import Cells, Ints, Mask

_DAY = 86_400
_MICROS = 1_000_000
_EPOCH_DAYS = 10_957
"""PostgreSQL counts from 2000-01-01."""
_USUAL_FIRST, _USUAL_LAST = -25_567, 47_846
"""1900-01-01 and 2100-12-31."""
_DATE = [("year", "u4"), ("a", "u1"), ("month", "u2"), ("b", "u1"), ("day", "u2")]
_FRACTION = [("point", "u1"), ("high", "u2"), ("middle", "u2"), ("low", "u2")]


def _table(texts: list[str], kind: str) -> npt.NDArray[Any]:
    return np.frombuffer("".join(texts).encode(), kind)


_YEARS = _table([f"{year:04d}" for year in range(10_000)], "u4")
_PAIRS = _table([f"{number:02d}" for number in range(100)], "u2")
_SECONDS = _table(
    [f"{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}" for at in range(_DAY + 1)],
    "u8",
)


def civil(days: Ints) -> tuple[Ints, Ints, Ints]:
    """Year, month and day of days since 1970, in the Gregorian calendar without end in both directions.

    Counted in years that begin in March, so that the leap day is the last one.
    """
    days = days + 719_468
    era = days // 146_097
    day = days - era * 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    late = month >= 10
    return year + era * 400 + late, np.where(late, month - 9, month + 3), day


@lru_cache(maxsize=1)
def _usual_dates() -> npt.NDArray[Any]:
    """The dates of most data, written once."""
    days = np.arange(_USUAL_FIRST, _USUAL_LAST + 1, dtype=np.int64)
    return _written_dates(days)[0].view("V10")[:, 0]


def _date_cells(days: Ints) -> tuple[Cells, Mask | None, tuple[Ints, ...]]:
    """``YYYY-MM-DD``, which of them do not fit that, and then year, month and day of all."""
    if len(days) and int(days.min()) >= _USUAL_FIRST and int(days.max()) <= _USUAL_LAST:
        return cells_of(_usual_dates().take(days - _USUAL_FIRST)), None, ()
    return _written_dates(days)


def _written_dates(days: Ints) -> tuple[Cells, Mask | None, tuple[Ints, ...]]:
    year, month, day = civil(days)
    records = np.empty(len(days), _DATE)
    odd: Mask | None = None
    shown = year
    if len(year) and (int(year.min()) < 1 or int(year.max()) > 9999):
        odd = (year < 1) | (year > 9999)
        shown = np.where(odd, 0, year)
    records["year"] = _YEARS.take(shown)
    records["month"] = _PAIRS.take(month)
    records["day"] = _PAIRS.take(day)
    records["a"] = records["b"] = ord("-")
    return cells_of(records), odd, (year, month, day)


def _odd_date(year: int, month: int, day: int) -> tuple[str, str]:
    """A date before the year 1 or after 9999, and what comes after the time of day."""
    if year < 1:
        return f"{1 - year:04d}-{month:02d}-{day:02d}", " BC"
    return f"{year}-{month:02d}-{day:02d}", ""


def date_text(array: pa.Array) -> Field:
    days = zeroed(array.cast(pa.date32()).view(pa.int32()), np.int64)
    cells, odd, parts = _date_cells(days)
    if odd is None:
        return field(cells, array)
    texts = ["".join(_odd_date(*each)).encode() for each in _rows(parts, odd)]
    return _replaced(binary_array(cells, nulls(array)), odd, texts)


def _rows(parts: tuple[Ints, ...], chosen: Mask) -> zip[tuple[int, ...]]:
    return zip(*(each[chosen].tolist() for each in parts), strict=True)


def _replaced(array: pa.Array, chosen: Mask, texts: list[bytes]) -> Varying:
    return Varying(pc.replace_with_mask(array, pa.array(chosen), pa.array(texts, pa.binary())))


def _micros(array: pa.Array) -> Ints:
    """Microseconds, 0 for nulls; parts of one are cut off."""
    unit = array.type.unit
    values: Ints = zeroed(array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()), np.int64)
    if unit == "us":
        return values
    return values // 1000 if unit == "ns" else values * (_MICROS // {"s": 1, "ms": 1000}[unit])


def _clock(micros: Ints) -> tuple[Cells, Cells | None]:
    """``HH:MM:SS`` of microseconds since midnight, and ``.ffffff`` if any has a fraction."""
    seconds = micros // _MICROS
    fraction = micros - seconds * _MICROS
    clock = cells_of(_SECONDS.take(seconds))
    if not fraction.any():
        return clock, None
    records = np.empty(len(micros), _FRACTION)
    high = fraction // 10_000
    low = fraction - high * 10_000
    middle = low // 100
    records["point"] = ord(".")
    records["high"] = _PAIRS.take(high)
    records["middle"] = _PAIRS.take(middle)
    records["low"] = _PAIRS.take(low - middle * 100)
    return clock, cells_of(records)


def _joined(parts: list[Cells], count: int) -> Cells:
    records = np.empty(count, [(f"f{at}", f"V{part.shape[1]}") for at, part in enumerate(parts)])
    for at, part in enumerate(parts):
        records[f"f{at}"] = np.ascontiguousarray(part).view(f"V{part.shape[1]}")[:, 0]
    return cells_of(records)


def _constant(text: str, count: int) -> Cells:
    return np.broadcast_to(np.frombuffer(text.encode(), np.uint8), (count, len(text)))


def _trimmed(array: pa.Array) -> pa.Array:
    """Without the zeros at the end of the fraction, nor its point if that is all there was."""
    # Seen as text, not cast to it: what was just written needs no check for UTF-8.
    text = pc.ascii_rtrim(array.view(pa.string()), "0")
    return pc.ascii_rtrim(text, ".").view(pa.binary())


def time_text(array: pa.Array) -> Field:
    clock, fraction = _clock(_micros(array))
    if fraction is None:
        return field(clock, array)
    cells = _joined([clock, fraction], len(array))
    return Varying(_trimmed(binary_array(cells, nulls(array))))


def timestamp_text(array: pa.Array, zone: str) -> Field:
    """In the session's zone with its offset if the type has a zone."""
    micros = _micros(array)
    shift: Ints | int = 0
    if array.type.tz is not None:
        shift = offsets(zone, micros // _MICROS)
        micros = micros + shift * _MICROS
    days = micros // (_DAY * _MICROS)
    date, odd, parts = _date_cells(days)
    clock, fraction = _clock(micros - days * (_DAY * _MICROS))
    count = len(array)
    pieces = [date, _constant(" ", count), clock, *([] if fraction is None else [fraction])]
    ending: str | pa.Array = "" if array.type.tz is None else _endings(shift)
    if isinstance(ending, str) and ending and fraction is None:
        pieces.append(_constant(ending, count))
        ending = ""
    cells = _joined(pieces, count)
    if fraction is None and odd is None and isinstance(ending, str):
        return field(cells, array)
    text = binary_array(cells, nulls(array) if array.null_count else None)
    if fraction is not None:
        text = _trimmed(text)
    if not isinstance(ending, str) or ending:
        text = pc.binary_join_element_wise(
            text, pa.scalar(ending, pa.binary()) if isinstance(ending, str) else ending, b""
        )
    return Varying(text) if odd is None else _odd_timestamps(text, odd, parts)


def _odd_timestamps(text: pa.Array, odd: Mask, parts: tuple[Ints, ...]) -> Varying:
    chosen = text.filter(pa.array(odd)).to_pylist()
    texts = []
    for rest, (year, month, day) in zip(chosen, _rows(parts, odd), strict=True):
        before, after = _odd_date(year, month, day)
        texts.append(before.encode() + (rest or b" " * 10)[10:] + after.encode())
    return _replaced(text, odd, texts)


def _endings(shift: Ints | int) -> str | pa.Array:
    if isinstance(shift, int):
        return offset_text(shift)
    distinct, which = np.unique(shift, return_inverse=True)
    if len(distinct) == 1:
        return offset_text(int(distinct[0]))
    return pa.array([offset_text(int(each)).encode() for each in distinct], pa.binary()).take(pa.array(which))


def _interval_parts(array: pa.Array) -> tuple[Ints, Ints, Ints]:
    """Months, days and microseconds. Whole days are told as days, as in differences of timestamps."""
    if pa.types.is_duration(array.type):
        micros = _micros(array)
        days = np.abs(micros) // (_DAY * _MICROS) * np.sign(micros)
        return np.zeros_like(micros), days, micros - days * (_DAY * _MICROS)
    raw = np.frombuffer(array.buffers()[1], [("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
    rows = raw[array.offset : array.offset + len(array)]
    months, days, nanos = (rows[name].astype(np.int64) for name in ("months", "days", "nanos"))
    micros = np.abs(nanos) // 1000 * np.sign(nanos)
    if array.null_count:
        missing = nulls(array)
        months[missing] = days[missing] = micros[missing] = 0
    return months, days, micros


def interval_text(array: pa.Array) -> Field:
    """In the style ``postgres``: ``1 year -2 mons +3 days 04:05:06.7``."""
    months, days, micros = _interval_parts(array)
    years = np.abs(months) // 12 * np.sign(months)
    months = months - years * 12
    before = np.zeros(len(array), np.bool_)
    parts = []
    empty = np.ones(len(array), np.bool_)
    for values, unit in ((years, "year"), (months, "mon"), (days, "day")):
        there = values != 0
        if there.any():
            parts.append(_counted(values, unit, before & (values > 0), ~there))
        before = np.where(there, values < 0, before)
        empty &= ~there
    parts.append(_span(micros, before, ~(empty | (micros != 0))))
    text = pc.binary_join_element_wise(*parts, " ", null_handling="skip")
    if array.null_count:
        text = pc.if_else(array.is_null(), None, text)
    return Varying(text.cast(pa.binary()))


def _counted(values: Ints, unit: str, plus: Mask, missing: Mask) -> pa.Array:
    number = pa.array(values, mask=missing).cast(pa.string())
    units = pc.if_else(pa.array(values == 1), f" {unit}", f" {unit}s")
    return pc.binary_join_element_wise(pc.if_else(pa.array(plus), "+", ""), number, units, "")


def _span(micros: Ints, before: Mask, missing: Mask) -> pa.Array:
    """``HH:MM:SS.ffffff`` with as many hours as there are, after a sign where one is needed."""
    # The smallest number has no positive twin in 64 bits.
    size = np.abs(micros).astype(np.uint64)
    hours = size // np.uint64(3600 * _MICROS)
    rest = (size - hours * np.uint64(3600 * _MICROS)).astype(np.int64)
    clock, fraction = _clock(rest)
    tail = binary_array(
        _joined([clock[:, 2:], *([] if fraction is None else [fraction])], len(micros)), missing
    )
    if fraction is not None:
        tail = _trimmed(tail)
    sign = pc.if_else(pa.array(micros < 0), "-", pc.if_else(pa.array(before & (micros > 0)), "+", ""))
    number = pc.ascii_lpad(pa.array(hours).cast(pa.string()), 2, "0")
    return pc.binary_join_element_wise(sign, number, tail.cast(pa.string()), "")


def date_binary(array: pa.Array) -> Field:
    days = zeroed(array.cast(pa.date32()).view(pa.int32()), np.int64)
    return field(cells_of((days - _EPOCH_DAYS).astype(">i4")), array)


def time_binary(array: pa.Array) -> Field:
    return field(cells_of(_micros(array).astype(">i8")), array)


def timestamp_binary(array: pa.Array) -> Field:
    return field(cells_of((_micros(array) - _EPOCH_DAYS * _DAY * _MICROS).astype(">i8")), array)


def interval_binary(array: pa.Array) -> Field:
    months, days, micros = _interval_parts(array)
    records = np.empty(len(array), [("micros", ">i8"), ("days", ">i4"), ("months", ">i4")])
    records["micros"], records["days"], records["months"] = micros, days, months
    return field(cells_of(records), array)
