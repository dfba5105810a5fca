"""Spark's order of rows, for Arrow: sorting, and comparing rows with one that is given.

Arrow puts nulls and NaNs at the end whatever the direction, and tells -0.0 from 0.0. So a column is
compared as two: a rank (0 for NULL, 1 for a value, 2 for NaN), and the value, which is null where the rank
says all. Texts and bytes are compared byte by byte, as Spark does.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from penstock.types.order import Order

Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

_NULL, _VALUE, _NAN = (pa.scalar(rank, pa.int8()) for rank in range(3))


def sort_indices(rows: pa.RecordBatch, order: Order) -> pa.Array:
    """The numbers of the rows as they stand when they are sorted. Equal rows stay in their order."""
    columns: list[pa.Array] = []
    keys: list[tuple[str, str]] = []
    for each in order:
        direction = "descending" if each.descending else "ascending"
        for column in _comparable(rows.column(each.name)):
            if column is not None:
                keys.append((str(len(columns)), direction))
                columns.append(column)
    named = pa.RecordBatch.from_arrays(columns, names=[name for name, _ in keys])
    return pc.sort_indices(named, sort_keys=keys)


def before(rows: pa.RecordBatch, order: Order, bound: pa.RecordBatch) -> Mask:
    """Which rows come before the only row of ``bound``."""
    less: Mask = np.zeros(rows.num_rows, np.bool_)
    for each in reversed(order):
        one, other = _comparable(rows.column(each.name)), _comparable(bound.column(each.name))
        less = _less(one, _Comparable(other.rank and other.rank[0], other.value[0]), each.descending, less)
    return less


def in_order(rows: pa.RecordBatch, order: Order) -> bool:
    """Whether no row comes before the one that it follows."""
    less: Mask = np.zeros(max(0, rows.num_rows - 1), np.bool_)
    for each in reversed(order):
        column = rows.column(each.name)
        less = _less(_comparable(column[1:]), _comparable(column[:-1]), each.descending, less)
    return not less.any()


class _Comparable(NamedTuple):
    """A column, or one value of it. Without a rank, all are values."""

    rank: Any
    value: Any


def _comparable(column: pa.Array) -> _Comparable:
    nan = None
    if t.is_floating(column.type):
        nan = pc.fill_null(pc.is_nan(column), False)
        # Adding nothing makes -0.0 and 0.0 one.
        column = pc.add(column, pa.scalar(0, column.type))
        if pc.any(nan, min_count=0).as_py():
            value = pc.if_else(nan, pa.scalar(None, column.type), column)
            return _Comparable(pc.if_else(nan, _NAN, _ranks(column)), value)
    return _Comparable(_ranks(column) if column.null_count else None, column)


def _ranks(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_null(column), _NULL, _VALUE)


def _less(one: _Comparable, other: _Comparable, descending: bool, rest: Mask) -> Mask:
    """Where one comes before the other: by this column, or where they are equal in it, by the ``rest``."""
    # A null is on a side whose rank is not that of a value: equal if the ranks are.
    less = _mask(pc.fill_null(pc.less(one.value, other.value), False))
    same = _mask(pc.fill_null(pc.equal(one.value, other.value), True))
    if one.rank is not None or other.rank is not None:
        ranks = [_VALUE if each is None else each for each in (one.rank, other.rank)]
        level = _mask(pc.equal(*ranks))
        less, same = _mask(pc.less(*ranks)) | (level & less), level & same
    first: Mask = ~(less | same) if descending else less
    return first | (same & rest)


def _mask(found: Any) -> Mask:
    if isinstance(found, pa.Scalar):
        return np.array([found.as_py()], np.bool_)
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


def encode_rows(rows: pa.RecordBatch) -> str:
    """A few rows as a document has them: an Arrow IPC stream, zlib, base64."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return base64.b64encode(zlib.compress(sink.getvalue())).decode("ascii")


def decode_rows(text: str) -> pa.RecordBatch:
    """The inverse of `encode_rows`; a `ValueError` for anything else."""
    try:
        data = zlib.decompress(base64.b64decode(text, validate=True))
        return pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()
    except (zlib.error, pa.ArrowException, StopIteration, OSError) as error:
        raise ValueError(f"there are no rows in it: {error}") from error
