"""Parameters that clients send, as Python values."""

from __future__ import annotations

import json
import math
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from penstock.errors import SqlError
from penstock.gateway import types
from penstock.gateway.pgwire.array_values import array_from_binary, array_from_text
from penstock.gateway.pgwire.moment_values import (
    date_from_binary,
    date_from_text,
    interval_from_binary,
    interval_from_text,
    time_from_binary,
    time_from_text,
    timestamp_from_binary,
    timestamp_from_text,
)
from penstock.gateway.pgwire.refusals import bad_binary, bad_text, out_of_range, unsupported

_INTEGERS = {types.INT2: ("h", 16), types.INT4: ("i", 32), types.INT8: ("q", 64), types.OID: ("I", 32)}
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_UUID = re.compile(r"\{?([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}\}?")
_LONGEST_NUMBER = 2000
_NUMERIC_SIGNS = {0: 0, 0x4000: 1}


def decode(oid: int, format: int, data: bytes, *, zone: str = "UTC") -> object:  # noqa: A002
    """The value of a parameter, ``format`` 0 for text and 1 for binary.

    ``zone`` is the session's: it says what a time stamp without an offset means.
    """
    inner = types.element(oid)
    if format == 0:
        text = _text(data)
        if inner is not None:
            return array_from_text(text, oid, lambda item: _from_text(inner, item, zone))
        return _from_text(oid, text, zone)
    if format != 1:
        raise SqlError(f"unsupported format code: {format}", sqlstate="22023")
    if inner is not None:
        return array_from_binary(data, oid, inner, lambda item: _from_binary(inner, item))
    return _from_binary(oid, data)


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = " ".join(f"0x{byte:02x}" for byte in data[error.start : error.end])
        raise SqlError(f'invalid byte sequence for encoding "UTF8": {bad}', sqlstate="22021") from None
    if "\0" in text:
        raise SqlError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
    return text


def _from_text(oid: int, text: str, zone: str) -> object:
    if oid in _INTEGERS:
        return _integer(oid, text)
    if oid in {types.TIMESTAMP, types.TIMESTAMPTZ}:
        return timestamp_from_text(text, zone if oid == types.TIMESTAMPTZ else None)
    reader = _TEXTS.get(oid)
    return text if reader is None else reader(text)


def _integer(oid: int, text: str) -> int:
    kind, bits = _INTEGERS[oid]
    if len(text) > _LONGEST_NUMBER or not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        raise bad_text(types.type_name(oid), text)
    number = int(text)
    low, high = (0, 1 << bits) if kind.isupper() else (-(1 << bits - 1), 1 << bits - 1)
    if not low <= number < high:
        raise out_of_range(types.type_name(oid), text)
    return number


def _bool(text: str) -> bool:
    word = text.strip().lower()
    # PostgreSQL takes what begins like one of the words, if it begins like one only.
    if word and any(each.startswith(word) for each in _TRUE) and word != "o":
        return True
    if word and any(each.startswith(word) for each in _FALSE) and word != "o":
        return False
    raise bad_text("boolean", text)


def _float(text: str) -> float:
    word = text.strip().lower()
    if word.lstrip("+-") in {"nan", "inf", "infinity"} and not (word[0] in "+-" and word.endswith("nan")):
        return float(word)
    if not _NUMBER.fullmatch(word):
        raise bad_text("double precision", text)
    number = float(word)
    if math.isinf(number):
        raise out_of_range("double precision", text)
    return number


def _real(text: str) -> float:
    return _single(_float(text), text)


def _single(number: float, text: str) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        raise out_of_range("real", text) from None


def _numeric(text: str) -> Decimal:
    word = text.strip()
    if word.lower().lstrip("+-") in {"nan", "inf", "infinity"}:
        raise unsupported(f"the numeric value {word}", "numbers here are finite: use double precision for it")
    if len(word) > _LONGEST_NUMBER or not _NUMBER.fullmatch(word):
        raise bad_text("numeric", text)
    try:
        number = Decimal(word)
    except InvalidOperation:
        raise out_of_range("numeric", text) from None
    if abs(number.adjusted()) > _LONGEST_NUMBER:
        raise out_of_range("numeric", text)
    # Without an exponent, as PostgreSQL keeps it.
    return Decimal(f"{number:f}")


def _bytea(text: str) -> bytes:
    if text.startswith("\\x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise SqlError("invalid hexadecimal data", sqlstate="22023") from None
    raw = text.encode()
    # A backslash has either another one or three octal digits after it.
    if re.fullmatch(rb"(?s)([^\\]|\\\\|\\[0-3][0-7]{2})*", raw) is None:
        raise bad_text("bytea", text)
    return re.sub(rb"(?s)\\(\\|[0-7]{3})", _unescaped, raw)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return b"\\" if match[1] == b"\\" else bytes([int(match[1], 8)])


def _uuid(text: str) -> uuid.UUID:
    if not _UUID.fullmatch(text) or text.startswith("{") != text.endswith("}"):
        raise bad_text("uuid", text)
    return uuid.UUID(text.strip("{}").replace("-", ""))


def _json(text: str) -> str:
    """The text as it is: it is only looked at to see whether it is JSON."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise bad_text("json", text) from None
    return text


def _no_constant(word: str) -> object:
    raise ValueError(word)


_TEXTS: dict[int, Callable[[str], object]] = {
    types.BOOL: _bool,
    types.FLOAT4: _real,
    types.FLOAT8: _float,
    types.NUMERIC: _numeric,
    types.BYTEA: _bytea,
    types.UUID: _uuid,
    types.JSON: _json,
    types.JSONB: _json,
    types.DATE: date_from_text,
    types.TIME: time_from_text,
    types.INTERVAL: interval_from_text,
}


def _from_binary(oid: int, data: bytes) -> object:
    if oid in _INTEGERS:
        return _unpack(oid, ">" + _INTEGERS[oid][0], data)
    if oid in {types.TIMESTAMP, types.TIMESTAMPTZ}:
        return timestamp_from_binary(data, zoned=oid == types.TIMESTAMPTZ)
    reader = _BINARIES.get(oid)
    return _text(data) if reader is None else reader(data)


def _unpack(oid: int, form: str, data: bytes) -> int | float:
    if len(data) != struct.calcsize(form):
        raise bad_binary(types.type_name(oid))
    value: int | float = struct.unpack(form, data)[0]
    return value


def _bool_binary(data: bytes) -> bool:
    return bool(_unpack(types.BOOL, "b", data))


def _numeric_binary(data: bytes) -> Decimal:
    if len(data) < 8:
        raise bad_binary("numeric")
    count, weight, sign, scale = struct.unpack_from(">HhHH", data)
    if len(data) != 8 + 2 * count:
        raise bad_binary("numeric")
    if sign not in _NUMERIC_SIGNS:
        if sign in {0xC000, 0xD000, 0xF000}:
            raise unsupported(
                "NaN or infinity as numeric", "numbers here are finite: use double precision for it"
            )
        raise SqlError('invalid sign in external "numeric" value', sqlstate="22P03")
    groups = struct.unpack_from(f">{count}H", data, 8)
    if any(group > 9999 for group in groups):
        raise SqlError('invalid digit in external "numeric" value', sqlstate="22P03")
    if max(abs(weight) * 4, scale, count * 4) > _LONGEST_NUMBER * 4:
        raise out_of_range("numeric", "in binary")
    unscaled = 0
    for group in groups:
        unscaled = unscaled * 10_000 + group
    # What the number of digits after the point cuts off is cut off by PostgreSQL, too.
    power = 4 * (weight + 1 - count) + scale
    unscaled = unscaled * 10**power if power >= 0 else unscaled // 10**-power
    return Decimal((_NUMERIC_SIGNS[sign], tuple(map(int, str(unscaled))), -scale))


def _uuid_binary(data: bytes) -> uuid.UUID:
    if len(data) != 16:
        raise bad_binary("uuid")
    return uuid.UUID(bytes=data)


def _jsonb_binary(data: bytes) -> str:
    if data[:1] != b"\x01":
        raise SqlError("unsupported jsonb version number", sqlstate="22P03")
    return _json(_text(data[1:]))


_BINARIES: dict[int, Callable[[bytes], object]] = {
    types.BOOL: _bool_binary,
    types.FLOAT4: lambda data: _unpack(types.FLOAT4, ">f", data),
    types.FLOAT8: lambda data: _unpack(types.FLOAT8, ">d", data),
    types.NUMERIC: _numeric_binary,
    types.BYTEA: bytes,
    types.UUID: _uuid_binary,
    types.JSON: lambda data: _json(_text(data)),
    types.JSONB: _jsonb_binary,
    types.DATE: date_from_binary,
    types.TIME: time_from_binary,
    types.INTERVAL: interval_from_binary,
}
