"""Laying the fields of rows end to end, in one pass over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from penstock.errors import SqlError
from penstock.server.pgwire.encode.compiling import compiled
from penstock.server.pgwire.encode.fields import Fixed

if TYPE_CHECKING:
    from penstock.server.pgwire.encode.fields import Cells, Field, Ints

_LARGEST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class RowLayout:
    """What is around the fields of a row."""

    frame: bytes = b""
    """The byte with which a message begins, before its size; without it there is neither."""
    counted: bool = False
    """The number of fields comes first."""
    lengths: bool = False
    """Each field has its length before it, -1 for NULL."""
    between: bytes = b""
    """A byte between any two fields."""
    end: bytes = b""
    """A byte after the last one."""

    def size(self, fields: int) -> int:
        """Bytes of a row besides those of its fields."""
        around = 5 * len(self.frame) + 2 * self.counted + len(self.end)
        return around + 4 * self.lengths * fields + len(self.between) * max(fields - 1, 0)


class _Places:
    """Where the fields are in memory, column by column, as the loops want to know it."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self.data, self.width, self.offsets, self.valid, self.shift = np.zeros((5, len(fields)), np.int64)
        # So that nothing of it goes away too early.
        self.kept: list[object] = []
        for at, each in enumerate(fields):
            if isinstance(each, Fixed):
                cells = np.ascontiguousarray(each.cells)
                self.data[at], self.width[at] = cells.ctypes.data, cells.shape[1]
                self.kept.append(cells)
                continue
            valid, offsets, data = each.data.buffers()
            self.offsets[at] = offsets.address + 4 * each.data.offset
            self.data[at] = 0 if data is None else data.address
            if each.data.null_count:
                self.valid[at], self.shift[at] = valid.address, each.data.offset
            self.kept.append(each.data)


def woven(count: int, fields: Sequence[Field], layout: RowLayout) -> tuple[Cells, Ints]:
    """All rows, one after the other, and where each of them begins, and the last one ends."""
    places = _Places(fields)
    starts: Ints = np.zeros(count + 1, np.int64)
    vary = places.offsets != 0
    fixed = layout.size(len(fields)) + int(places.width.sum())
    _measure(starts, fixed, places.offsets[vary], places.valid[vary], places.shift[vary])
    if int(starts[-1]) > _LARGEST:
        raise SqlError(
            "rows are too long to be sent",
            sqlstate="54000",
            hint="select fewer or shorter columns: a row may have 2 GB",
        )
    out: Cells = np.empty(int(starts[-1]), np.uint8)
    _weave(
        out,
        starts,
        places.data,
        places.width,
        places.offsets,
        places.valid,
        places.shift,
        _byte(layout.frame),
        layout.counted,
        layout.lengths,
        _byte(layout.between),
        _byte(layout.end),
    )
    return out, starts


def _byte(text: bytes) -> int:
    return text[0] if text else -1


# memory by its address


def _memcpy() -> Any:
    """Makes a function that copies bytes from one address to another."""

    def copy(context: Any, target: Any, source: Any, size: Any) -> Any:  # noqa: ARG001
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            target, source = (builder.inttoptr(each, cgutils.voidptr_t) for each in args[:2])
            cgutils.raw_memcpy(builder, target, source, args[2], 1)  # type: ignore[no-untyped-call]
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), code

    return intrinsic(copy)


def _load(bits: int, *, signed: bool) -> Any:
    """Makes a function that reads a number at an address."""

    def load(context: Any, address: Any) -> Any:  # noqa: ARG001
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            found = builder.load(builder.inttoptr(args[0], ir.IntType(bits).as_pointer()), align=1)
            widen = builder.sext if signed else builder.zext
            return found if bits == 64 else widen(found, ir.IntType(64))

        return types.int64(types.int64), code

    return intrinsic(load)


def _store(bits: int) -> Any:
    """Makes a function that writes a number at an address."""

    def store(context: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            value = args[1] if bits == 64 else builder.trunc(args[1], ir.IntType(bits))
            builder.store(value, builder.inttoptr(args[0], ir.IntType(bits).as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), code

    return intrinsic(store)


_byte_at, _int32_at, _int64_at = _load(8, signed=False), _load(32, signed=True), _load(64, signed=True)
_put, _put_int32, _put_int64 = _store(8), _store(32), _store(64)
_copy = _memcpy()


@compiled
def _move(target: int, source: int, size: int) -> None:
    """Copy: most fields are short, and two words that may overlap are sooner moved than a function called."""
    if size > 16:
        _copy(target, source, size)
    elif size >= 8:
        first, last = _int64_at(source), _int64_at(source + size - 8)
        _put_int64(target, first)
        _put_int64(target + size - 8, last)
    elif size >= 4:
        first, last = _int32_at(source), _int32_at(source + size - 4)
        _put_int32(target, first)
        _put_int32(target + size - 4, last)
    else:
        for at in range(size):
            _put(target + at, _byte_at(source + at))


# rows out of fields


@compiled
def _missing(valid: int, bit: int) -> bool:
    return valid != 0 and not (_byte_at(valid + (bit >> 3)) >> (bit & 7)) & 1


@compiled
def _measure(starts: Ints, fixed: int, offsets: Ints, valid: Ints, shift: Ints) -> None:
    """Where each row begins, and where the last one ends.

    ``fixed`` is what is the same for all rows. For each field that is not, there is the address of its
    offsets, and that of its validity bits, from the bit ``shift`` on, or 0.
    """
    at = 0
    for row in range(len(starts) - 1):
        starts[row] = at
        at += fixed
        for each in range(len(offsets)):
            if not _missing(valid[each], shift[each] + row):
                place = offsets[each] + 4 * row
                at += _int32_at(place + 4) - _int32_at(place)
    starts[-1] = at


@compiled
def _put_number(at: int, number: int) -> int:
    _put(at, number >> 24)
    _put(at + 1, number >> 16)
    _put(at + 2, number >> 8)
    _put(at + 3, number)
    return at + 4


@compiled
def _weave(
    out: Cells,
    starts: Ints,
    data: Ints,
    width: Ints,
    offsets: Ints,
    valid: Ints,
    shift: Ints,
    frame: int,
    counted: bool,
    lengths: bool,
    between: int,
    end: int,
) -> None:
    """Write the rows that were measured.

    A field is at the address ``data``: all of ``width`` where its ``offsets`` are 0. The rest is as in
    `RowLayout`, -1 for no byte.
    """
    base, fields = out.ctypes.data, len(data)
    for row in range(len(starts) - 1):
        at = base + starts[row]
        if frame >= 0:
            _put(at, frame)
            at = _put_number(at + 1, starts[row + 1] - starts[row] - 1)
        if counted:
            _put(at, fields >> 8)
            _put(at + 1, fields)
            at += 2
        for each in range(fields):
            if each and between >= 0:
                _put(at, between)
                at += 1
            source = data[each]
            if offsets[each] == 0:
                size = width[each]
                source += row * size
            elif _missing(valid[each], shift[each] + row):
                size = -1
            else:
                place = offsets[each] + 4 * row
                begin = _int32_at(place)
                size = _int32_at(place + 4) - begin
                source += begin
            if lengths:
                at = _put_number(at, size)
            if size > 0:
                _move(at, source, size)
                at += size
        if end >= 0:
            _put(at, end)
