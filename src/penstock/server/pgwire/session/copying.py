"""COPY … TO STDOUT: Arrow batches as CopyData messages, one for each row as PostgreSQL sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.server.pgwire.encode.fields import Field, Fixed, Varying, content
from penstock.server.pgwire.encode.rows import fields, in_slices
from penstock.server.pgwire.encode.text import Style
from penstock.server.pgwire.encode.weaving import RowLayout, woven
from penstock.server.pgwire.protocol.messages import copy_data
from penstock.sql.statements.classify import CopyOptions
from penstock.types.postgres import Column

if TYPE_CHECKING:
    from penstock.server.session_settings import Settings

_BINARY = RowLayout(frame=b"d", counted=True, lengths=True)
_HEAD = 5
"""Bytes of a message before its content."""
_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_ESCAPES = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
"""The backslash is first: the others bring new ones."""


class CopyEncoder:
    """Encodes one COPY: `begin`, then `encode` for each batch, then `end`. All give whole messages."""

    def __init__(self, columns: Sequence[Column], options: CopyOptions, settings: Settings) -> None:
        self._columns = tuple(columns)
        self._options = options
        self._style = Style.of(settings)
        self._binary = options.format == "binary"
        self._formats = [int(self._binary)] * len(columns)
        self._started = False
        every = options.force_quote == ("*",)
        self._forced = [every or column.name in options.force_quote for column in columns]

    @property
    def binary(self) -> bool:
        return self._binary

    def begin(self) -> bytes:
        """The line of column names, if it was asked for."""
        if self._binary or not self._options.header:
            return b""
        names = [Varying(pa.array([column.name.encode()], pa.binary())) for column in self._columns]
        return bytes(self._lines(1, [self._written(name, False) for name in names]))

    def encode(self, batch: pa.RecordBatch) -> list[memoryview]:
        """The messages of all rows, in buffers of a few MB."""
        if not self._binary:
            return in_slices(batch, self._encode_text)
        if self._started or not batch.num_rows:
            return in_slices(batch, self._encode_binary)
        # PostgreSQL sends the signature in the message of the first row, and clients count on that.
        self._started = True
        row = self._encode_binary(batch.slice(0, 1))[_HEAD:]
        first = memoryview(copy_data(_SIGNATURE + row))
        return [first, *in_slices(batch.slice(1), self._encode_binary)]

    def end(self) -> bytes:
        """What comes after the last row."""
        if not self._binary:
            return b""
        return copy_data((b"" if self._started else _SIGNATURE) + b"\xff\xff")

    def _encode_binary(self, batch: pa.RecordBatch) -> memoryview:
        found = fields(batch, self._columns, self._formats, self._style)
        return woven(batch.num_rows, found, _BINARY)[0].data

    def _encode_text(self, batch: pa.RecordBatch) -> memoryview:
        found = fields(batch, self._columns, self._formats, self._style)
        written = [self._written(each, forced) for each, forced in zip(found, self._forced, strict=True)]
        return self._lines(batch.num_rows, written)

    def _written(self, each: Field, forced: bool) -> Field:
        """The fields with quotes and escapes, and the word for NULL in its places."""
        csv = self._options.format == "csv"
        written = self._quoted(each, forced) if csv else self._escaped(each)
        if isinstance(written, Varying) and written.data.null_count:
            return Varying(pc.fill_null(written.data, self._options.null.encode()))
        return written

    def _escaped(self, each: Field) -> Field:
        delimiter = self._options.delimiter
        there = _bytes_in(each)
        escapes = {**_ESCAPES, delimiter: _ESCAPES.get(delimiter, "\\" + delimiter)}
        needed = [character for character in escapes if there[ord(character)]]
        if not needed:
            return each
        text = each.values().cast(pa.string())
        for character in needed:
            text = pc.replace_substring(text, character, escapes[character])
        return Varying(text.cast(pa.binary()))

    def _quoted(self, each: Field, forced: bool) -> Field:
        options = self._options
        there = _bytes_in(each)
        special = [options.delimiter, options.quote, "\n", "\r"]
        text = each.values().cast(pa.string())
        alone = len(self._columns) == 1
        # A line with just \. would be taken for the end of the data.
        quoted = pc.or_(pc.equal(text, options.null), pc.and_(pc.equal(text, "\\."), alone))
        for character in special:
            if there[ord(character)]:
                quoted = pc.or_(quoted, pc.match_substring(text, character))
        if forced:
            quoted = pc.is_valid(text)
        if not pc.any(quoted).as_py():
            return each
        escaped = text
        if options.escape != options.quote:
            escaped = pc.replace_substring(escaped, options.escape, options.escape * 2)
        escaped = pc.replace_substring(escaped, options.quote, options.escape + options.quote)
        inside = pc.binary_join_element_wise(options.quote, escaped, options.quote, "")
        return Varying(pc.if_else(quoted, inside, text).cast(pa.binary()))

    def _lines(self, count: int, written: Sequence[Field]) -> memoryview:
        layout = RowLayout(frame=b"d", between=self._options.delimiter.encode(), end=b"\n")
        return woven(count, written, layout)[0].data


def _bytes_in(each: Field) -> np.ndarray:
    """Which byte values occur."""
    data = each.cells.ravel() if isinstance(each, Fixed) else content(each.data)[0]
    return np.bincount(data, minlength=256) > 0
