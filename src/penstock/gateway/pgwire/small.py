"""A few rows of plain types, without the machinery that pays for thousands."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.gateway import types
from penstock.gateway.base import Column
from penstock.gateway.pgwire.messages import data_row

if TYPE_CHECKING:
    import pyarrow as pa

FEW = 8
"""With more rows than this the encoder by columns is faster."""
_Write = Callable[[object], bytes]


def _text(value: object) -> bytes:
    return str(value).encode()


_WRITERS: dict[tuple[int, int], _Write] = {
    (types.INT2, 0): _text,
    (types.INT4, 0): _text,
    (types.INT8, 0): _text,
    (types.BOOL, 0): lambda value: b"t" if value else b"f",
    (types.TEXT, 0): _text,
    (types.VARCHAR, 0): _text,
    (types.INT2, 1): struct.Struct(">h").pack,
    (types.INT4, 1): struct.Struct(">i").pack,
    (types.INT8, 1): struct.Struct(">q").pack,
    (types.BOOL, 1): struct.Struct(">?").pack,
    (types.TEXT, 1): _text,
    (types.VARCHAR, 1): _text,
}
_HELD = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool", "string", "large_string"}


def writers(columns: Sequence[Column], formats: Sequence[int]) -> list[_Write] | None:
    """How to write each column; None if one of them is not plain."""
    found = []
    for column, code in zip(columns, formats, strict=True):
        write = _WRITERS.get((column.oid, code))
        if write is None or str(column.type) not in _HELD:
            return None
        found.append(write)
    return found


def encode(batch: pa.RecordBatch, write: Sequence[_Write]) -> list[bytes]:
    """The rows as messages."""
    held = [column.to_pylist() for column in batch.columns]
    return [
        data_row([None if value is None else one(value) for one, value in zip(write, row, strict=True)])
        for row in zip(*held, strict=True)
    ]
