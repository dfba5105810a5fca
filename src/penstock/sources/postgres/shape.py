"""Whether a table of PostgreSQL can be read as it was declared, and in the order of its key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from penstock.errors import InputError, TypeMismatch
from penstock.sources.postgres.client import psycopg_package, relation
from penstock.types.postgres import gives

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composable

    from penstock.sources.postgres.source import PostgresSource
    from penstock.types.tables import Field

KEYS: dict[str, Callable[[str], Any]] = {
    "int2": int,
    "int4": int,
    "int8": int,
    "numeric": Decimal,
    "text": str,
    "varchar": str,
    "uuid": UUID,
    "timestamptz": datetime.fromisoformat,
}
"""Types of PostgreSQL that a key's columns can have, and how their text becomes a state."""

_ZONELESS = (
    "say what its times mean: Annotated[datetime, Timestamp(zone='Europe/Berlin')] for local times of a "
    "place, Timestamp(naive=True) for times without a zone"
)
_SHAPE = """
SELECT c.relkind::text, a.attname, t.typname, t.typcategory::text, a.attnotnull,
       format_type(a.atttypid, a.atttypmod)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
WHERE c.oid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_IS_UNIQUE = """
SELECT EXISTS (
  SELECT FROM pg_index i WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid
    AND i.indpred IS NULL AND i.indexprs IS NULL
    AND (SELECT bool_and(a.attname::text = ANY(%s)) FROM generate_series(0, i.indnkeyatts - 1) n
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n]))
"""
_CACHED = """
SELECT s.seqrelid::regclass::text FROM pg_sequence s
WHERE s.seqrelid = pg_get_serial_sequence(%s, %s)::regclass AND s.seqcache > 1
"""


@dataclass(frozen=True, slots=True)
class PostgresShape:
    """What was learned about the table when the connection was made."""

    columns: tuple[Composable, ...]
    schema: pa.Schema
    key_types: tuple[str, ...]
    local: frozenset[str] = frozenset()
    """Columns of times without a zone, which are local times of their field's zone."""


def shape_of(source: PostgresSource, connection: psycopg.Connection[Any]) -> PostgresShape:
    """Check that the table can be read as it was declared."""
    name = relation(source.name).as_string(connection)
    found = connection.execute(_SHAPE, [name]).fetchall()
    if not found:
        raise InputError(
            f"{source!r}: there is no table {source.name}, or this user cannot see it",
            hint="give the schema too, as in 'shop.orders'",
        )
    columns = {column: (kind, category, full) for _, column, kind, category, _, full in found}
    for wanted in [*source.key, *source.table.input_schema().names]:
        if wanted not in columns:
            raise InputError(
                f"{source!r}: {source.name} has no column {wanted!r}",
                hint=f"columns of {source.name}: {', '.join(columns)}",
            )
    fields = [each for each in source.table.__fields__.values() if not each.derived]
    selected = tuple(_selected(source, field, *columns[field.name]) for field in fields)
    _check_key(source, connection, name, found)
    types = tuple(columns[each][0] for each in source.key)
    local = frozenset(f.name for f in fields if f.zone and columns[f.name][0] == "timestamp")
    return PostgresShape(selected, source.table.input_schema(), types, local)


def _selected(source: PostgresSource, field: Field, kind: str, category: str, full: str) -> Composable:
    """The column as it is fetched, if values of its type fit the field."""
    sql = psycopg_package().sql
    column = sql.Identifier(field.name)
    is_local = field.zone is not None and kind == "timestamp"
    if not (is_local or gives(kind, category, field.type)):
        raise TypeMismatch(
            f"{source!r}: column {field.name} is {full} in PostgreSQL, "
            f"and {field} is declared as {field.type}",
            hint=_ZONELESS
            if kind == "timestamp" and pa.types.is_timestamp(field.type)
            else "declare the field with the type that fits, or cast the column in a view and read that",
        )
    fetched: Composable = sql.SQL("encode({}, 'hex')").format(column) if kind == "bytea" else column
    return fetched


def _check_key(
    source: PostgresSource, connection: psycopg.Connection[Any], name: str, found: Sequence[Any]
) -> None:
    relkind = found[0][0]
    for _, column, kind, _, is_not_null, full in found:
        if column not in source.key:
            continue
        if kind not in KEYS:
            raise TypeMismatch(
                f"{source!r}: the key {column} is {full}, which cannot be a key",
                hint=f"use a column of type {', '.join(KEYS)}",
            )
        if relkind in ("r", "p") and not is_not_null:
            raise InputError(
                f"{source!r}: the key {column} can be null, and rows without a key are never found",
                hint=f"ALTER TABLE {source.name} ALTER COLUMN {column} SET NOT NULL",
            )
    if relkind in ("r", "p") and not _one(connection, _IS_UNIQUE, [name, list(source.key)]):
        raise InputError(
            f"{source!r}: nothing makes the key ({', '.join(source.key)}) unique, "
            "and of rows with equal keys some could be left out",
            hint="add columns to the key until a unique index covers it, such as key=('created_at', 'id')",
        )
    if source.wait_for != "nothing":
        _check_order(source, connection, name, relkind)


def _check_order(
    source: PostgresSource, connection: psycopg.Connection[Any], name: str, relkind: str
) -> None:
    """Refuse where open transactions cannot be seen, or keys are taken without one."""
    vouch = "read the primary server; or wait_for='nothing', if rows are committed in the order of their keys"
    if relkind == "f" or _one(connection, "SELECT pg_is_in_recovery()", []):
        raise InputError(
            f"{source!r} is a replica or a foreign table: the transactions that write it cannot be seen",
            hint=vouch,
        )
    for column in source.key if relkind in ("r", "p") else ():
        if sequence := _one(connection, _CACHED, [name, column]):
            raise InputError(
                f"{source!r}: sequence {sequence} has a cache, so that sessions take keys out of order",
                hint=f"ALTER SEQUENCE {sequence} CACHE 1",
            )


def _one(connection: psycopg.Connection[Any], statement: str, values: Sequence[Any]) -> Any:
    row = connection.execute(statement, values).fetchone()
    return None if row is None else row[0]
