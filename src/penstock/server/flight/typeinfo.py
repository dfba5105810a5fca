"""The data types that this server knows, in the form that ODBC and JDBC drivers ask for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_SCHEMA = pa.schema(
    [
        pa.field("type_name", pa.string(), nullable=False),
        pa.field("data_type", pa.int32(), nullable=False),
        pa.field("column_size", pa.int32()),
        pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("nullable", pa.int32(), nullable=False),
        pa.field("case_sensitive", pa.bool_(), nullable=False),
        pa.field("searchable", pa.int32(), nullable=False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), nullable=False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()),
        pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), nullable=False),
        pa.field("datetime_subcode", pa.int32()),
        pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)
_NULLABLE, _SEARCHABLE = 1, 3

# Name, number among XDBC's types, size, whether its literals stand in quotes, largest scale, radix.
_TYPES: tuple[tuple[str, int, int, bool, int | None, int | None], ...] = (
    ("boolean", -7, 1, False, None, None),
    ("bigint", -5, 19, False, None, 10),
    ("bytea", -3, 2_147_483_647, True, None, None),
    ("text", -1, 2_147_483_647, True, None, None),
    ("numeric", 2, 38, False, 38, 10),
    ("integer", 4, 10, False, None, 10),
    ("smallint", 5, 5, False, None, 10),
    ("real", 7, 24, False, None, 2),
    ("double precision", 8, 53, False, None, 2),
    ("varchar", 12, 2_147_483_647, True, None, None),
    ("date", 91, 10, True, None, None),
    ("time", 92, 15, True, 6, None),
    ("timestamp", 93, 26, True, 6, None),
)


def type_info(wanted: int | None) -> pa.Table:
    """All types, or those of one number."""
    rows = [_row(*each) for each in _TYPES if wanted in (None, each[1])]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _row(
    name: str, number: int, size: int, quoted: bool, scale: int | None, radix: int | None
) -> dict[str, Any]:
    return {
        "type_name": name,
        "data_type": number,
        "column_size": size,
        "literal_prefix": "'" if quoted else None,
        "literal_suffix": "'" if quoted else None,
        "create_params": ["precision", "scale"] if name == "numeric" else None,
        "nullable": _NULLABLE,
        "case_sensitive": name in ("text", "varchar"),
        "searchable": _SEARCHABLE,
        "unsigned_attribute": False if radix else None,
        "fixed_prec_scale": False,
        "auto_increment": None,
        "local_type_name": name,
        "minimum_scale": 0 if scale is not None else None,
        "maximum_scale": scale,
        "sql_data_type": number,
        "datetime_subcode": None,
        "num_prec_radix": radix,
        "interval_precision": None,
    }
