"""Arrow batches as DataRow messages: column by column, or value by value where there are few rows."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.server.pgwire.encode.binary import binary_field
from penstock.server.pgwire.encode.fields import Field
from penstock.server.pgwire.encode.text import Style, text_field
from penstock.server.pgwire.encode.weaving import RowLayout, woven
from penstock.server.pgwire.protocol.messages import data_row, spread
from penstock.server.session_settings import Settings
from penstock.types import postgres
from penstock.types.postgres import Column

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 16_384
"""Rows that are encoded at once: enough that each step outweighs its call, and still few MB."""
_BYTES = 2 * 1024 * 1024
_SHARED = 4_096
"""From so many rows on, two threads share them."""
_LAYOUT = RowLayout(frame=b"D", counted=True, lengths=True)


class RowEncoder:
    """Encodes the rows of one result. ``formats`` are as in a Bind message."""

    def __init__(self, columns: Sequence[Column], formats: Sequence[int], settings: Settings) -> None:
        self._columns = tuple(columns)
        self._formats = tuple(spread(formats, len(columns)))
        self._style = Style.of(settings)

    def encode(self, batch: pa.RecordBatch) -> list[memoryview]:
        """The messages of all rows, in buffers of a few MB."""
        return in_slices(batch, self._encode)

    def _encode(self, batch: pa.RecordBatch) -> memoryview:
        found = fields(batch, self._columns, self._formats, self._style)
        return woven(batch.num_rows, found, _LAYOUT)[0].data


@lru_cache(maxsize=1)
def warm_up() -> None:
    """Compile the loops before somebody waits for them: it takes seconds, the first time on a machine."""
    import pyarrow as pa

    kinds = (
        pa.string(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(12, 2),
        pa.date32(),
        pa.time64("us"),
        pa.time64("ns"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns", "UTC"),
        pa.month_day_nano_interval(),
    )
    batch = pa.record_batch([pa.nulls(2, kind) for kind in kinds], [str(kind) for kind in kinds])
    columns = [postgres.column(each.name, each.type, each.nullable) for each in batch.schema]
    for code in (0, 1):
        RowEncoder(columns, [code], Settings()).encode(batch)


def fields(
    batch: pa.RecordBatch, columns: Sequence[Column], formats: Sequence[int], style: Style
) -> list[Field]:
    found = []
    for array, column, code in zip(batch.columns, columns, formats, strict=True):
        found.append(binary_field(array, column.oid) if code else text_field(array, column.oid, style))
    return found


def in_slices(batch: pa.RecordBatch, encode: Callable[[pa.RecordBatch], memoryview]) -> list[memoryview]:
    """Encode a batch in parts; Arrow and numpy let the parts of a large one run side by side."""
    parts = list(_slices(batch))
    if len(parts) < 2:
        return [encode(part) for part in parts]
    return list(_pool().map(encode, parts))


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    if not rows:
        return
    width = max(batch.nbytes // rows, 1)
    most = max(min(_ROWS, _BYTES // width), 1)
    # Of equal size, and at least two unless they are short, so that nobody waits for the other.
    count = max(-(-rows // most), 2 if rows >= _SHARED else 1)
    step = -(-rows // count)
    for start in range(0, rows, step):
        yield batch.slice(start, step)


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(os.cpu_count() or 1, 4), "penstock-encode")


FEW = 8
"""With more rows than this the encoder by columns is faster."""
_Write = Callable[[object], bytes]


def _text(value: object) -> bytes:
    return str(value).encode()


_WRITERS: dict[tuple[int, int], _Write] = {
    (postgres.INT2, 0): _text,
    (postgres.INT4, 0): _text,
    (postgres.INT8, 0): _text,
    (postgres.BOOL, 0): lambda value: b"t" if value else b"f",
    (postgres.TEXT, 0): _text,
    (postgres.VARCHAR, 0): _text,
    (postgres.INT2, 1): struct.Struct(">h").pack,
    (postgres.INT4, 1): struct.Struct(">i").pack,
    (postgres.INT8, 1): struct.Struct(">q").pack,
    (postgres.BOOL, 1): struct.Struct(">?").pack,
    (postgres.TEXT, 1): _text,
    (postgres.VARCHAR, 1): _text,
}
_HELD = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool", "string", "large_string"}


def few_writers(columns: Sequence[Column], formats: Sequence[int]) -> list[_Write] | None:
    """How to write each column of a few rows; None if one of them is not of a plain type."""
    found = []
    for column, code in zip(columns, formats, strict=True):
        write = _WRITERS.get((column.oid, code))
        if write is None or str(column.type) not in _HELD:
            return None
        found.append(write)
    return found


def encode_few(batch: pa.RecordBatch, write: Sequence[_Write]) -> list[bytes]:
    """A few rows as messages, without the machinery that pays for thousands."""
    held = [column.to_pylist() for column in batch.columns]
    return [
        data_row([None if value is None else one(value) for one, value in zip(write, row, strict=True)])
        for row in zip(*held, strict=True)
    ]
