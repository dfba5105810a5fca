"""Which bucket a row belongs to: the hash of its key, modulo the number of buckets.

The hash is part of a format. Files that one release wrote are read by the next, and both sides of a join are
hashed by different processes. So it depends on the values alone: not on the machine, the version of a
library, or how rows are cut into batches. All arithmetic is on unsigned 64-bit words and wraps around:

- *mixed(x)* is the finalizer of splitmix64: x ^= x >> 30; x *= 0xBF58476D1CE4E5B9; x ^= x >> 27;
  x *= 0x94D049BB133111EB; x ^= x >> 31.
- STEP is 0x9E3779B97F4A7C15, and *word(x)* is mixed(x + STEP).

================================  ==================================================================
a value that is                   has the hash
================================  ==================================================================
NULL, of any type                 0x6A09E667F3BCC908
a boolean or an integer           word(v), with v as 64 bits in two's complement; true is 1
a float                           word(b), with b the bits of it as a double; -0.0 is 0.0, and every
                                  NaN is 0x7FF8000000000000
a date                            word(days since 1970-01-01)
a timestamp                       word(microseconds since 1970-01-01), rounded down
a decimal (128 bits)              word(word(low) + high), with the two halves of the unscaled number
a text (UTF-8) or bytes           word(n + the sum over i of word(w[i] + i * STEP)), with the number of
                                  bytes n and these as little-endian words w[0], w[1], …, the last
                                  one filled up with zeros
================================  ==================================================================

A dictionary-encoded column has the hash of its values. The hash of a key with several columns is that of its
first column, h, and then for each further column with the hash c: h = mixed(h * 0x9FB21C651E98DF25 + c).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from penstock.errors import UsageError
from penstock.types.arrow import is_bytes, is_text

Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"

MOST_BUCKETS = 1 << 20
"""Each file says how many rows it has of every bucket: more buckets would make that larger than the rows."""

_NULL = np.uint64(0x6A09E667F3BCC908)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ORDER = np.uint64(0x9FB21C651E98DF25)
_FULL = np.uint64(0xFFFFFFFFFFFFFFFF)

_BLOCK = 1 << 15
"""Rows whose words stay in a processor's cache between two operations."""
_BESIDE = 4
"""So many words of each text are hashed for all rows at once, word by word; the rest one after the other."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def bucket_numbers(columns: Sequence[pa.Array], buckets: int) -> Numbers:
    """The bucket of each row, from 0 to ``buckets`` - 1, by the hash of its key in these columns.

    The columns have the same length. One whose type cannot be a key is a `UsageError`.
    """
    if not columns:
        raise UsageError("a key has at least one column")
    if not 1 <= buckets <= MOST_BUCKETS:
        raise UsageError(f"rows cannot be spread over {buckets} buckets", hint=f"use 1 to {MOST_BUCKETS}")
    for column in columns:
        check_key(column.type)
    count = len(columns[0])
    numbers: Numbers = np.empty(count, np.int32)
    for begin in range(0, count, _BLOCK):
        hashed = _hash_rows([column.slice(begin, _BLOCK) for column in columns])
        numbers[begin : begin + _BLOCK] = _modulo(hashed, buckets)
    return numbers


def check_key(kind: pa.DataType, name: str | None = None) -> None:
    """Raise `UsageError` if a column of this type, called ``name``, cannot be a key."""
    inner = kind.value_type if t.is_dictionary(kind) else kind
    if not any(is_kind(inner) for is_kind in _KEYS):
        what = "a column" if name is None else f"the column {name!r}"
        raise UsageError(
            f"{what} of type {kind} cannot be a key",
            hint="use a column of numbers, text, bytes, dates or timestamps, or make one in a transform",
        )


_KEYS = (
    t.is_boolean,
    t.is_integer,
    t.is_float32,
    t.is_float64,
    t.is_decimal128,
    t.is_date32,
    t.is_timestamp,
    is_text,
    is_bytes,
)


def _modulo(hashed: Words, buckets: int) -> Words:
    if buckets & (buckets - 1):
        return hashed % np.uint64(buckets)
    return hashed & np.uint64(buckets - 1)


def _hash_rows(columns: Sequence[pa.Array]) -> Words:
    hashed = _hash(columns[0])
    for column in columns[1:]:
        hashed = hashed * _ORDER
        hashed += _hash(column)
        hashed = _mixed(hashed)
    return hashed


def _hash(column: pa.Array) -> Words:
    if t.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if is_text(kind) or is_bytes(kind):
        hashed = _hash_bytes(column)
    elif t.is_decimal(kind):
        halves = _halves(column)
        hashed = _word(_word(halves[:, 0]) + halves[:, 1])
    else:
        hashed = _word(_bits(column))
    if column.null_count:
        hashed[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashed


def _word(words: Words) -> Words:
    return _mixed(words + _STEP)


def _mixed(words: Words) -> Words:
    """Each bit of a word in every bit of the result. The given words are overwritten."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def _bits(column: pa.Array) -> Words:
    """What 64 bits stand for each value; anything for a null."""
    kind = column.type
    if t.is_floating(kind):
        # Adding nothing makes -0.0 and 0.0 one.
        values = _values(column.cast(pa.float64())) + 0.0
        values[np.isnan(values)] = np.nan
        bits: Words = values.view(np.uint64)
        return bits
    if t.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif t.is_temporal(kind):
        column = column.view(pa.int32() if t.is_date32(kind) else pa.int64())
    values = _values(column)
    if t.is_timestamp(kind):
        values = _microseconds(values, kind.unit)
    wide = np.uint64 if values.dtype.kind == "u" else np.int64
    words: Words = values.astype(wide, copy=False).view(np.uint64)
    return words


def _values(column: pa.Array) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = (pc.fill_null(column, 0) if column.null_count else column).to_numpy(
        zero_copy_only=False
    )
    return values


def _microseconds(values: np.ndarray[Any, Any], unit: str) -> np.ndarray[Any, Any]:
    many = _PER_SECOND[unit]
    return values * (10**6 // many) if many <= 10**6 else values // (many // 10**6)


def _halves(column: pa.Array) -> Words:
    """The low and the high word of each decimal."""
    data, count = column.buffers()[1], 2 * len(column)
    halves: Words = np.frombuffer(data, "<u8", count, 16 * column.offset).astype(np.uint64, copy=False)
    return halves.reshape(-1, 2)


def _hash_bytes(column: pa.Array) -> Words:
    words, starts, sizes = _content(column)
    sums = np.zeros(len(column), np.uint64)
    rows: np.ndarray[Any, Any] | slice = slice(None)
    for place in range(_BESIDE):
        longer = sizes[rows] > 8 * place
        if not longer.all():
            rows = np.flatnonzero(longer) if isinstance(rows, slice) else rows[longer]
        if isinstance(rows, np.ndarray) and not len(rows):
            break
        sums[rows] += _terms(words, starts[rows], sizes[rows], place)
    else:
        _add_rest(sums, words, starts, sizes)
    sums += sizes.astype(np.uint64)
    return _word(sums)


def _content(column: pa.Array) -> tuple[Words, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The word that begins at each byte, and where each value begins and how many bytes it has."""
    kind = column.type
    if t.is_fixed_size_binary(kind) or t.is_string_view(kind) or t.is_binary_view(kind):
        column = column.cast(pa.large_binary())
    width = 8 if t.is_large_string(column.type) or t.is_large_binary(column.type) else 4
    _, offsets, data = column.buffers()
    if not len(column) or data is None:
        nothing = np.zeros(len(column), np.int64)
        return np.zeros(1, np.uint64), nothing, nothing
    ends = np.frombuffer(offsets, f"i{width}", len(column) + 1, width * column.offset).astype(np.int64)
    begin, end = int(ends[0]), int(ends[-1])
    # A word that begins in the last bytes has some behind them.
    content = np.zeros(end - begin + 8, np.uint8)
    content[:-8] = np.frombuffer(data, np.uint8)[begin:end]
    words: Words = np.ndarray((len(content) - 7,), "<u8", content, strides=(1,))
    return words, ends[:-1] - begin, np.diff(ends)


def _terms(words: Words, starts: Any, sizes: Any, places: Any) -> Words:
    """What the words at these places (one, or one for each value) add to the sums of the values."""
    found = words[starts + 8 * places].astype(np.uint64, copy=False)
    left = sizes - 8 * places
    # What is behind the end of a value are bytes of the next.
    found &= _FULL >> (np.uint64(8) * (8 - np.minimum(left, 8)).astype(np.uint64))
    found += np.asarray(places).astype(np.uint64) * _STEP
    return _word(found)


def _add_rest(sums: Words, words: Words, starts: Any, sizes: Any) -> None:
    """Add the words behind the first few. There are as many as there are bytes: a block of them at a time."""
    rows = np.flatnonzero(sizes > 8 * _BESIDE)
    counts = (sizes[rows] + 7) // 8 - _BESIDE
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    for begin in range(0, int(ends[-1]), _BLOCK):
        end = min(begin + _BLOCK, int(ends[-1]))
        first = int(np.searchsorted(ends, begin, side="right")) - 1
        last = int(np.searchsorted(ends, end, side="left"))
        own = ends[first : last + 1].clip(begin, end)
        which = np.repeat(np.arange(first, last), np.diff(own))
        places = np.arange(begin, end) - ends[which] + _BESIDE
        terms = _terms(words, starts[rows[which]], sizes[rows[which]], places)
        totals = np.concatenate((np.zeros(1, np.uint64), np.cumsum(terms)))
        sums[rows[first:last]] += totals[own[1:] - begin] - totals[own[:-1] - begin]
