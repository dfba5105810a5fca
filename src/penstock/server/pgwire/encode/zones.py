"""How far a zone's clocks are from UTC, for many moments at once."""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from penstock.server.pgwire.encode.fields import Ints

_DAY = 86_400
_CYCLE = 146_097 * _DAY
"""After 400 years the calendar, and so every rule of a zone, begins anew."""
_FIRST, _LAST = 1800, 2437
"""No zone changed its clocks before; from 2037 on only rules apply."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIXED = re.compile(r"([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?")


def offsets(zone: str, seconds: Ints) -> Ints | int:
    """Seconds east of UTC at each of the moments, which count from 1970; one number if all are the same."""
    fixed = _fixed(zone)
    if fixed is not None or not len(seconds):
        return fixed or 0
    first, last = _start(_FIRST), _start(_LAST)
    moments = np.maximum(seconds, first)
    late = moments >= last
    if late.any():
        moments = np.where(late, last - _CYCLE + (moments - last) % _CYCLE, moments)
    years = moments.astype("M8[s]").astype("M8[Y]").astype(np.int64) + 1970
    changes: list[tuple[int, int]] = []
    for year in range(int(years.min()), int(years.max()) + 1):
        changes += _changes(zone, year)
    starts = np.array([start for start, _ in changes], np.int64)
    found = np.array([offset for _, offset in changes], np.int64)
    if (found == found[0]).all():
        return int(found[0])
    return found[np.searchsorted(starts, moments, side="right") - 1]


def _fixed(zone: str) -> int | None:
    if zone.upper() in {"UTC", "GMT", "ETC/UTC", "Z"}:
        return 0
    match = _FIXED.fullmatch(zone)
    if match is None:
        return None
    size = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
    return -size if match[1] == "-" else size


def _start(year: int) -> int:
    return int((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())


@lru_cache(maxsize=4096)
def _changes(zone: str, year: int) -> list[tuple[int, int]]:
    """From when on which offset holds: at the start of the year, and at each change in it."""
    info = _zone(zone)
    at, end = _start(year), _start(year + 1)
    found = [(at, _offset(info, at))]
    while at < end:
        following = min(at + _DAY, end)
        if _offset(info, following - 1) != found[-1][1]:
            low, high = at, following - 1
            while high - low > 1:
                middle = (low + high) // 2
                if _offset(info, middle) == found[-1][1]:
                    low = middle
                else:
                    high = middle
            found.append((high, _offset(info, high)))
        at = following
    return found


@lru_cache(maxsize=64)
def _zone(zone: str) -> zoneinfo.ZoneInfo:
    return zoneinfo.ZoneInfo(zone)


def _offset(info: zoneinfo.ZoneInfo, second: int) -> int:
    moment = (_EPOCH + timedelta(seconds=second)).astimezone(info)
    return int((moment.utcoffset() or timedelta()).total_seconds())
