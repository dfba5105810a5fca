"""Which queue a document goes to: by the hash of its key, or without a key by its clock.

The hash depends on nothing but the values of the key: not on the machine, the version of a library, or how
rows are cut into batches. Equal keys always meet in one queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sources.journals import parse_pointer

Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"

_PRIME = np.uint64(0x100000001B3)
_NULL = np.uint64(0x9E3779B97F4A7C15)
_PIECE = 1 << 20


def key_queues(batch: pa.RecordBatch, pointers: Sequence[str], queues: int) -> Words:
    """The queue of each row, by the hash of the values that ``pointers`` lead to."""
    hashed = np.zeros(batch.num_rows, np.uint64)
    for pointer in pointers:
        hashed = _mixed(hashed * _PRIME + _hash(_column(batch, parse_pointer(pointer))))
    return _spread(hashed, queues)


def clock_queues(clocks: Words, queues: int) -> Words:
    """The queue of each row by the hash of its clock."""
    return _spread(_mixed(clocks), queues)


def _spread(hashed: Words, queues: int) -> Words:
    """Ranges of equal width, one for each queue."""
    found: Words = ((hashed >> np.uint64(32)) * np.uint64(queues)) >> np.uint64(32)
    return found


def _column(batch: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    column = batch.column(names[0])
    for name in names[1:]:
        column = pc.struct_field(column, name)
    return column


def _hash(column: pa.Array) -> Words:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hash(column.dictionary_decode())
    hashed = _text_hash(column) if _is_text(kind) else _number_hash(column)
    if column.null_count:
        hashed = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashed)
    return hashed


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )


def _number_hash(column: pa.Array) -> Words:
    kind = column.type
    if pa.types.is_decimal(kind):
        return _text_hash(column.cast(pa.string()))
    if pa.types.is_floating(kind):
        # Adding nothing makes -0.0 and 0.0 one.
        values = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False) + 0.0
        values[np.isnan(values)] = np.nan
        return _mixed(values.view(np.uint64))
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        column = column.view(width)
    whole = column.fill_null(0).to_numpy(zero_copy_only=False)
    words: Words = (
        whole.astype(np.int64).view(np.uint64) if whole.dtype.kind == "i" else whole.astype(np.uint64)
    )
    return _mixed(words)


def _text_hash(column: pa.Array) -> Words:
    """A polynomial in the bytes of each text."""
    hashed = np.zeros(len(column), np.uint64)
    if not len(column):
        return hashed
    column = column.cast(pa.large_binary()).fill_null(b"")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    for begin, end in _pieces(ends):
        own = ends[begin : end + 1]
        is_long = own[-1] - own[0] > _PIECE
        hashed[begin:end] = _long_sum(content[own[0] : own[-1]]) if is_long else _sums(content, own)
    return _mixed(hashed + np.diff(ends).astype(np.uint64))


def _pieces(ends: Any) -> Iterator[tuple[int, int]]:
    """Texts that are short together, or one: many bytes of memory are needed for each one of a text."""
    begin, count = 0, len(ends) - 1
    while begin < count:
        end = max(begin + 1, int(np.searchsorted(ends, ends[begin] + _PIECE, side="right")) - 1)
        yield begin, end
        begin = end


def _sums(content: Any, ends: Any) -> Words:
    """The polynomials of texts that stand one after the other."""
    terms = content[ends[0] : ends[-1]].astype(np.uint64) + np.uint64(1)
    places = np.arange(len(terms)) - np.repeat(ends[:-1] - ends[0], np.diff(ends))
    terms *= _powers(int(np.diff(ends).max()))[places]
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(terms)))
    found: Words = sums[ends[1:] - ends[0]] - sums[ends[:-1] - ends[0]]
    return found


def _long_sum(content: Any) -> np.uint64:
    """The polynomial of one text."""
    powers, total = _powers(_PIECE), 0
    for begin in range(0, len(content), _PIECE):
        terms = content[begin : begin + _PIECE].astype(np.uint64) + np.uint64(1)
        total += int((terms * powers[: len(terms)]).sum()) * pow(int(_PRIME), begin, 1 << 64)
    return np.uint64(total % (1 << 64))


def _powers(count: int) -> Words:
    powers: Words = np.multiply.accumulate(np.full(count, _PRIME, np.uint64))
    return powers


def _mixed(words: Words) -> Words:
    """Each bit of a word in every bit of the result."""
    words = words ^ (words >> np.uint64(30))
    words = words * np.uint64(0xBF58476D1CE4E5B9)
    words = words ^ (words >> np.uint64(27))
    words = words * np.uint64(0x94D049BB133111EB)
    mixed: Words = words ^ (words >> np.uint64(31))
    return mixed
