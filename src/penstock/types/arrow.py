"""Arrow's types: of which kind one is, which one holds values of Python, and what is inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from pyarrow import types as t

Kind: TypeAlias = Literal[
    "null",
    "boolean",
    "integer",
    "float",
    "decimal",
    "text",
    "bytes",
    "fixed bytes",
    "date",
    "time",
    "instant",
    "local time",
    "list",
    "other list",
    "struct",
    "map",
    "other",
]
"""What a type's values are, however many bits they have. A timestamp is an instant if it has a zone, and a
local time if it has none. Lists that have no offsets are ``other list``.
"""

NESTED: frozenset[Kind] = frozenset({"list", "struct", "map"})

OF_PYTHON: Mapping[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    bool: pa.bool_(),
    date: pa.date32(),
    datetime: pa.timestamp("us", "UTC"),
}
"""What holds values of a Python type. Decimals have digits to tell, and are not here."""

ZEROS: Mapping[Kind, Any] = {
    "integer": 0,
    "float": 0,
    "decimal": Decimal(0),
    "text": "",
    "bytes": b"",
    "boolean": False,
    "date": date(1970, 1, 1),
    "instant": datetime(1970, 1, 1, tzinfo=UTC),
    "local time": datetime(1970, 1, 1),
    "list": (),
}
"""A value of each kind, for a row that must have one and means nothing by it."""


def is_text(kind: pa.DataType) -> bool:
    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether it holds bytes, of any length or of a fixed one."""
    return _varies(kind) or bool(t.is_fixed_size_binary(kind))


def has_offsets(kind: pa.DataType) -> bool:
    """Whether it is a list in the layout that most lists have."""
    return bool(t.is_list(kind) or t.is_large_list(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether it is a list of any length or of a fixed one."""
    return has_offsets(kind) or bool(t.is_fixed_size_list(kind))


def _varies(kind: pa.DataType) -> bool:
    return bool(t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind))


_KINDS: tuple[tuple[Kind, Callable[[pa.DataType], bool]], ...] = (
    ("integer", t.is_integer),
    ("text", is_text),
    ("float", t.is_floating),
    ("decimal", t.is_decimal),
    ("instant", lambda kind: t.is_timestamp(kind) and kind.tz is not None),
    ("local time", t.is_timestamp),
    ("date", t.is_date),
    ("boolean", t.is_boolean),
    ("bytes", _varies),
    ("fixed bytes", t.is_fixed_size_binary),
    ("list", has_offsets),
    ("other list", lambda kind: t.is_fixed_size_list(kind) or t.is_list_view(kind)),
    ("struct", t.is_struct),
    ("map", t.is_map),
    ("time", t.is_time),
    ("null", t.is_null),
)


def kind_of(type_: pa.DataType) -> Kind:
    return next((kind for kind, is_kind in _KINDS if is_kind(type_)), "other")


def has_inside(type_: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is of some kind, or has a type of that kind at any depth."""
    if t.is_nested(type_):
        return any(has_inside(type_.field(n).type, is_kind) for n in range(type_.num_fields))
    return is_kind(type_)
