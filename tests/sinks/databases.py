"""A schema of its own for a test, in the PostgreSQL that all share."""

from __future__ import annotations

import secrets

import psycopg

from tests.sinks.support import Rows, plain

COLUMNS = "id bigint PRIMARY KEY, city text NOT NULL, amount integer"


class Database:
    """A schema of its own in the server of the tests."""

    def __init__(self, url: str) -> None:
        self.server = url
        self.schema = f"s{secrets.token_hex(4)}"
        self.url = f"{url}?options=-csearch_path%3D{self.schema}"
        self.run(f"CREATE SCHEMA {self.schema}")

    def run(self, statement: str) -> Rows:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return [tuple(row) for row in found.fetchall()] if found.description else []

    def rows(self, table: str = "sales") -> Rows:
        return plain(self.run(f"SELECT * FROM {table}"))

    def stages(self) -> int:
        found = self.run(
            f"SELECT 1 FROM pg_tables WHERE schemaname = '{self.schema}' AND tablename LIKE 'penstock_stage%'"
        )
        return len(found)
