"""Values of SQL's own EXECUTE, and the types that PREPARE names."""

from __future__ import annotations

import re

from penstock.errors import SqlError
from penstock.gateway import types
from penstock.gateway.base import Connection
from penstock.gateway.pgwire.values import decode

_LONGEST_NAME = 200
_STRING = re.compile(r"'((?:[^']|'')*)'")
_NUMBER = re.compile(r"[+-]?\s*(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NAMES = {
    "bool": types.BOOL,
    "char": types.BPCHAR,
    "decimal": types.NUMERIC,
    "double": types.FLOAT8,
    "float": types.FLOAT8,
    "float4": types.FLOAT4,
    "float8": types.FLOAT8,
    "int": types.INT4,
    "int2": types.INT2,
    "int4": types.INT4,
    "int8": types.INT8,
    "string": types.TEXT,
    "time": types.TIME,
    "timestamp": types.TIMESTAMP,
    "timestamptz": types.TIMESTAMPTZ,
    "unknown": 0,
    "varchar": types.VARCHAR,
}
_KNOWN = (
    types.BOOL,
    types.BYTEA,
    types.NAME,
    types.INT8,
    types.INT2,
    types.INT4,
    types.TEXT,
    types.OID,
    types.JSON,
    types.FLOAT4,
    types.FLOAT8,
    types.BPCHAR,
    types.VARCHAR,
    types.DATE,
    types.TIME,
    types.TIMESTAMP,
    types.TIMESTAMPTZ,
    types.INTERVAL,
    types.NUMERIC,
    types.UUID,
    types.JSONB,
)
_OIDS = {**{types.type_name(oid): oid for oid in _KNOWN}, **_NAMES}


def type_oid(name: str) -> int:
    """The type that a name means; a precision is left aside, since parameters have none."""
    if len(name) > _LONGEST_NAME:
        raise SqlError(f'type "{name[:_LONGEST_NAME]}…" does not exist', sqlstate="42704")
    plain = " ".join(re.sub(r"\([^)]*\)", " ", name).replace('"', "").lower().split())
    plain = plain.removeprefix("pg_catalog.")
    inner = re.sub(r"\s*(\[\d*\])+$| array$", "", plain)
    oid = _OIDS.get(inner)
    found = oid if oid is None or inner == plain else types.array_of(oid)
    if found is None:
        raise SqlError(f'type "{name}" does not exist', sqlstate="42704")
    return found


def evaluate(expression: str, oid: int, connection: Connection) -> object:
    """The value of an argument: literals are read here, anything else is asked of the engine."""
    text = expression.strip()
    folded = text.lower()
    if folded == "null":
        return None
    wanted = oid or types.TEXT
    string = _STRING.fullmatch(text)
    if string is not None:
        return decode(wanted, 0, string[1].replace("''", "'").encode())
    if _NUMBER.fullmatch(text) or folded in ("true", "false"):
        return decode(wanted, 0, re.sub(r"\s", "", folded).encode())
    prepared = connection.prepare(f"SELECT CAST(({text}) AS {types.type_name(wanted)})")
    execution = connection.execute(prepared)
    try:
        for batch in execution.batches():
            if batch.num_rows:
                value: object = batch.column(0)[0].as_py()
                return value
    finally:
        execution.close()
    return None
