"""PostgreSQL: a batch is gathered in a table beside, and moved over in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.config import shown_url
from penstock.core.packages import need
from penstock.errors import UsageError
from penstock.sinks.base import Mode, Sink, Target, Writer
from penstock.sinks.postgres import table as postgres_table
from penstock.sinks.postgres.errors import connected
from penstock.sinks.postgres.writer import PROGRESS, PostgresWriter


@dataclass(frozen=True, slots=True)
class PostgresSink(Sink):
    """Rows of a table in PostgreSQL, exactly once.

    With keys (in mode ``update`` those of the output, unless others are named) a row replaces the one that
    has its key; without, rows are added. In mode ``complete``, each batch replaces everything in the table.
    ``table_name`` may have a schema before it. ``create`` makes the table if it is not there.

    Two rows of one batch with the same key are refused, since rows have no order that would say which one
    is to stay. Tasks open at most ``connections`` connections at once, and each of them can reach the
    server; a password that is not in the URL is looked for where libpq does, on their machines.
    """

    url: str = field(repr=False)
    table_name: str
    keys: tuple[str, ...] = ()
    create: bool = False
    connections: int = 4

    exactly_once: ClassVar[bool] = True
    modes: ClassVar[frozenset[Mode]] = frozenset({"append", "update", "complete"})

    def __post_init__(self) -> None:
        need("postgres", "a PostgresSink")
        if not self.url.startswith(("postgresql://", "postgres://")):
            raise UsageError(
                "the URL of a PostgresSink does not begin with postgresql://",
                hint="write postgresql://user:password@host:5432/database",
            )
        if self.connections < 1:
            raise UsageError(f"connections={self.connections} cannot bring any rows", hint="give at least 1")

    def open(self, target: Target) -> Writer:
        keys = self.keys or (target.keys if target.mode == "update" else ())
        self._check_keys(target, keys)
        schema = target.table.arrow_schema()
        if self.create:
            with connected(self.url) as connection:
                postgres_table.create(connection, self.table_name, schema, keys)
        with connected(self.url) as connection:
            table = postgres_table.find(connection, self.table_name)
            if table is None:
                raise UsageError(
                    f"there is no table {self.table_name} at {shown_url(self.url)}",
                    hint="create it, or let the sink do it: PostgresSink(…, create=True)",
                )
            postgres_table.check_columns(table, schema)
            postgres_table.check_rights(connection, table, _rights(target.mode, keys))
            if keys:
                postgres_table.check_unique(connection, table, keys)
            postgres_table.create_progress(connection, table.beside(PROGRESS))
        # Each step is a transaction of its own: while one waits for its own row, no other output does.
        writer = PostgresWriter(self.url, target, table, keys, self.connections)
        writer.fence()
        writer.clean()
        return writer

    def describe(self) -> dict[str, str]:
        keys = {"keys": ", ".join(self.keys)} if self.keys else {}
        return {"kind": "postgres", "url": shown_url(self.url), "table": self.table_name, **keys}

    def _check_keys(self, target: Target, keys: Sequence[str]) -> None:
        fields = target.table.__fields__
        if target.mode == "update" and not keys:
            raise UsageError(
                f"output {target.output} updates rows, but nothing says which fields identify one",
                hint="name its keys",
            )
        for key in keys:
            if key not in fields:
                raise UsageError(f"key {key!r} is no field of {target.table.__table_name__}")
            if fields[key].nullable:
                raise UsageError(
                    f"key {key!r} may be null, and PostgreSQL holds no null to be equal to another",
                    hint=f"declare {key} without `| None`, or name other keys",
                )


def _rights(mode: Mode, keys: Sequence[str]) -> list[str]:
    rights = ["SELECT", "INSERT"]
    if keys:
        rights.append("UPDATE")
    if mode == "complete":
        rights.append("DELETE")
    return rights
