"""Rows of a text file from any byte offset on, in pieces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.batch.inputs.conform import conform
from penstock.batch.inputs.files import FileStamp
from penstock.batch.inputs.formats.text import TextFormat
from penstock.batch.inputs.scan import TextRecords
from penstock.errors import BadInput

_LEAST = 64 << 10
_MOST = 4 << 20
_LONGEST = 64 << 20
BOM = b"\xef\xbb\xbf"
_NOTHING = TextRecords(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)

ReadAt = Callable[[int, int], bytes]
"""``read_at(size, offset)``: that many bytes, fewer only where the file ends."""


class TextReader:
    """Reads a file forwards, record by record. It holds no file, only a piece of text that was read ahead.

    A file that ``grows`` has no end, and its last record counts only when its line is complete. The piece is
    small at first and becomes larger when polls take all of it: many files may be read in turn.
    """

    def __init__(
        self,
        text: TextFormat,
        schema: pa.Schema,
        file: FileStamp,
        read_at: ReadAt,
        *,
        offset: int = 0,
        row: int = 0,
        grows: bool = False,
    ) -> None:
        self.offset = offset
        self.row = row
        self.consumed = b""
        """The bytes between the offsets before and after the last rows."""
        self.at_end = False
        """Whether the file has no more rows; never of one that grows."""
        self._format = text
        self._schema = schema
        self._file = file
        self._read_at = read_at
        self._grows = grows
        self._size = _LEAST
        self.rest()

    @property
    def is_ahead(self) -> bool:
        """Whether there are rows that need no more reading."""
        return self._next < len(self._records.starts)

    def next(self, limit: int) -> pa.RecordBatch | None:
        """At most ``limit`` rows; None if there are none, now or (``at_end``) at all."""
        if not self.is_ahead and not self.at_end:
            self._fill()
        if not self.is_ahead:
            return None
        first, last = self._next, min(self._next + limit, len(self._records.starts))
        begin, end = int(self._records.starts[first]), int(self._records.ends[last - 1])
        batch = self._parse(pa.py_buffer(self._text).slice(begin, end - begin), last - first)
        if last - first < limit:
            self._size = min(4 * self._size, _MOST)
        self._move(last)
        return batch

    def rest(self) -> None:
        """Forget what was read ahead; reading goes on behind the last rows."""
        self._base, self._text, self._records, self._next, self._final = self.offset, b"", _NOTHING, 0, False

    def close(self) -> None:
        self.rest()

    def _move(self, last: int) -> None:
        self.row += last - self._next
        self._next = last
        end = int(self._records.ends[last - 1]) if self.is_ahead else self._records.consumed
        self.consumed = self._text[self.offset - self._base : end]
        self.offset = self._base + end
        self.at_end = self._final and not self.is_ahead

    def _parse(self, text: pa.Buffer, rows: int) -> pa.RecordBatch:
        where = f"{self._file.path}, rows {self.row}-{self.row + rows}"
        try:
            table = self._format.parsed(text, self._schema.names, self.row)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadInput(
                f"{where}, cannot be read: {error}",
                hint="check the types that the table declares, and the options, against the file",
            ) from error
        if table.num_rows != rows:
            raise BadInput(f"{where}: parsed as {table.num_rows} rows, not {rows}")
        (batch,) = table.combine_chunks().to_batches()
        return conform(batch, self._schema, file=self._file.path, row=self.row)

    def _fill(self) -> None:
        """Read on until there is a whole record, or nothing more."""
        size = self._size
        while True:
            text = self._read_at(size, self.offset)
            self._look_through(text, final=not self._grows and len(text) < size)
            if self.is_ahead or len(text) < size:
                break
            if size >= _LONGEST:
                raise BadInput(
                    f"{self._file.path}: the record at byte {self.offset} is longer than {size >> 20} MiB",
                    hint="look there for a quote that is not closed, or for a file without line ends",
                )
            size *= 2
        if self._final and self._records.consumed < len(self._text):
            raise self._format.unfinished(self._file, self._base + self._records.consumed)
        self.at_end = self._final and not self.is_ahead

    def _look_through(self, text: bytes, *, final: bool) -> None:
        is_begin = self.offset == 0
        mark = len(BOM) if is_begin and text.startswith(BOM) else 0
        body = text[mark:]
        records = self._format.records(body, self._file, final=final)
        has_header = is_begin and len(records.starts) > 0
        self._next = self._format.after_header(self._file, body, records) if has_header else 0
        self._base, self._text, self._final = self.offset, text, final
        self._records = TextRecords(records.starts + mark, records.ends + mark, records.consumed + mark)
