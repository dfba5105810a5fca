"""The catalog's part of the tables: its statements, built as they come."""

from __future__ import annotations

from collections.abc import Set
from functools import partial

from penstock.control.catalog import Handler, Statement, StatementKind
from penstock.server.base import PUBLIC, User
from penstock.server.relations.ddl.planning import SpecMaker
from penstock.server.relations.relation import Key
from penstock.server.relations.spark_tables import SparkTables
from penstock.server.relations.spec import Spec, decode

_KINDS = {StatementKind.TABLE: "table", StatementKind.VIEW: "view"}
_ADMIN = User("penstock", admin=True)


class Catalogued(Handler):
    """Makes tables of what the catalog says. It never fails: what cannot be built is kept as broken.

    Sources, streams and sinks are left to others. What the configuration has wins over the catalog.
    """

    def __init__(self, spark_tables: SparkTables, planner: SpecMaker, configured: Set[Key]) -> None:
        self._spark_tables, self._planner, self._configured = spark_tables, planner, configured
        self.schemas: dict[str, str] = {}
        """Schemas that were created, and their names in the catalog."""
        self.changes = 0
        """Grows with each change of schemas; the tables count their own."""

    def build(self, statement: Statement) -> None:
        if statement.kind is StatementKind.SCHEMA:
            self.schemas = {**self.schemas, statement.name: statement.name}
            self.changes += 1
        elif self._is_ours(statement):
            make = partial(self._spec, statement)
            self._spark_tables.put(key_of(statement.name), _KINDS[statement.kind], make, statement.name)

    def drop(self, statement: Statement) -> None:
        if statement.kind is StatementKind.SCHEMA:
            self.schemas = {name: each for name, each in self.schemas.items() if each != statement.name}
            self.changes += 1
        elif self._is_ours(statement):
            self._spark_tables.remove(key_of(statement.name))

    def _is_ours(self, statement: Statement) -> bool:
        return statement.kind in _KINDS and key_of(statement.name) not in self._configured

    def _spec(self, statement: Statement) -> Spec:
        return self._planner.opened(decode(statement.sql) or self._planner.written(statement.sql, _ADMIN))


def key_of(statement: str) -> Key:
    """What a name of the catalog is in SQL: one without a schema stands in the usual one."""
    schema, dot, name = statement.partition(".")
    return (schema, name) if dot else (PUBLIC, schema)
