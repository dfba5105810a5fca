"""A table of PostgreSQL as a sink finds it: does it take the rows, and may we write to it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import StreamMismatch, UsageError
from penstock.types.arrow import NESTED, kind_of
from penstock.types.postgres import pg_ddl, takes

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import Connection
    from psycopg.sql import Composable, Composed, Identifier


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table that exists, by the schema that it is in."""

    schema: str
    name: str
    columns: Mapping[str, str]
    """The type of each, as PostgreSQL names it."""

    def beside(self, name: str) -> Identifier:
        """A table in the same schema."""
        from psycopg.sql import Identifier

        return Identifier(self.schema, name)

    @property
    def identifier(self) -> Identifier:
        return self.beside(self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def find(connection: Connection, name: str) -> PostgresTable | None:
    """The table of this name, with or without a schema before it."""
    row = connection.execute(
        "SELECT n.nspname, c.relname, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = to_regclass(%s)",
        [_quoted(name).as_string(connection)],
    ).fetchone()
    if row is None:
        return None
    found = connection.execute(
        "SELECT a.attname, t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
        " WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        [row[2]],
    )
    return PostgresTable(row[0], row[1], dict(found.fetchall()))


def create(connection: Connection, name: str, schema: pa.Schema, keys: Sequence[str]) -> None:
    """Make the table unless it is there."""
    from psycopg.sql import SQL, Identifier

    parts: list[Composable] = [SQL("{} {}").format(Identifier(f.name), SQL(_declared(f))) for f in schema]
    if keys:
        parts.append(SQL("PRIMARY KEY ({})").format(_listed(keys)))
    statement = SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(_quoted(name), SQL(", ").join(parts))
    _make(connection, statement)


def create_progress(connection: Connection, progress: Identifier) -> None:
    """Make the table of the progress unless it is there."""
    from psycopg.sql import SQL

    statement = SQL(
        "CREATE TABLE IF NOT EXISTS {} (application text PRIMARY KEY, batch bigint,"
        " epoch bigint NOT NULL, token bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())"
    )
    _make(connection, statement.format(progress))


def _make(connection: Connection, statement: Composed) -> None:
    """Run a CREATE … IF NOT EXISTS: if two do so at once, one of them may be told that it is there."""
    from psycopg.errors import DuplicateTable, UniqueViolation

    with suppress(DuplicateTable, UniqueViolation), connection.transaction():
        connection.execute(statement)


def check_columns(table: PostgresTable, schema: pa.Schema) -> None:
    """Raise `StreamMismatch` unless every field has a column that takes its values."""
    missing = [f.name for f in schema if f.name not in table.columns]
    wrong = [
        f"{f.name} is {table.columns[f.name]} there and {f.type} here"
        for f in schema
        if f.name in table.columns and not takes(table.columns[f.name], f.type)
    ]
    if missing or wrong:
        reasons = [f"it has no column {name}" for name in missing] + wrong
        raise StreamMismatch(
            f"the rows do not fit table {table}: {'; '.join(reasons)}",
            left="nothing was written",
            hint="change the table, or what the output declares",
        )


def check_rights(connection: Connection, table: PostgresTable, needed: Sequence[str]) -> None:
    """Raise `UsageError` unless we may do to the table what we must, and make others beside it."""
    name = table.identifier.as_string(connection)
    lacking = [
        right
        for right in needed
        if not _true(connection, "SELECT has_table_privilege(%s, %s)", [name, right])
    ]
    if lacking:
        raise UsageError(
            f"{table} cannot be written: the user lacks {', '.join(lacking)}",
            left="nothing was written",
            hint=f"GRANT {', '.join(needed)} ON {name} TO …",
        )
    if not _true(connection, "SELECT has_schema_privilege(%s, 'CREATE')", [table.schema]):
        raise UsageError(
            f"no tables can be made in schema {table.schema}, where batches are gathered",
            left="nothing was written",
            hint=f"GRANT CREATE ON SCHEMA {table.schema} TO …",
        )


def check_unique(connection: Connection, table: PostgresTable, keys: Sequence[str]) -> None:
    """Raise `UsageError` unless the table itself keeps the keys unique, which an upsert builds on."""
    rows = connection.execute(
        "SELECT array_agg(a.attname::text) FROM pg_index i"
        " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1])"
        " WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indimmediate AND i.indisvalid"
        " AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid",
        [table.identifier.as_string(connection)],
    ).fetchall()
    if not any(set(row[0]) == set(keys) for row in rows):
        listed = _listed(keys).as_string(connection)
        raise UsageError(
            f"{table} has no unique index on ({', '.join(keys)}), by which rows could be replaced",
            left="nothing was written",
            hint=f"CREATE UNIQUE INDEX ON {table.identifier.as_string(connection)} ({listed})",
        )


def _true(connection: Connection, query: str, values: Sequence[Any]) -> bool:
    row = connection.execute(query.encode(), values).fetchone()
    return bool(row and row[0])


def _quoted(name: str) -> Identifier:
    from psycopg.sql import Identifier

    return Identifier(*name.split(".", 1))


def _listed(names: Sequence[str]) -> Composable:
    from psycopg.sql import SQL, Identifier

    return SQL(", ").join(map(Identifier, names))


def _declared(one: pa.Field) -> str:
    kind = "jsonb" if kind_of(one.type) in NESTED else pg_ddl(one.type)
    return f"{kind}{'' if one.nullable else ' NOT NULL'}"
