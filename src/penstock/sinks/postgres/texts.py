"""Texts that no column of PostgreSQL can hold, found before they are sent: the server would not say which."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StreamError

_NUL = "\0"


def check_texts(batch: pa.RecordBatch, keys: Sequence[str]) -> None:
    """Raise `StreamError` if a text has a NUL character or is not UTF-8.

    The error names the column and the row: by its keys, or by what else tells rows apart.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            continue
        if not _is_utf8(column):
            row = next(n for n in range(len(column)) if not _is_utf8(column.slice(n, 1)))
            raise _refused(batch, row, name, keys, "bytes that are not UTF-8", "decode it as what it is")
        found = pc.index(pc.match_substring(column, _NUL), True).as_py()
        if found >= 0:
            removed = 'take it out, such as by row["…"].replace("\\0", "")'
            raise _refused(batch, found, name, keys, "a NUL character", removed)


def _is_utf8(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _refused(
    batch: pa.RecordBatch, row: int, column: str, keys: Sequence[str], what: str, way: str
) -> StreamError:
    return StreamError(
        f"{column} has {what}, which PostgreSQL cannot hold as text, in the row {_row(batch, row, keys)}",
        left="nothing of the batch",
        hint=f"{way}, in an operator before the output, and start with --accept-changes; "
        "or declare the field as bytes",
    )


def _row(batch: pa.RecordBatch, row: int, keys: Sequence[str]) -> str:
    """What tells a row from others: its keys, or else its numbers and times."""
    names = list(keys) or [field.name for field in batch.schema if _tells(field.type)]
    shown = [f"{name} = {_shown(batch.column(name)[row])}" for name in names]
    return ", ".join(shown) or f"{row + 1} of {batch.num_rows}"


def _tells(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _shown(value: pa.Scalar) -> str:
    try:
        return str(value.as_py()).replace(_NUL, "\\0")
    except (UnicodeDecodeError, ValueError, OverflowError):
        return "?"
