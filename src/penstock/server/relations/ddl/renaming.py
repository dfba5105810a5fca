"""ALTER TABLE and ALTER VIEW with a new name, as a few changes of the catalog.

The new one is made, what reads the old one is told to read the new one, and the old one goes. Whoever dies in
between leaves both, which are the same: the statement can be said again after a DROP of the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.catalog import Catalog, Create, Statement, StatementKind
from penstock.control.catalog import Drop as DropStatement
from penstock.errors import SqlError
from penstock.server.base import User
from penstock.server.relations import naming
from penstock.server.relations.ddl.edits import CatalogEdits
from penstock.server.relations.ddl.planning import SpecMaker
from penstock.server.relations.entry import TableEntry, dependents
from penstock.server.relations.relation import Key
from penstock.server.relations.spec import Spec, ViewSpec, decode, encode, reference, resolved
from penstock.sql.statements.commands import Rename

if TYPE_CHECKING:
    from penstock.server.relations.relations import Tables


class Renames:
    """Gives tables and views of the catalog other names."""

    def __init__(self, tables: Tables, catalog: Catalog, planner: SpecMaker) -> None:
        self._tables, self._catalog, self._planner = tables, catalog, planner
        self._edits = CatalogEdits(tables, catalog)

    def rename(self, command: Rename, user: User, search_path: Sequence[str]) -> list[str]:
        self._tables.catch_up()
        old = self._named(command, user, search_path)
        if old is None:
            return [f'relation "{".".join(command.name)}" does not exist, skipping']
        new = old.key[0], naming.check_new(command.to)
        if self._tables.relation(new, user) is not None:
            raise SqlError(f'relation "{command.to}" already exists', sqlstate="42P07")
        readers = list(dependents(self._tables.entries(), old.key))
        for each in readers:
            self._edits.check_writable(each.key[0], user)
        self._edits.check_only_sql([old.statement])
        self._put(old, new, self._spec(old, user), user)
        for each in readers:
            self._put(each, each.key, _reading(self._spec(each, user), old.key, new), user, replaces=True)
        self._edits.apply(DropStatement(old.statement), user)
        return []

    def _named(self, command: Rename, user: User, search_path: Sequence[str]) -> TableEntry | None:
        schema, name = naming.split(command.name)
        candidates = [schema] if schema is not None else naming.effective(search_path, user.name)
        found = next((entry for each in candidates if (entry := self._tables.entry((each, name)))), None)
        if found is None:
            if command.if_exists:
                return None
            raise SqlError(f'relation "{".".join(command.name)}" does not exist', sqlstate="42P01")
        if command.kind == "view" != found.kind:
            raise SqlError(f'"{name}" is not a view', sqlstate="42809")
        self._edits.check_droppable(found, found.kind, user)
        return found

    def _spec(self, entry: TableEntry, user: User) -> Spec:
        """What the catalog says of it, with paths as they were written."""
        statement = self._catalog.find(entry.statement)
        if statement is None:
            raise SqlError(f'relation "{entry.key[1]}" does not exist', sqlstate="42P01")
        return decode(statement.sql) or self._planner.written(statement.sql, user)

    def _put(self, entry: TableEntry, key: Key, spec: Spec, user: User, *, replaces: bool = False) -> None:
        kind = StatementKind.VIEW if isinstance(spec, ViewSpec) else StatementKind.TABLE
        name = entry.statement if replaces else ".".join(key)
        statement = Statement(name, kind, encode(key, spec), self._edits.needs(key, spec))
        self._edits.apply(Create(statement, replaces), user)


def _reading(spec: Spec, old: Key, new: Key) -> Spec:
    """The view with one of its relations under another name. Its author wrote the old one: that text goes."""
    assert isinstance(spec, ViewSpec)
    query = resolved(spec.query, lambda key: reference(new) if key == old else None)
    needs = tuple(new if need == old else need for need in spec.needs)
    return replace(spec, query=query, needs=needs, written="")
