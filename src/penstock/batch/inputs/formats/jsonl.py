"""JSON lines: one document per line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import json

from penstock.batch.inputs.formats.base import present
from penstock.batch.inputs.formats.text import HEAD, TextFormat, head, located
from penstock.batch.inputs.scan import TextRecords, json_records
from penstock.errors import BadInput
from penstock.types.tables import zone_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.batch.inputs.files import FileStamp

_MOST = (1 << 31) - 1
_BEGIN = 1 << 12


class JsonLines(TextFormat):
    """``strict`` refuses a document with a field that the schema lacks.

    That is right where the schema was inferred from the first documents: a field that appears
    only later must not be lost in silence. A declared table leaves out what it does not name.
    """

    def __init__(self, schema: pa.Schema, *, strict: bool) -> None:
        super().__init__(schema)
        self.strict = strict

    def records(self, text: bytes, file: FileStamp, *, final: bool) -> TextRecords:
        del file
        return json_records(text, final=final)

    def parse(self, text: pa.Buffer, columns: Sequence[str]) -> pa.Table:
        chosen = present(columns, self.schema.names)
        schema = self.schema if self.strict else pa.schema([self.schema.field(name) for name in chosen])
        table = read_documents(text, schema, "error" if self.strict else "ignore")
        return table.select(chosen)


def jsonl_schema(file: FileStamp | None, declared: pa.Schema | None) -> pa.Schema:
    """How the fields of the documents are parsed: as declared, or as the first megabyte has them.

    Texts that look like times stay texts when nothing is declared: JSON has no other type for
    them, and one document may differ from the next.
    """
    if declared is not None:
        return readable_schema(declared)
    assert file is not None, "without a table, the types come from a file"
    text = head(file)
    records = json_records(text, final=len(text) < HEAD)
    if not records.consumed:
        raise BadInput(
            f"{file.path}: the first document does not end within a megabyte",
            hint="JSON lines have one document on each line; convert the file, or give table_schema",
        )
    try:
        inferred = read_documents(pa.py_buffer(text[: records.consumed]), None, "infer").schema
    except pa.ArrowInvalid as error:
        raise BadInput(
            f"{file.path} cannot be read as JSON lines: {located(str(error), [], 0)}",
            hint="JSON lines have one document on each line; convert the file",
        ) from error
    return pa.schema([pa.field(field.name, _lasting(field.type)) for field in inferred])


def readable_schema(declared: pa.Schema) -> pa.Schema:
    """How pyarrow's JSON reader can make what is declared; what comes is then cast."""
    kinds = [pa.string() if zone_of(field) else readable_type(field.type) for field in declared]
    return pa.schema(list(zip(declared.names, kinds, strict=True)))


def read_documents(text: pa.Buffer, schema: pa.Schema | None, unexpected: str) -> pa.Table:
    """The documents of a text, with the fields of ``schema``; others as ``unexpected`` says."""
    # Arrow 26 is killed by a null that comes first.
    if bytes(text[:_BEGIN]).lstrip().startswith(b"null"):
        raise pa.ArrowInvalid("a line is null, and not an object")
    return json.read_json(
        pa.BufferReader(text),
        read_options=json.ReadOptions(use_threads=False, block_size=min(text.size + 1, _MOST)),
        parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )


def readable_type(kind: pa.DataType) -> pa.DataType:
    """The type as pyarrow's JSON reader can make it: dates and times come as texts, to be cast.

    So do timestamps without a zone, of which it would drop the zone that a text has.
    """
    if pa.types.is_date(kind) or pa.types.is_time(kind) or (pa.types.is_timestamp(kind) and not kind.tz):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, readable_type(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(readable_type(kind.value_type))
    if pa.types.is_map(kind):
        raise BadInput(
            f"a JSON-lines file cannot fill a column of type {kind}", hint="declare a nested table"
        )
    return kind


def _lasting(kind: pa.DataType) -> pa.DataType:
    """A type that has room for what later documents may bring."""
    if pa.types.is_null(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _lasting(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_lasting(kind.value_type))
    return kind
