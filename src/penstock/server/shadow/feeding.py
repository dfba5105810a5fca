"""Rows for the system tables, for as long as one statement takes.

The twin of a system table is a view over settings of the session, an array for each column. A statement gets
its rows as settings that end with its transaction (``SET LOCAL``), so nothing is left for the next one on
that connection, and no other connection ever sees them. A role cannot set anything itself. PostgreSQL looks
into the arrays when it plans, so it knows how many rows there are.

Nobody reads such a view without rows by mistake: a setting that is not there is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.server.shadow.postgres.link import literal, quoted
from penstock.server.shadow.values import text

if TYPE_CHECKING:
    Key = tuple[str, str]

MOST = 16 << 20
"""Letters that are given to one statement, some 170,000 partitions. A backend needs ten times the memory."""


class TooManyRows(Exception):
    """More than a statement here should get."""


def view(schema: str, name: str, columns: Sequence[tuple[str, str, bool]]) -> str:
    """DDL of the view of a system table; ``columns`` as a `Twin` has them."""
    arrays, shown = [], []
    for number, (column, ddl, _) in enumerate(columns):
        # An array cannot hold arrays of different lengths, so those come as texts.
        kind = "text" if ddl.endswith("[]") else ddl
        arrays.append(f"current_setting({literal(_setting(schema, name, number))})::{kind}[]")
        shown.append(f"c{number}::{ddl} AS {quoted(column)}")
    names = ", ".join(f"c{number}" for number in range(len(columns)))
    return (
        f"CREATE VIEW {quoted(schema)}.{quoted(name)} AS SELECT {', '.join(shown)}"
        f" FROM unnest({', '.join(arrays)}) AS {quoted(name)}({names})"
    )


def statements(rows: Mapping[Key, pa.Table]) -> str:
    """What a transaction begins with to have these rows in its system tables. Raises `TooManyRows`."""
    # No value is written with less than a quarter of the bytes that it has in Arrow.
    if sum(table.nbytes for table in rows.values()) > 4 * MOST:
        raise TooManyRows
    written, size = [], 0
    for (schema, name), table in rows.items():
        for number, column in enumerate(table.columns):
            array = _array(column.combine_chunks())
            size += len(array)
            if size > MOST:
                raise TooManyRows
            written.append(f"SET LOCAL {_setting(schema, name, number)} TO {literal(array)}")
    return "; ".join(written)


def _setting(schema: str, name: str, number: int) -> str:
    return f"penstock.{schema}_{name}_{number}"


def _array(values: Any) -> str:
    """A column as PostgreSQL writes an array."""
    kind = values.type
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind):
        elements = values.cast(pa.string())
    elif kinds.is_string(kind) or kinds.is_timestamp(kind):
        elements = _in_quotes(values.cast(pa.string()))
    else:
        told = [None if value is None else text(value) for value in values.to_pylist()]
        elements = _in_quotes(pa.array(told, pa.string()))
    filled = pc.fill_null(elements, "NULL")
    row = pa.ListArray.from_arrays(pa.array([0, len(filled)], pa.int32()), filled)
    return f"{{{pc.binary_join(row, ',')[0].as_py()}}}"


def _in_quotes(texts: Any) -> Any:
    for special in ("\\", '"'):
        texts = pc.replace_substring(texts, special, "\\" + special)
    return pc.binary_join_element_wise('"', texts, '"', "")
