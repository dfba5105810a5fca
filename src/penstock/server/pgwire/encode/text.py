"""Fields in PostgreSQL's text format, a column at a time."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.server.pgwire.encode.fields import Field, Varying, content, field, nulls, varying
from penstock.server.pgwire.encode.floats import float_text
from penstock.server.pgwire.encode.moments import date_text, interval_text, time_text, timestamp_text
from penstock.server.pgwire.encode.numbers import all_null, bool_text, integer_text, numeric_text
from penstock.types.arrow import is_bytes, is_list, is_text
from penstock.types.postgres import JSON, JSON_ARRAY, JSONB, JSONB_ARRAY, element

if TYPE_CHECKING:
    from penstock.server.pgwire.encode.fields import Cells
    from penstock.server.session_settings import Settings

_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
_ESCAPED = [
    b"\\\\" if byte == 0x5C else bytes([byte]) if 0x20 <= byte < 0x7F else f"\\{byte:03o}".encode()
    for byte in range(256)
]
_UUID_PARTS = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
_SPECIAL = r'(?i)^$|[{}",\\\s\v]|^null$'
"""What PostgreSQL puts in quotes inside an array."""


@dataclass(frozen=True, slots=True)
class Style:
    """What the session's settings say about texts."""

    zone: str = "UTC"
    extra_float_digits: int = 1
    bytea_escape: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Style:
        return cls(settings.timezone, settings.extra_float_digits, settings.bytea_output == "escape")


def plain(array: pa.Array) -> pa.Array:
    """Without dictionaries and extensions, which change nothing of the values."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    return array


def text_field(array: pa.Array, oid: int, style: Style) -> Field:
    """The column in text. The Arrow type decides, and ``oid`` only where that says too little."""
    was_uuid = isinstance(array.type, pa.BaseExtensionType) and array.type.extension_name == "arrow.uuid"
    array = plain(array)
    kind, types = array.type, pa.types
    if is_text(kind):
        return Varying(array.cast(pa.string()).cast(pa.binary()))
    if types.is_integer(kind):
        return integer_text(array)
    if types.is_floating(kind):
        return float_text(
            array.cast(pa.float32()) if types.is_float16(kind) else array, style.extra_float_digits
        )
    if types.is_boolean(kind):
        return bool_text(array)
    if types.is_decimal(kind):
        return numeric_text(array)
    if types.is_null(kind):
        return all_null(len(array))
    if types.is_nested(kind):
        return _nested_text(array, oid, style)
    if is_bytes(kind):
        return _bytes_text(array, was_uuid, style)
    return _moment_text(array, style)


def _moment_text(array: pa.Array, style: Style) -> Field:
    kind, types = array.type, pa.types
    if types.is_timestamp(kind):
        return timestamp_text(array, style.zone)
    if types.is_date(kind):
        return date_text(array)
    if types.is_time(kind):
        return time_text(array)
    if types.is_duration(kind) or types.is_interval(kind):
        return interval_text(array)
    return Varying(array.cast(pa.string()).cast(pa.binary()))


def _bytes_text(array: pa.Array, was_uuid: bool, style: Style) -> Field:
    if was_uuid:
        return uuid_text(array)
    array = array.cast(pa.binary())
    if style.bytea_escape:
        texts = [
            None if each is None else b"".join(map(_ESCAPED.__getitem__, each)) for each in array.to_pylist()
        ]
        return Varying(pa.array(texts, pa.binary()))
    data, offsets = content(array)
    missing = nulls(array) if array.null_count else None
    digits = varying(_HEX.take(data), (offsets * 2).astype(np.int32), missing)
    return Varying(pc.binary_join_element_wise(pa.scalar(b"\\x"), digits, b""))


def uuid_text(array: pa.Array) -> Field:
    """With hyphens, from 16 bytes."""
    width = 16
    filled = pc.fill_null(array, bytes(width)) if array.null_count else array
    data = np.frombuffer(filled.buffers()[1], np.uint8)
    raw = data[filled.offset * width : (filled.offset + len(array)) * width]
    digits = _HEX.take(raw).view(np.uint8).reshape(len(array), 32)
    cells: Cells = np.full((len(array), 36), ord("-"), np.uint8)
    for hyphens, (start, end) in enumerate(_UUID_PARTS):
        cells[:, start + hyphens : end + hyphens] = digits[:, start:end]
    return field(cells, array)


def _nested_text(array: pa.Array, oid: int, style: Style) -> Field:
    inner = element(oid)
    if inner is None or not is_list(array.type) or oid in {JSON, JSONB}:
        return json_text(array)
    return Varying(array_text(array, inner, style))


def array_text(array: pa.Array, inner: int, style: Style) -> pa.Array:
    """``{1,NULL,"two words"}``."""
    flat, lists = list_parts(array)
    fields = text_field(flat, inner, style).values() if len(flat) else pa.array([], pa.binary())
    texts = pc.if_else(pa.array(nulls(fields)), "NULL", _quoted(fields, flat.type, inner))
    joined = pc.binary_join(regrouped(lists, texts.cast(pa.binary())), b",")
    return pc.binary_join_element_wise(pa.scalar(b"{"), joined, pa.scalar(b"}"), b"")


def _quoted(fields: pa.Array, kind: pa.DataType, inner: int) -> pa.Array:
    texts = fields.cast(pa.string())
    types = pa.types
    numbers = (
        types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    )
    if numbers and inner not in {JSON_ARRAY, JSONB_ARRAY}:
        return texts
    special = pc.match_substring_regex(texts, _SPECIAL)
    if not pc.any(special).as_py():
        return texts
    escaped = pc.replace_substring_regex(texts, r'(["\\])', r"\\\1")
    return pc.if_else(special, pc.binary_join_element_wise('"', escaped, '"', ""), texts)


def list_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """All elements one after the other, and the lists as offsets into them from 0."""
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    # Elements under a null list are no part of the result.
    return array.flatten(), array


def regrouped(lists: pa.Array, elements: pa.Array) -> pa.Array:
    """New elements in the lists of an array that `list_parts` gave."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    missing = pa.array(nulls(lists)) if lists.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=missing)


def json_text(array: pa.Array) -> Field:
    """Structs, maps and lists of lists as JSON. Large results have JSON from Spark, so this may be slow."""
    rows = [None if value is None else _json(value, array.type).encode() for value in array.to_pylist()]
    return Varying(pa.array(rows, pa.binary()))


def _json(value: Any, kind: pa.DataType) -> str:
    """As Spark's ``to_json`` writes it, but with the nulls."""
    types = pa.types
    if value is None:
        return "null"
    if types.is_struct(kind):
        pairs = (
            f"{json.dumps(each.name, ensure_ascii=False)}:{_json(value[each.name], each.type)}"
            for each in kind
        )
        return "{" + ",".join(pairs) + "}"
    if types.is_map(kind):
        return (
            "{"
            + ",".join(f"{_json(str(key), pa.string())}:{_json(item, kind.item_type)}" for key, item in value)
            + "}"
        )
    if is_list(kind):
        return "[" + ",".join(_json(item, kind.value_type) for item in value) + "]"
    if types.is_decimal(kind):
        return f"{value:f}"
    if is_bytes(kind):
        return json.dumps(base64.b64encode(value).decode())
    if types.is_temporal(kind) and hasattr(value, "isoformat"):
        return json.dumps(value.isoformat())
    finite = not isinstance(value, float) or math.isfinite(value)
    return json.dumps(value if finite else str(value), ensure_ascii=False, default=str)
