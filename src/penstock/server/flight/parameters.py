"""Parameters of prepared statements as Arrow brings them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.core.arrow_data import sound
from penstock.errors import SqlError
from penstock.server.base import Prepared
from penstock.sql.parse.lexing import PARAMETER, SYMBOL, lexed
from penstock.types.postgres import arrow_type

_MOST_ROWS = 1000
_MOST_BYTES = 64 << 20
"""What the other protocols take in one message, too."""


def numbered(sql: str) -> str:
    """The statement with ``$1``, ``$2`` … for the question marks by which JDBC and ODBC know parameters."""
    found = lexed(sql)
    if any(token.kind == PARAMETER for token in found):
        return sql
    # An operator may stand right before it, and is one word with it then.
    marks = [token.end - 1 for token in found if token.kind == SYMBOL and token.text.endswith("?")]
    parts, begin = [], 0
    for number, at in enumerate(marks, 1):
        parts.append(f"{sql[begin:at]} ${number} ")
        begin = at + 1
    return "".join([*parts, sql[begin:]])


def parameter_schema(prepared: Prepared) -> pa.Schema:
    """What a client should bind: one column for each parameter."""
    return pa.schema([pa.field(f"${n}", arrow_type(oid)) for n, oid in enumerate(prepared.parameters, 1)])


def received(reader: Any) -> pa.Table:
    """What a client sends, unless it is more than any statement needs: a stream may have no end."""
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for chunk in reader:
        batch = _sound(chunk.data)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > _MOST_ROWS:
            raise SqlError(f"at most {_MOST_ROWS} rows of parameters can be bound at once", sqlstate="54000")
        if size > _MOST_BYTES:
            raise SqlError(f"parameters of more than {_MOST_BYTES >> 20} MiB are not taken", sqlstate="54000")
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    try:
        return sound(batch)
    except pa.ArrowInvalid as error:
        raise SqlError(f"the parameters are no sound Arrow data: {error}", sqlstate="08P01") from None


def rows_of(bound: pa.Table, prepared: Prepared) -> Sequence[Sequence[object]]:
    """The values of every bound row, cast to the types that the statement wants."""
    wanted = parameter_schema(prepared)
    if bound.num_columns != len(wanted):
        raise SqlError(
            f"{bound.num_columns} parameters were bound, and the statement has {len(wanted)}",
            sqlstate="08P01",
        )
    columns = []
    for column, field in zip(bound.columns, wanted, strict=True):
        try:
            # A decimal of another type has the digits that it should have.
            kept = pa.types.is_decimal(column.type) and pa.types.is_decimal(field.type)
            columns.append((column if kept else column.cast(field.type)).to_pylist())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # A text is read by the engine as the type that it should be.
            columns.append(column.to_pylist())
    return list(zip(*columns, strict=True)) if columns else [()] * max(1, bound.num_rows)
