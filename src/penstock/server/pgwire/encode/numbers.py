"""Whole numbers, numerics and booleans as PostgreSQL prints and packs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.server.pgwire.encode import kernels
from penstock.server.pgwire.encode.fields import (
    Field,
    Fixed,
    Varying,
    cells_of,
    content,
    field,
    nulls,
    varying,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.server.pgwire.encode.fields import Cells, Ints

_INT64_DIGITS = 18


def zeroed(array: pa.Array, kind: type[np.generic] | str) -> npt.NDArray[Any]:
    """The values as numpy has them, 0 for nulls, without a copy where there are none."""
    values: npt.NDArray[Any] = (pc.fill_null(array, 0) if array.null_count else array).to_numpy(
        zero_copy_only=False
    )
    return values.astype(kind, copy=False)


def integer_text(array: pa.Array) -> Field:
    return Varying(array.cast(pa.string()).cast(pa.binary()))


def bool_text(array: pa.Array) -> Field:
    values = zeroed(array.cast(pa.uint8()), np.uint8)
    return field(np.where(values, np.uint8(ord("t")), np.uint8(ord("f")))[:, None], array)


def numeric_text(array: pa.Array) -> Field:
    """Plain digits with the full scale."""
    if not pa.types.is_decimal(array.type):
        return integer_text(array)
    scale = array.type.scale
    return _written(
        kernels.point, array, _unscaled(array), scale, lambda digits, rows: digits + rows * (abs(scale) + 2)
    )


def numeric_binary(array: pa.Array) -> Field:
    """Groups of four digits, each a 16-bit number, without those that are zero at either end."""
    if not pa.types.is_decimal(array.type):
        array = array.cast(pa.decimal128(20, 0))
    # A head of eight bytes; at most six digits more than there are, in groups of four.
    return _written(
        kernels.pack, array, _unscaled(array), array.type.scale, lambda digits, rows: digits // 2 + rows * 12
    )


def _written(
    write: Callable[..., None], array: pa.Array, texts: pa.Array, scale: int, space: Callable[[int, int], int]
) -> Varying:
    data, begins = content(texts)
    offsets = np.empty(len(texts) + 1, np.int32)
    out = np.empty(space(len(data), len(texts)), np.uint8)
    write(begins, data, scale, offsets, out)
    return Varying(varying(out, offsets, nulls(array) if array.null_count else None))


def _unscaled(array: pa.Array) -> pa.Array:
    """All digits of each number, after a minus where there is one, and no point; nothing for nulls."""
    small = _as_int64(array)
    if small is not None:
        return pa.array(small, mask=nulls(array) if array.null_count else None).cast(pa.string())
    # The same bytes as a whole number: of those Arrow prints all digits.
    kind = pa.decimal256 if pa.types.is_decimal256(array.type) else pa.decimal128
    return _reinterpreted(_wide(array), kind(array.type.precision, 0)).cast(pa.string())


def _wide(array: pa.Array) -> pa.Array:
    if pa.types.is_decimal128(array.type) or pa.types.is_decimal256(array.type):
        return array
    return array.cast(pa.decimal128(array.type.precision, array.type.scale))


def _reinterpreted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(array), array.buffers(), offset=array.offset)


def _as_int64(array: pa.Array) -> Ints | None:
    """The unscaled values, if all of them fit; whatever there is for nulls."""
    array = _wide(array)
    if pa.types.is_decimal256(array.type):
        return None
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    low, high = words[array.offset : array.offset + len(array)].T
    fits = array.type.precision <= _INT64_DIGITS
    if not fits:
        fitting = high == low >> 63
        fits = bool((fitting | nulls(array) if array.null_count else fitting).all())
    return np.ascontiguousarray(low) if fits else None


def number_binary(array: pa.Array, kind: pa.DataType, packed: str) -> Field:
    """Integers and floats, most significant byte first."""
    cast = array if array.type == kind else array.cast(kind)
    return field(cells_of(zeroed(cast, packed)), array)


def bool_binary(array: pa.Array) -> Field:
    return field(zeroed(array.cast(pa.uint8()), np.uint8)[:, None], array)


def all_null(count: int) -> Field:
    return Varying(pa.nulls(count, pa.binary()))


def empty(count: int) -> Fixed:
    cells: Cells = np.empty((count, 0), np.uint8)
    return Fixed(cells)
