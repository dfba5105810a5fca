"""What this server can do, as Flight SQL lets clients ask: numbers with a value of one of several types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock import __version__

_LISTS = pa.map_(pa.int32(), pa.list_(pa.int32()))
_VALUES: tuple[tuple[str, pa.DataType], ...] = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", pa.list_(pa.string())),
    ("int32_to_int32_list_map", _LISTS),
)
_TEXT, _FLAG, _NUMBER, _BITS, _LIST = 0, 1, 2, 3, 4

# The numbers are the protocol's.
_FACTS: dict[int, tuple[int, Any]] = {
    0: (_TEXT, "Penstock"),
    1: (_TEXT, __version__),
    2: (_TEXT, pa.__version__),
    3: (_FLAG, True),  # read only: rows are written by pipelines and streams
    4: (_FLAG, True),  # SQL
    5: (_FLAG, False),  # Substrait
    8: (_BITS, 0),  # transactions: none
    9: (_FLAG, True),  # cancel
    10: (_FLAG, False),  # bulk ingestion
    100: (_NUMBER, 0),  # statement timeout: none of its own
    101: (_NUMBER, 0),  # transaction timeout
    500: (_FLAG, False),  # CREATE CATALOG
    501: (_FLAG, True),  # CREATE SCHEMA
    502: (_FLAG, True),  # CREATE TABLE
    503: (_NUMBER, 2),  # identifiers are folded to lower case …
    504: (_TEXT, '"'),
    505: (_NUMBER, 1),  # … unless quoted
    506: (_FLAG, True),
    507: (_NUMBER, 1),  # nulls sort last
    508: (_LIST, ["SELECT", "FROM", "WHERE", "GROUP", "ORDER", "LIMIT"]),
    517: (_TEXT, "\\"),
    518: (_TEXT, ""),
}


def sql_info(wanted: Sequence[int]) -> pa.Table:
    """The facts that are asked for, those that are known; all of them when none is named."""
    names = [number for number in (wanted or sorted(_FACTS)) if number in _FACTS]
    kinds = [_FACTS[number][0] for number in names]
    children, offsets = [], [0] * len(names)
    for kind, (_, type_) in enumerate(_VALUES):
        values: list[Any] = []
        for n, number in enumerate(names):
            if kinds[n] == kind:
                offsets[n] = len(values)
                values.append(_FACTS[number][1])
        children.append(pa.array(values, type_))
    union = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, [name for name, _ in _VALUES]
    )
    schema = pa.schema(
        [pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", union.type, nullable=False)]
    )
    return pa.Table.from_arrays([pa.array(names, pa.uint32()), union], schema=schema)
