"""The rows that every side counts: the same for the same part and place, with any version of numpy.

A row is a pure function of its part and its number, so that a part can be read again from anywhere, and the
counts that have to come out are known without running anything. Nothing but numpy is imported here: peers
run this in environments of their own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PARTS = 64
KEYS = 10_000
_ROWS_OF_A_PART = 1 << 40
_VALUES = 44
_FIRST = 1_767_225_600_000_000
_APART = 1_000

Integers = NDArray[np.int64]


def rows(part: int, start: int, count: int) -> tuple[Integers, Integers, Integers]:
    """Keys, values and event times (µs since 1970) of the ``count`` rows of a part from number ``start``."""
    mixed = _mixed(part, start, count)
    values = (mixed >> np.uint64(_VALUES)).astype(np.int64)
    times = _FIRST + _APART * np.arange(start, start + count, dtype=np.int64)
    return _keys(mixed), values, times


def keys(part: int, start: int, count: int) -> Integers:
    """The keys alone, for a peer that has no use for the rest."""
    return _keys(_mixed(part, start, count))


def counts(part: int, start: int, count: int) -> Integers:
    """How often each key from 0 to ``KEYS`` stands in these rows."""
    return np.bincount(keys(part, start, count), minlength=KEYS).astype(np.int64)


def mark(part: int, start: int) -> int:
    """A key of its own for the poll that begins with this row, beyond all keys of rows."""
    return KEYS + part * _ROWS_OF_A_PART + start


def marked(key: int) -> tuple[int, int]:
    """Part and first row of the poll with this mark."""
    return divmod(key - KEYS, _ROWS_OF_A_PART)


def _keys(mixed: NDArray[np.uint64]) -> Integers:
    return (mixed % np.uint64(KEYS)).astype(np.int64)


def _mixed(part: int, start: int, count: int) -> NDArray[np.uint64]:
    """Numbers without a visible pattern: the finaliser of SplitMix64 over part and row."""
    first = part * _ROWS_OF_A_PART + start
    state = np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
