"""From what PostgreSQL copies out to rows of a table."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.errors import InputError, NullInField
from penstock.sources.postgres.shape import KEYS, PostgresShape
from penstock.types.tables import zone_of

if TYPE_CHECKING:
    from penstock.sources.postgres.client import Key
    from penstock.sources.postgres.source import PostgresSource


def parsed(source: PostgresSource, shape: PostgresShape, data: bytes) -> pa.Table:
    """The rows of a COPY as CSV, with the key's columns as text at the end."""
    keys = [f"key {n}" for n in range(len(source.key))]
    names = [*shape.schema.names, *keys]
    types = {f.name: pa.string() if pa.types.is_binary(f.type) else f.type for f in shape.schema}
    types |= {name: pa.timestamp("us") for name in shape.local}
    types |= dict.fromkeys(keys, pa.string())
    if not data:
        return pa.schema([(each, types[each]) for each in names]).empty_table()
    try:
        return pyarrow.csv.read_csv(
            io.BytesIO(data),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            pyarrow.csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        at = re.search(r"CSV column #(\d+): (.*)", str(error))
        where = f"column {names[int(at[1])]} ({types[names[int(at[1])]]}): {at[2]}" if at else str(error)
        raise InputError(
            f"{source!r}: a value does not fit: {where}",
            hint="declare the field with enough digits, or leave such values out in a view",
        ) from None


def fitted(source: PostgresSource, rows: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """The fields of rows that were parsed."""
    columns = []
    for field in schema:
        column = rows.column(field.name).combine_chunks()
        if column.null_count and not field.nullable:
            raise NullInField(
                f"{source!r}: column {field.name} is null in {column.null_count} of {len(column)} rows, "
                "but it is declared without `| None`",
                hint=f"declare {field.name} as nullable, or leave such rows out in a view",
            )
        if column.type != field.type and pa.types.is_timestamp(field.type):
            column = _instants(source, field, column)
        if pa.types.is_binary(field.type):
            values = [None if each is None else bytes.fromhex(each) for each in column.to_pylist()]
            column = pa.array(values, field.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _instants(source: PostgresSource, field: pa.Field, column: pa.Array) -> pa.Array:
    """Local times as instants. One that a change of clocks made twice, or left out, is not guessed."""
    try:
        return pc.assume_timezone(column, zone_of(field)).cast(field.type)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{source!r}: column {field.name} does not fit: {error}",
            hint="declare it with Timestamp(naive=True), and convert it in a transform",
        ) from None


def last_key(shape: PostgresShape, rows: pa.Table) -> Key:
    last = rows.slice(rows.num_rows - 1).to_pylist()[0]
    return tuple(KEYS[kind](last[f"key {n}"]) for n, kind in enumerate(shape.key_types))
