"""Parameters of a statement: JSON values as the types that the statement wants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from penstock.errors import SqlError
from penstock.types import postgres

_TEXTS = frozenset(
    {postgres.TEXT, postgres.VARCHAR, postgres.BPCHAR, postgres.NAME, postgres.CHAR, postgres.UNKNOWN, 0}
)
_INTEGERS = {postgres.INT2: 15, postgres.INT4: 31, postgres.INT8: 63, postgres.OID: 32}
_FLOATS = frozenset({postgres.FLOAT4, postgres.FLOAT8})
_JSONS = frozenset({postgres.JSON, postgres.JSONB})
_MOST_DIGITS = 1000


def convert(oids: Sequence[int], given: Sequence[Any]) -> list[object]:
    """Values for ``$1``, ``$2`` …; raises `SqlError` where one does not fit."""
    if len(oids) != len(given):
        raise SqlError(
            f"the statement has {len(oids)} parameters, and {len(given)} values are given",
            sqlstate="08P01",
            hint="give one value for each of $1, $2 …",
        )
    return [_value(oid, value, n) for n, (oid, value) in enumerate(zip(oids, given, strict=True), 1)]


def _value(oid: int, value: Any, number: int) -> object:
    if value is None:
        return None
    if oid in _JSONS:
        return value if isinstance(value, str) else json.dumps(value, default=float)
    inner = postgres.element(oid)
    if inner is not None and isinstance(value, list):
        return [_value(inner, each, number) for each in value]
    if isinstance(value, list | dict):
        raise _wrong(oid, number)
    if isinstance(value, str):
        return value if oid in _TEXTS else _parsed(oid, value)
    if isinstance(value, bool):
        return _of_bool(oid, value, number)
    return _of_number(oid, value, number)


def _of_bool(oid: int, value: bool, number: int) -> object:
    if oid == postgres.BOOL:
        return value
    if oid in _TEXTS:
        return "true" if value else "false"
    raise _wrong(oid, number)


def _of_number(oid: int, value: int | Decimal, number: int) -> object:
    if isinstance(value, Decimal) and abs(value.adjusted()) > _MOST_DIGITS:
        # 1e999999999 is twelve letters, and a gigabyte once it is written out.
        raise SqlError(f"parameter ${number} is out of range", sqlstate="22003")
    if oid in _TEXTS:
        return str(value)
    if oid == postgres.NUMERIC:
        return Decimal(value)
    if oid in _FLOATS:
        return float(value)
    bits = _INTEGERS.get(oid)
    if bits is None or value != int(value):
        raise _wrong(oid, number)
    if not -(2**bits) <= value < 2**bits:
        raise SqlError(f"parameter ${number} is out of range for {postgres.type_name(oid)}", sqlstate="22003")
    return int(value)


def _parsed(oid: int, text: str) -> object:
    """A text as PostgreSQL reads it: dates, times, uuids and numbers that JSON cannot hold."""
    from penstock.server.pgwire.decode.values import decode

    return decode(oid, 0, text.encode())


def _wrong(oid: int, number: int) -> SqlError:
    return SqlError(
        f"parameter ${number} must be of type {postgres.type_name(oid)}",
        sqlstate="22P02",
        hint="give it as a JSON value of that type, or as a text that PostgreSQL would read",
    )
