"""Columns of encoded fields, and their assembly into rows without a loop over rows.

A column is either `Fixed` (all fields of one width, none null: a matrix of bytes) or `Varying` (an Arrow
array of bytes). Neighbours that are fixed, and the lengths between them, become one piece of bytes per row;
the pieces of all columns are laid end to end and taken in the order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import SqlError

if TYPE_CHECKING:
    import numpy.typing as npt

    Cells = npt.NDArray[np.uint8]
    Ints = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

_LARGEST = (1 << 31) - 1
_WORDS = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}


@dataclass(frozen=True, slots=True)
class Fixed:
    """``cells`` has a row of bytes for each field."""

    cells: Cells

    @property
    def lengths(self) -> int:
        return int(self.cells.shape[1])

    def values(self) -> pa.Array:
        return binary_array(self.cells)


@dataclass(frozen=True, slots=True)
class Varying:
    """``data`` is binary and its nulls are NULL."""

    data: pa.Array

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """-1 for NULL."""
        found = np.diff(_offsets(self.data))
        if self.data.null_count:
            found[nulls(self.data)] = -1
        return found

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


def assemble(count: int, fields: Sequence[Field], *, frame: bytes, prefix: bytes = b"") -> memoryview:
    """Messages of type ``frame``, one for each row: the number of fields, and each with its length.

    ``prefix`` goes before the first row, inside its message.
    """
    if not count:
        return memoryview(b"")
    lengths = [each.lengths for each in fields]
    size = np.full(count, 6 + 4 * len(fields), np.int64)
    for length in lengths:
        size += length if isinstance(length, int) else np.maximum(length, 0)
    if int(size.sum()) + count > _LARGEST:
        raise SqlError(
            "rows are too long to be sent",
            sqlstate="54000",
            hint="select fewer or shorter columns: a row may have 2 GB",
        )
    head = np.empty(count, [("frame", "S1"), ("size", ">u4"), ("fields", ">u2")])
    head["frame"], head["size"], head["fields"] = frame, size, len(fields)
    head["size"][0] += len(prefix)
    pieces = Pieces(count)
    pieces.cells(cells_of(head))
    for each, length in zip(fields, lengths, strict=True):
        pieces.cells(np.broadcast_to(np.asarray(length, ">i4"), count).reshape(count, 1).view(np.uint8))
        pieces.field(each)
    whole = pieces.join()
    return _insert(whole, prefix) if prefix else whole


def _insert(rows: memoryview, prefix: bytes) -> memoryview:
    # Between the length and the number of fields of the first message.
    return memoryview(b"".join((rows[:5], prefix, rows[5:])))


class Pieces:
    """What each row is made of, from left to right."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._run: list[Cells] = []
        self._done: list[pa.Array] = []

    def cells(self, cells: Cells) -> None:
        self._run.append(cells)

    def field(self, each: Field) -> None:
        if isinstance(each, Fixed):
            if each.cells.shape[1]:
                self._run.append(each.cells)
        else:
            self._flush()
            self._done.append(each.data)

    def constant(self, text: bytes) -> None:
        if text:
            self._run.append(np.broadcast_to(np.frombuffer(text, np.uint8), (self._count, len(text))))

    def _merged(self) -> Cells:
        """The run as one matrix; records copy several times faster than slices of a matrix do."""
        if len(self._run) == 1:
            return np.ascontiguousarray(self._run[0])
        kinds = [_WORDS.get(each.shape[1], f"V{each.shape[1]}") for each in self._run]
        merged = np.empty(self._count, [(f"f{at}", kind) for at, kind in enumerate(kinds)])
        for at, (cells, kind) in enumerate(zip(self._run, kinds, strict=True)):
            if cells.strides[0] == 0:
                merged[f"f{at}"] = np.frombuffer(cells[0].tobytes(), kind)[0]
            else:
                merged[f"f{at}"] = np.ascontiguousarray(cells).view(kind)[:, 0]
        return cells_of(merged)

    def _flush(self) -> None:
        if self._run:
            self._done.append(binary_array(self._merged()))
            self._run = []

    def join(self) -> memoryview:
        """All rows, one after the other."""
        if not self._done:
            return _view(self._merged())
        return _view(content(self.joined())[0])

    def joined(self) -> pa.Array:
        """Each piece of each row, in order: an array with as many values for a row as it has pieces."""
        self._flush()
        pieces = self._done
        if len(pieces) == 1:
            return pieces[0]
        return pa.concat_arrays(pieces).take(_order(self._count, len(pieces)))

    def values(self) -> pa.Array:
        """The rows as values of one binary array."""
        joined = self.joined()
        data, offsets = content(joined)
        return varying(data, np.ascontiguousarray(offsets[:: len(joined) // self._count]))


def _view(data: Cells) -> memoryview:
    return data.data.cast("B")


@lru_cache(maxsize=16)
def _order(rows: int, pieces: int) -> pa.Array:
    order = np.arange(rows)[:, None] + np.arange(pieces) * rows
    return pa.array(order.ravel().astype(np.int32 if rows * pieces < _LARGEST else np.int64))
