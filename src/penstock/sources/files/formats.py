"""How text is parsed of which little is known yet: plain lines, and CSV by its header."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.batch.inputs.conform import check_schema
from penstock.batch.inputs.files import FileStamp
from penstock.batch.inputs.formats.delimited import Csv
from penstock.batch.inputs.formats.text import TextFormat
from penstock.batch.inputs.model import Options
from penstock.batch.inputs.scan import TextRecords
from penstock.errors import BadInput
from penstock.sources.files.text import BOM, ReadAt

Errors = Literal["strict", "replace"]

_NEWLINE = 10
_HEADER = 64 << 10


def described(options: Options) -> dict[str, object]:
    """How CSV is written, for `StatefulSource.describe`."""
    return {**asdict(options), "null_values": ", ".join(map(repr, options.null_values))}


class PlainLines(TextFormat):
    """Each line is a row, an empty one too: its text without the line end, and the path of its file."""

    def __init__(self, schema: pa.Schema, path: str, errors: Errors) -> None:
        super().__init__(schema)
        self._path = path
        self._errors = errors

    def records(self, text: bytes, file: FileStamp, *, final: bool) -> TextRecords:
        del file, final
        ends = _newlines(text) + 1
        starts = np.concatenate((np.zeros(1, np.int64), ends))[:-1]
        return TextRecords(starts, ends, int(ends[-1]) if len(ends) else 0)

    def parse(self, text: pa.Buffer, columns: Sequence[str]) -> pa.Table:
        lines = self._lines(text.to_pybytes())
        made = {"line": lines, "path": pa.repeat(self._path, len(lines))}
        return pa.table({name: made[name] for name in columns})

    def _lines(self, text: bytes) -> pa.Array:
        if b"\r\n" in text:
            text = text.replace(b"\r\n", b"\n")
        lines = _array(text)
        try:
            lines.validate(full=True)
        except pa.ArrowInvalid as error:
            if self._errors == "strict":
                raise pa.ArrowInvalid(f'{error}; errors="replace" would put marks in their place') from error
            return _array(text.decode(errors="replace").encode())
        return lines


class LateCsv(Csv):
    """CSV of which only the header was seen: whether its times have a zone is found as they are parsed."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        plain = pa.schema([_without_zone(field) for field in schema])
        self._plain = None if plain.equals(schema) else Csv(options, plain)

    def parse(self, text: pa.Buffer, columns: Sequence[str]) -> pa.Table:
        try:
            return super().parse(text, columns)
        except pa.ArrowInvalid as error:
            if self._plain is None:
                raise
            try:
                return self._plain.parse(text, columns)
            except pa.ArrowInvalid:
                raise error from None


def csv_format(
    file: FileStamp, read_at: ReadAt, options: Options, table: pa.Schema, *, grows: bool = False
) -> LateCsv | None:
    """How a file is parsed, as its header says; None if there is none, or none yet where the file grows.

    Columns that the table does not have are left out.
    """
    if not options.header:
        return LateCsv(options, table)
    text = read_at(_HEADER, 0).removeprefix(BOM)
    is_all = len(text) < _HEADER - len(BOM)
    records = Csv(options, table).records(text, file, final=is_all and not grows)
    if not len(records.starts):
        if is_all and (grows or not text.strip()):
            return None
        raise BadInput(
            f"{file.path}: its header does not end within {_HEADER >> 10} KiB",
            hint="check the quotes in it, and the quote option",
        )
    schema = _in_file_order(file, _fields(text[: int(records.ends[0])], options), table)
    return LateCsv(options, schema)


def _in_file_order(file: FileStamp, names: list[str], table: pa.Schema) -> pa.Schema:
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BadInput(f"{file.path} has the column {', '.join(twice)} twice", hint="rename one of them")
    known = set(table.names)
    schema = pa.schema(
        [table.field(name) if name in known else pa.field(name, pa.string()) for name in names]
    )
    check_schema(schema, table, file=file.path)
    return schema


def _fields(record: bytes, options: Options) -> list[str]:
    text = io.StringIO(record.decode(errors="replace").lstrip("\r\n"), newline="")
    if options.quote:
        return next(csv.reader(text, delimiter=options.delimiter, quotechar=options.quote))
    return next(csv.reader(text, delimiter=options.delimiter, quoting=csv.QUOTE_NONE))


def _array(text: bytes) -> pa.Array:
    """Lines that end with a line feed each, as texts without it."""
    ends = _newlines(text)
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    return pa.StringArray.from_buffers(
        len(ends), pa.py_buffer(offsets), pa.py_buffer(text.replace(b"\n", b""))
    )


def _newlines(text: bytes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.flatnonzero(
        np.frombuffer(text, np.uint8) == _NEWLINE
    )
    return found


def _without_zone(field: pa.Field) -> pa.Field:
    if not pa.types.is_timestamp(field.type):
        return field
    return field.with_type(pa.timestamp(field.type.unit))
