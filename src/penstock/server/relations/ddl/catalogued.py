"""The catalog's part of the tables: its statements, built as they come."""

from __future__ import annotations

from collections.abc import Set
from functools import partial

from penstock.catalog import Handler, Kind, Statement
from penstock.gateway.base import PUBLIC, User
from penstock.gateway.tables.planning import Planner
from penstock.gateway.tables.relation import Key
from penstock.gateway.tables.shelf import Shelf
from penstock.gateway.tables.spec import Spec, decode

_KINDS = {Kind.TABLE: "table", Kind.VIEW: "view"}
_ADMIN = User("penstock", admin=True)


class Catalogued(Handler):
    """Puts what the catalog says onto the shelf. It never fails: what cannot be built is kept as broken.

    Sources, streams and sinks are left to others. What the configuration has wins over the catalog.
    """

    def __init__(self, shelf: Shelf, planner: Planner, configured: Set[Key]) -> None:
        self._shelf, self._planner, self._configured = shelf, planner, configured
        self.schemas: dict[str, str] = {}
        """Schemas that were created, and their names in the catalog."""
        self.changes = 0
        """Grows with each change of schemas; the shelf counts its own."""

    def build(self, statement: Statement) -> None:
        if statement.kind is Kind.SCHEMA:
            self.schemas = {**self.schemas, statement.name: statement.name}
            self.changes += 1
        elif self._is_ours(statement):
            make = partial(self._spec, statement)
            self._shelf.put(key_of(statement.name), _KINDS[statement.kind], make, statement.name)

    def drop(self, statement: Statement) -> None:
        if statement.kind is Kind.SCHEMA:
            self.schemas = {name: each for name, each in self.schemas.items() if each != statement.name}
            self.changes += 1
        elif self._is_ours(statement):
            self._shelf.remove(key_of(statement.name))

    def _is_ours(self, statement: Statement) -> bool:
        return statement.kind in _KINDS and key_of(statement.name) not in self._configured

    def _spec(self, statement: Statement) -> Spec:
        return self._planner.opened(decode(statement.sql) or self._planner.written(statement.sql, _ADMIN))


def key_of(statement: str) -> Key:
    """What a name of the catalog is in SQL: one without a schema stands in the usual one."""
    schema, dot, name = statement.partition(".")
    return (schema, name) if dot else (PUBLIC, schema)
