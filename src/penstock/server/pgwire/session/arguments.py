"""Values of SQL's own EXECUTE, and the types that PREPARE names."""

from __future__ import annotations

import re

from penstock.errors import SqlError
from penstock.server.base import Connection
from penstock.server.pgwire.decode.values import decode
from penstock.types import postgres

_LONGEST_NAME = 200
_STRING = re.compile(r"'((?:[^']|'')*)'")
_NUMBER = re.compile(r"[+-]?\s*(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_OIDS = {
    **postgres.OIDS,
    "decimal": postgres.NUMERIC,
    "double": postgres.FLOAT8,
    "float": postgres.FLOAT8,
    "int": postgres.INT4,
    "string": postgres.TEXT,
    "unknown": 0,
}


def type_oid(name: str) -> int:
    """The type that a name means; a precision is left aside, since parameters have none."""
    if len(name) > _LONGEST_NAME:
        raise SqlError(f'type "{name[:_LONGEST_NAME]}…" does not exist', sqlstate="42704")
    plain = " ".join(re.sub(r"\([^)]*\)", " ", name).replace('"', "").lower().split())
    plain = plain.removeprefix("pg_catalog.")
    inner = re.sub(r"\s*(\[\d*\])+$| array$", "", plain)
    oid = _OIDS.get(inner)
    found = oid if oid is None or inner == plain else postgres.array_of(oid)
    if found is None:
        raise SqlError(f'type "{name}" does not exist', sqlstate="42704")
    return found


def evaluate(expression: str, oid: int, connection: Connection) -> object:
    """The value of an argument: literals are read here, anything else is asked of the engine."""
    text = expression.strip()
    folded = text.lower()
    if folded == "null":
        return None
    wanted = oid or postgres.TEXT
    string = _STRING.fullmatch(text)
    if string is not None:
        return decode(wanted, 0, string[1].replace("''", "'").encode())
    if _NUMBER.fullmatch(text) or folded in ("true", "false"):
        return decode(wanted, 0, re.sub(r"\s", "", folded).encode())
    prepared = connection.prepare(f"SELECT CAST(({text}) AS {postgres.type_name(wanted)})")
    execution = connection.execute(prepared)
    try:
        for batch in execution.batches():
            if batch.num_rows:
                value: object = batch.column(0)[0].as_py()
                return value
    finally:
        execution.close()
    return None
