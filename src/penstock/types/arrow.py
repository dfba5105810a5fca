"""Arrow's types: of which kind one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

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
