"""Dates, times, timestamps and intervals as PostgreSQL prints and packs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import SqlError
from penstock.server.pgwire.encode import kernels
from penstock.server.pgwire.encode.fields import Field, Varying, cells_of, field, nulls, varying
from penstock.server.pgwire.encode.numbers import zeroed
from penstock.server.pgwire.encode.zones import offsets

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.server.pgwire.encode.fields import Ints

_DAY = 86_400
_MICROS = 1_000_000
_EPOCH_DAYS = 10_957
"""PostgreSQL counts from 2000-01-01."""
_UNITS = np.frombuffer(b"yearmon day ", np.uint8)


def _days(array: pa.Array) -> Ints:
    days: Ints = zeroed(array.cast(pa.date32()).view(pa.int32()), np.int64)
    return days


def _micros(array: pa.Array) -> Ints:
    """Microseconds, 0 for nulls; parts of one are cut off."""
    unit = array.type.unit
    values: Ints = zeroed(array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()), np.int64)
    if unit == "us":
        return values
    return values // 1000 if unit == "ns" else values * (_MICROS // {"s": 1, "ms": 1000}[unit])


def _times(array: pa.Array) -> Ints:
    micros = _micros(array)
    if len(micros) and not 0 <= int(micros.min()) <= int(micros.max()) <= _DAY * _MICROS:
        raise SqlError("time out of range", sqlstate="22008", hint="it is not within a day")
    return micros


def _whole(values: Ints, unit: int) -> Ints:
    """How many whole units, towards zero. Not by absolute values: the smallest number has none."""
    floor = values // unit
    found: Ints = floor + ((values < 0) & (floor * unit != values))
    return found


def _written(
    write: Callable[..., None], array: pa.Array, longest: int, *numbers: npt.NDArray[Any]
) -> Varying:
    """What a compiled loop writes of these numbers, none of which takes more than ``longest`` bytes."""
    offsets, out = np.empty(len(array) + 1, np.int32), np.empty(len(array) * longest, np.uint8)
    write(*numbers, offsets, out)
    return Varying(varying(out, offsets, nulls(array) if array.null_count else None))


def date_text(array: pa.Array) -> Field:
    return _written(kernels.dates, array, 16, _days(array))


def time_text(array: pa.Array) -> Field:
    return _written(kernels.times, array, 16, _times(array))


def timestamp_text(array: pa.Array, zone: str) -> Field:
    """In the session's zone with its offset if the type has a zone."""
    micros = _micros(array)
    shift: Ints = np.empty(0, np.int64)
    if array.type.tz is not None:
        shift = np.atleast_1d(np.asarray(offsets(zone, micros // _MICROS), np.int64))
    return _written(kernels.timestamps, array, 48, micros, shift)


def interval_text(array: pa.Array) -> Field:
    """In the style ``postgres``: ``1 year -2 mons +3 days 04:05:06.7``."""
    return _written(kernels.intervals, array, 96, *_interval_parts(array), _UNITS)


def _interval_parts(array: pa.Array) -> tuple[Ints, Ints, Ints]:
    """Months, days and microseconds. Whole days are told as days, as in differences of timestamps."""
    if pa.types.is_duration(array.type):
        micros = _micros(array)
        days = _whole(micros, _DAY * _MICROS)
        return np.zeros_like(micros), days, micros - days * (_DAY * _MICROS)
    raw = np.frombuffer(array.buffers()[1], [("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
    rows = raw[array.offset : array.offset + len(array)]
    months, days, nanos = (rows[name].astype(np.int64) for name in ("months", "days", "nanos"))
    micros = _whole(nanos, 1000)
    if array.null_count:
        missing = nulls(array)
        months[missing] = days[missing] = micros[missing] = 0
    return months, days, micros


def date_binary(array: pa.Array) -> Field:
    return field(cells_of((_days(array) - _EPOCH_DAYS).astype(">i4")), array)


def time_binary(array: pa.Array) -> Field:
    return field(cells_of(_times(array).astype(">i8")), array)


def timestamp_binary(array: pa.Array) -> Field:
    return field(cells_of((_micros(array) - _EPOCH_DAYS * _DAY * _MICROS).astype(">i8")), array)


def interval_binary(array: pa.Array) -> Field:
    months, days, micros = _interval_parts(array)
    records = np.empty(len(array), [("micros", ">i8"), ("days", ">i4"), ("months", ">i4")])
    records["micros"], records["days"], records["months"] = micros, days, months
    return field(cells_of(records), array)
