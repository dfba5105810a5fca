"""Fields in PostgreSQL's binary format, a column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SqlError
from penstock.server.pgwire.encode.fields import Field, Varying, binary_array, content, field, nulls, varying
from penstock.server.pgwire.encode.moments import date_binary, interval_binary, time_binary, timestamp_binary
from penstock.server.pgwire.encode.numbers import all_null, bool_binary, number_binary, numeric_binary
from penstock.server.pgwire.encode.text import (
    Style,
    list_parts,
    plain,
    regrouped,
    text_field,
)
from penstock.server.pgwire.encode.weaving import RowLayout, woven
from penstock.types.arrow import is_bytes, is_list, is_text
from penstock.types.postgres import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    NUMERIC,
    OID,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    arrow_type,
    element,
    type_name,
)

_NUMBERS = {
    INT2: (pa.int16(), ">i2"),
    INT4: (pa.int32(), ">i4"),
    INT8: (pa.int64(), ">i8"),
    OID: (pa.uint32(), ">u4"),
    FLOAT4: (pa.float32(), ">f4"),
    FLOAT8: (pa.float64(), ">f8"),
}
_NOT_READ = frozenset({INTERVAL, NUMERIC})
"""Types that Arrow does not read from texts as PostgreSQL writes them."""
_ENCODERS = {
    BOOL: bool_binary,
    DATE: date_binary,
    TIME: time_binary,
    TIMESTAMP: timestamp_binary,
    TIMESTAMPTZ: timestamp_binary,
    INTERVAL: interval_binary,
    NUMERIC: numeric_binary,
}
_ZERO = ord("0")
_ELEMENT = RowLayout(lengths=True)


def binary_field(array: pa.Array, oid: int) -> Field:
    """The column in binary. ``oid`` decides: that is what the client was told to expect."""
    array = plain(array)
    if pa.types.is_null(array.type):
        return all_null(len(array))
    if (inner := element(oid)) is not None and is_list(array.type):
        return Varying(array_binary(array, inner))
    if oid in _NUMBERS:
        return number_binary(array, *_NUMBERS[oid])
    if oid in _ENCODERS:
        if is_text(array.type):
            array = _read(array, oid)
        return _ENCODERS[oid](array)
    if oid == UUID:
        return _uuid_binary(array)
    if oid == BYTEA:
        return Varying(array.cast(pa.binary()))
    text = text_field(array, oid, Style())
    if oid == JSONB:
        # A byte for the version of the format is before the text.
        return Varying(pc.binary_join_element_wise(pa.scalar(b"\x01"), text.values(), b""))
    return text


def _read(array: pa.Array, oid: int) -> pa.Array:
    if oid in _NOT_READ:
        raise SqlError(
            f"no binary output function available for text as type {type_name(oid)}",
            sqlstate="42883",
            hint="ask for the text format, or cast the column to text",
        )
    return array.cast(arrow_type(oid))


def _uuid_binary(array: pa.Array) -> Field:
    if is_bytes(array.type):
        return Varying(array.cast(pa.binary()))
    digits = pc.replace_substring(pc.utf8_lower(array.cast(pa.string())), "-", "")
    filled = pc.fill_null(digits, "0" * 32)
    if not pc.all(pc.match_substring_regex(filled, "^[0-9a-f]{32}$")).as_py():
        raise SqlError("invalid input syntax for type uuid", sqlstate="22P02", hint="cast the column to text")
    raw = content(filled.cast(pa.binary()))[0]
    halves = np.where(raw > ord("9"), raw - (ord("a") - 10), raw - _ZERO).reshape(-1, 16, 2)
    return field((halves[:, :, 0] * 16 + halves[:, :, 1]).astype(np.uint8), array)


def array_binary(array: pa.Array, inner: int) -> pa.Array:
    """Dimensions, whether there are nulls, the type; then each element with its length."""
    flat, lists = list_parts(array)
    encoded, missing = _elements(flat, inner)
    bodies = pc.binary_join(regrouped(lists, encoded), b"")
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    heads = pc.if_else(pa.array(counts == 0), _empty_head(inner), _heads(counts, missing, inner))
    return pc.binary_join_element_wise(heads, bodies, b"")


def _elements(flat: pa.Array, inner: int) -> tuple[pa.Array, np.ndarray]:
    """Each element after its length, and which are NULL."""
    if not len(flat):
        return pa.array([], pa.binary()), np.empty(0, np.bool_)
    data, begins = woven(len(flat), [binary_field(flat, inner)], _ELEMENT)
    return varying(data, begins.astype(np.int32)), nulls(flat)


def _empty_head(inner: int) -> pa.Scalar:
    return pa.scalar(np.array([0, 0, inner], ">i4").tobytes(), pa.binary())


def _heads(counts: np.ndarray, missing: np.ndarray, inner: int) -> pa.Array:
    before = np.concatenate([[0], np.cumsum(missing)])
    ends = np.cumsum(counts)
    heads = np.empty((len(counts), 5), ">i4")
    heads[:, 0] = 1
    heads[:, 1] = before[ends] > before[ends - counts]
    heads[:, 2] = inner
    heads[:, 3] = counts
    heads[:, 4] = 1
    return binary_array(heads.view(np.uint8).reshape(len(counts), 20))
