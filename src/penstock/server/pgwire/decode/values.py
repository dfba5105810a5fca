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
from penstock.server.pgwire.decode.array_values import array_from_binary, array_from_text
from penstock.server.pgwire.decode.moment_values import (
    date_from_binary,
    date_from_text,
    interval_from_binary,
    interval_from_text,
    time_from_binary,
    time_from_text,
    timestamp_from_binary,
    timestamp_from_text,
)
from penstock.server.pgwire.decode.refusals import BLANKS, bad_binary, bad_text, out_of_range, unsupported
from penstock.types import postgres

_INTEGERS = {
    postgres.INT2: ("h", 16),
    postgres.INT4: ("i", 32),
    postgres.INT8: ("q", 64),
    postgres.OID: ("I", 32),
}
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_UNUSUAL = re.compile(r"[+-]?inf(?:inity)?|nan")
_UUID = re.compile(r"\{?([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}\}?")
_LONGEST_NUMBER = 2000
_NUMERIC_SIGNS = {0: 0, 0x4000: 1}


def decode(oid: int, format: int, data: bytes, *, zone: str = "UTC") -> object:  # noqa: A002
    """The value of a parameter, ``format`` 0 for text and 1 for binary.

    ``zone`` is the session's: it says what a time stamp without an offset means.
    """
    inner = postgres.element(oid)
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
    if oid in {postgres.TIMESTAMP, postgres.TIMESTAMPTZ}:
        return timestamp_from_text(text, zone if oid == postgres.TIMESTAMPTZ else None)
    reader = _TEXTS.get(oid)
    return text if reader is None else reader(text)


def _integer(oid: int, text: str) -> int:
    kind, bits = _INTEGERS[oid]
    if len(text) > _LONGEST_NUMBER or not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text, re.ASCII):
        raise bad_text(postgres.type_name(oid), text)
    number = int(text)
    low, high = (0, 1 << bits) if kind.isupper() else (-(1 << bits - 1), 1 << bits - 1)
    if not low <= number < high:
        raise out_of_range(postgres.type_name(oid), text)
    return number


def _bool(text: str) -> bool:
    word = text.strip(BLANKS).lower()
    # PostgreSQL takes what begins like one of the words, if it begins like one only.
    if word and any(each.startswith(word) for each in _TRUE) and word != "o":
        return True
    if word and any(each.startswith(word) for each in _FALSE) and word != "o":
        return False
    raise bad_text("boolean", text)


def _float(text: str) -> float:
    word = text.strip(BLANKS).lower()
    if _UNUSUAL.fullmatch(word):
        return float(word)
    if not _NUMBER.fullmatch(word):
        raise bad_text("double precision", text)
    number = float(word)
    if math.isinf(number) or (number == 0 and re.search("[1-9]", word.partition("e")[0])):
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
    word = text.strip(BLANKS)
    if _UNUSUAL.fullmatch(word.lower()):
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
    postgres.BOOL: _bool,
    postgres.FLOAT4: _real,
    postgres.FLOAT8: _float,
    postgres.NUMERIC: _numeric,
    postgres.BYTEA: _bytea,
    postgres.UUID: _uuid,
    postgres.JSON: _json,
    postgres.JSONB: _json,
    postgres.DATE: date_from_text,
    postgres.TIME: time_from_text,
    postgres.INTERVAL: interval_from_text,
}


def _from_binary(oid: int, data: bytes) -> object:
    if oid in _INTEGERS:
        return _unpack(oid, ">" + _INTEGERS[oid][0], data)
    if oid in {postgres.TIMESTAMP, postgres.TIMESTAMPTZ}:
        return timestamp_from_binary(data, zoned=oid == postgres.TIMESTAMPTZ)
    if oid in _RANGES:
        return _range(_RANGES[oid], data)
    reader = _BINARIES.get(oid)
    if reader is None:
        if oid not in _AS_TEXT:
            raise unsupported(f"a parameter of type {postgres.type_name(oid)} in binary", "send it as text")
        return _text(data)
    return reader(data)


def _range(inner: int, data: bytes) -> str:
    """A range as PostgreSQL writes it: how it is bounded, then its bounds."""
    if not data:
        raise bad_binary("range")
    flags, at, bounds = data[0], 1, []
    if flags & _EMPTY:
        return "empty"
    for infinite in (_LOWER_INFINITE, _UPPER_INFINITE):
        if flags & infinite:
            bounds.append("")
            continue
        size = int(_unpack(postgres.INT4, ">i", data[at : at + 4]))
        if size < 0 or at + 4 + size > len(data):
            raise bad_binary("range")
        bounds.append(f'"{_from_binary(inner, data[at + 4 : at + 4 + size])}"')
        at += 4 + size
    if at != len(data):
        raise bad_binary("range")
    begin, end = "[" if flags & _LOWER_INCLUDED else "(", "]" if flags & _UPPER_INCLUDED else ")"
    return f"{begin}{bounds[0]},{bounds[1]}{end}"


def _timetz_binary(data: bytes) -> str:
    """A time with its zone, which is told in seconds west of Greenwich."""
    if len(data) != 12:
        raise bad_binary("time with time zone")
    moment, (west,) = time_from_binary(data[:8]), struct.unpack(">i", data[8:])
    sign, size = "-" if west > 0 else "+", abs(west)
    return f"{moment.isoformat()}{sign}{size // 3600:02}:{size // 60 % 60:02}:{size % 60:02}"


def _char_binary(data: bytes) -> str:
    """One byte; those that are no letters as PostgreSQL writes them."""
    if len(data) != 1:
        raise bad_binary('"char"')
    return "" if data == b"\0" else data.decode() if data[0] < 128 else f"\\{data[0]:03o}"


def _unpack(oid: int, form: str, data: bytes) -> int | float:
    if len(data) != struct.calcsize(form):
        raise bad_binary(postgres.type_name(oid))
    value: int | float = struct.unpack(form, data)[0]
    return value


def _bool_binary(data: bytes) -> bool:
    return bool(_unpack(postgres.BOOL, "b", data))


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


_EMPTY, _LOWER_INCLUDED, _UPPER_INCLUDED, _LOWER_INFINITE, _UPPER_INFINITE = 1, 2, 4, 8, 16
_RANGES = {
    postgres.INT4RANGE: postgres.INT4,
    postgres.INT8RANGE: postgres.INT8,
    postgres.NUMRANGE: postgres.NUMERIC,
    postgres.DATERANGE: postgres.DATE,
    postgres.TSRANGE: postgres.TIMESTAMP,
    postgres.TSTZRANGE: postgres.TIMESTAMPTZ,
}
_AS_TEXT = frozenset(
    {0, postgres.TEXT, postgres.VARCHAR, postgres.BPCHAR, postgres.NAME, postgres.UNKNOWN, postgres.XML}
)
"""Types whose binary form is their text."""
_BINARIES: dict[int, Callable[[bytes], object]] = {
    postgres.BOOL: _bool_binary,
    postgres.FLOAT4: lambda data: _unpack(postgres.FLOAT4, ">f", data),
    postgres.FLOAT8: lambda data: _unpack(postgres.FLOAT8, ">d", data),
    postgres.NUMERIC: _numeric_binary,
    postgres.BYTEA: bytes,
    postgres.UUID: _uuid_binary,
    postgres.JSON: lambda data: _json(_text(data)),
    postgres.JSONB: _jsonb_binary,
    postgres.DATE: date_from_binary,
    postgres.TIME: time_from_binary,
    postgres.TIMETZ: _timetz_binary,
    postgres.CHAR: _char_binary,
    postgres.INTERVAL: interval_from_binary,
}
