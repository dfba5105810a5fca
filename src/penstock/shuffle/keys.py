"""Which queue a document goes to: by the hash of its key, or without a key by its clock.

The hash depends on nothing but the values of the key: not on the machine, the version of a library, or how
rows are cut into batches. Equal keys always meet in one queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import DefinitionError

Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"

_PRIME = np.uint64(0x100000001B3)
_NULL = np.uint64(0x9E3779B97F4A7C15)
_PIECE = 1 << 16


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """The names on the way to a member of a document (JSON pointer, RFC 6901)."""
    if not pointer.startswith("/"):
        raise DefinitionError(
            f"the key {pointer!r} is no JSON pointer", hint="write it with a slash: /id or /customer/id"
        )
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def check_key(pointers: Sequence[str], schema: pa.Schema) -> None:
    """Raise `DefinitionError` unless every pointer leads to a field of the table that can be hashed."""
    for pointer in pointers:
        names = parse_pointer(pointer)
        kind = pa.struct(list(schema))
        for name in names:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                raise DefinitionError(
                    f"the key {pointer} leads to no field of the table",
                    hint="declare the fields of a key in the table",
                )
            kind = kind.field(name).type
        if pa.types.is_nested(kind):
            raise DefinitionError(
                f"the key {pointer} is a {kind}", hint="name the members that make up the key"
            )


def key_queues(batch: pa.RecordBatch, pointers: Sequence[str], queues: int) -> Words:
    """The queue of each row, by the hash of the values that ``pointers`` lead to."""
    hashed = np.zeros(batch.num_rows, np.uint64)
    for pointer in pointers:
        hashed = _mixed(hashed * _PRIME + _hash(_column(batch, parse_pointer(pointer))))
    return _spread(hashed, queues)


def clock_queues(clocks: Words, queues: int) -> Words:
    """The queue of each row by its clock, whose low bits are turned to the top: neighbours go far apart."""
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
    """A polynomial in the bytes of each text, in pieces: eight bytes are needed for each one of a text."""
    column = column.cast(pa.large_binary()).fill_null(b"")
    pieces = [_piece_hash(column.slice(n, _PIECE)) for n in range(0, len(column), _PIECE)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint64)


def _piece_hash(column: pa.Array) -> Words:
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(ends)
    first, last = int(ends[0]), int(ends[-1])
    content = np.frombuffer(data, np.uint8)[first:last] if last > first else np.zeros(0, np.uint8)
    places = np.arange(last - first) - np.repeat(ends[:-1] - first, lengths)
    powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, _PRIME, np.uint64))
    sums = np.concatenate(
        ([np.uint64(0)], np.cumsum((content.astype(np.uint64) + np.uint64(1)) * powers[places]))
    )
    hashed = sums[ends[1:] - first] - sums[ends[:-1] - first]
    return _mixed(hashed + lengths.astype(np.uint64))


def _mixed(words: Words) -> Words:
    """Each bit of a word in every bit of the result."""
    words = words ^ (words >> np.uint64(30))
    words = words * np.uint64(0xBF58476D1CE4E5B9)
    words = words ^ (words >> np.uint64(27))
    words = words * np.uint64(0x94D049BB133111EB)
    mixed: Words = words ^ (words >> np.uint64(31))
    return mixed
