"""CSV: a header, quoted fields that may hold line breaks, and types from a table or from the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock.batch.inputs.formats.base import present
from penstock.batch.inputs.formats.text import HEAD, TextFormat, head, located
from penstock.batch.inputs.scan import LoneReturnError, TextRecords, csv_records
from penstock.errors import BadInput, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.batch.inputs.files import FileStamp
    from penstock.batch.inputs.model import Options

_MOST = (1 << 31) - 1


class Csv(TextFormat):
    """An empty field is null, and a quoted empty one is an empty string.

    In a column that cannot be null, where there is no such choice, both are empty strings.
    """

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        super().__init__(schema)
        self.options = options

    def records(self, text: bytes, file: FileStamp, *, final: bool) -> TextRecords:
        return _records(text, file, self.options, final=final)

    def after_header(self, file: FileStamp, text: bytes, records: TextRecords) -> int:
        if not self.options.header:
            return 0
        names = _fields(text[: int(records.ends[0])], self.options)
        if names != self.schema.names:
            raise BadInput(
                f"{file.path} has the columns {', '.join(names)}; other files of the input have "
                f"{', '.join(self.schema.names)}",
                hint="give the files the same header, or register them as different inputs",
            )
        return 1

    def parse(self, text: pa.Buffer, columns: Sequence[str]) -> pa.Table:
        chosen = present(columns, self.schema.names)
        table = csv.read_csv(
            pa.BufferReader(text),
            read_options=_read_options(text, self.schema.names),
            parse_options=_parse_options(self.options),
            convert_options=csv.ConvertOptions(
                column_types=self.schema, include_columns=chosen, **_nulls(self.options)
            ),
        )
        if self.options.null_values == ("",):
            table = self._empty_for_null(table)
        return table

    def unfinished(self, file: FileStamp, offset: int) -> BadInput:
        return BadInput(
            f"{file.path}: a quoted field in the record at byte {offset} does not end",
            hint='close the quote, or register the input with quote="" if quotes have no meaning in it',
            typed="close the quote, or give --input-option {table}.quote= if quotes have no meaning in it",
        )

    def _empty_for_null(self, table: pa.Table) -> pa.Table:
        for i, name in enumerate(table.column_names):
            field = self.schema.field(name)
            column = table.column(i)
            if not field.nullable and pa.types.is_string(field.type) and column.null_count:
                table = table.set_column(i, name, pc.fill_null(column, ""))
        return table


def csv_schema(file: FileStamp, options: Options, declared: pa.Schema | None) -> pa.Schema:
    """How the columns of a CSV file are parsed, in file order.

    Types come from ``declared`` where it has the column, else from the first megabyte. Whether
    its times carry a zone is something that only the file can say.
    """
    text = head(file)
    records = _records(text, file, options, final=len(text) < HEAD)
    if not len(records.starts):
        raise BadInput(
            f"{file.path}: the first record does not end within a megabyte",
            hint="check the quotes in it, and the quote option",
            typed="check the quotes in it, and --input-option {table}.quote=CHARACTER",
        )
    names = _names(file, text, records, options, declared)
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BadInput(f"{file.path} has the column {', '.join(twice)} twice", hint="rename one of them")
    rows = text[int(records.ends[0]) if options.header else 0 : records.consumed]
    inferred = _infer(file, rows, names, options)
    return pa.schema([_parsed(field, declared) for field in inferred])


def _names(
    file: FileStamp, text: bytes, records: TextRecords, options: Options, declared: pa.Schema | None
) -> list[str]:
    if options.header:
        return _fields(text[: int(records.ends[0])], options)
    if declared is None:
        raise UsageError(
            f"{file.path}: a CSV file without a header needs a schema for the names of its columns",
            hint="give table_schema, or register a file with a header",
        )
    return list(declared.names)


def _parsed(field: pa.Field, declared: pa.Schema | None) -> pa.Field:
    if declared is None or field.name not in declared.names:
        return field.with_type(_lasting(field.type))
    wanted = declared.field(field.name)
    if pa.types.is_timestamp(wanted.type) and pa.types.is_timestamp(field.type):
        return wanted.with_type(pa.timestamp(wanted.type.unit, field.type.tz))
    return wanted


def _lasting(kind: pa.DataType) -> pa.DataType:
    """A type that has room for what later rows may bring."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return kind


def _infer(file: FileStamp, rows: bytes, names: list[str], options: Options) -> pa.Schema:
    if not rows.strip(b"\r\n"):
        return pa.schema([(name, pa.null()) for name in names])
    try:
        return csv.read_csv(
            pa.BufferReader(rows),
            read_options=_read_options(rows, names),
            parse_options=_parse_options(options),
            convert_options=csv.ConvertOptions(**_nulls(options)),
        ).schema
    except pa.ArrowInvalid as error:
        raise BadInput(
            f"{file.path} cannot be read as CSV: {located(str(error), names, 0)}",
            hint="check the delimiter, quote and header options against the file",
            typed="check the file against --input-option {table}.delimiter=, {table}.quote= and "
            "{table}.header=",
        ) from error


def _fields(record: bytes, options: Options) -> list[str]:
    row = csv.read_csv(
        pa.BufferReader(record),
        read_options=csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
        parse_options=_parse_options(options),
        convert_options=csv.ConvertOptions(
            column_types={f"f{i}": pa.string() for i in range(record.count(options.delimiter.encode()) + 1)},
            strings_can_be_null=False,
        ),
    )
    return [str(column[0].as_py()) for column in row.columns]


def _records(text: bytes, file: FileStamp, options: Options, *, final: bool) -> TextRecords:
    try:
        return csv_records(text, options.delimiter, options.quote, final=final)
    except LoneReturnError:
        raise BadInput(
            f"{file.path} has lines that end with a carriage return alone",
            hint="convert its line ends to \\n or \\r\\n",
        ) from None


def _read_options(text: pa.Buffer | bytes, names: list[str]) -> csv.ReadOptions:
    size = text.size if isinstance(text, pa.Buffer) else len(text)
    return csv.ReadOptions(column_names=names, use_threads=False, block_size=min(size + 1, _MOST))


def _parse_options(options: Options) -> csv.ParseOptions:
    return csv.ParseOptions(
        delimiter=options.delimiter, quote_char=options.quote or False, newlines_in_values=True
    )


def _nulls(options: Options) -> dict[str, object]:
    return {
        "null_values": list(options.null_values),
        "strings_can_be_null": True,
        "quoted_strings_can_be_null": False,
    }
