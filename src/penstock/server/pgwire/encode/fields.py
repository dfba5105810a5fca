"""Columns of encoded fields.

A column is either `Fixed` (all fields of one width, none null: a matrix of bytes) or `Varying` (an Arrow
array of bytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    Cells = npt.NDArray[np.uint8]
    Ints = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fixed:
    """``cells`` has a row of bytes for each field."""

    cells: Cells

    def values(self) -> pa.Array:
        return binary_array(self.cells)


@dataclass(frozen=True, slots=True)
class Varying:
    """``data`` is binary and its nulls are NULL."""

    data: pa.Array

    def values(self) -> pa.Array:
        return self.data


Field = Fixed | Varying


def nulls(array: pa.Array) -> Mask:
    mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def _offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def content(array: pa.Array) -> tuple[Cells, npt.NDArray[np.int32]]:
    """All bytes of a binary array, and where each value begins in them."""
    offsets = _offsets(array)
    data = array.buffers()[2]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return raw[offsets[0] : offsets[-1]], offsets - offsets[0]


def binary_array(cells: Cells, missing: Mask | None = None) -> pa.Array:
    """The rows of a matrix as values of an Arrow array, without a copy."""
    count, width = cells.shape
    offsets = (
        np.arange(0, count * width + 1, width, dtype=np.int32) if width else np.zeros(count + 1, np.int32)
    )
    return varying(np.ascontiguousarray(cells), offsets, missing)


def varying(data: npt.NDArray[Any], offsets: npt.NDArray[np.int32], missing: Mask | None = None) -> pa.Array:
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def field(cells: Cells, array: pa.Array) -> Field:
    """A column of ``cells`` that is NULL where ``array`` is."""
    return Varying(binary_array(cells, nulls(array))) if array.null_count else Fixed(cells)


def cells_of(records: npt.NDArray[Any]) -> Cells:
    """Packed records as rows of bytes."""
    return np.ascontiguousarray(records).view(np.uint8).reshape(len(records), records.dtype.itemsize)
