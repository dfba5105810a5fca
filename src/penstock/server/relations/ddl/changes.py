"""CREATE and DROP: what PostgreSQL would say, and the changes of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.catalog import Catalog, Create, Statement, StatementKind
from penstock.control.catalog import Drop as DropStatement
from penstock.control.catalog.sql import MAX_SQL
from penstock.errors import SqlError
from penstock.server.base import User
from penstock.server.relations import naming
from penstock.server.relations.ddl.edits import CatalogEdits, needed
from penstock.server.relations.ddl.planning import SpecMaker
from penstock.server.relations.entry import TableEntry, dependents
from penstock.server.relations.relation import Key
from penstock.server.relations.spec import Spec, ViewSpec, encode
from penstock.sql.statements.commands import CreateSchema, CreateTable, CreateView, Drop

if TYPE_CHECKING:
    from penstock.server.relations.relations import Tables


class CatalogChanges:
    """Carries out commands on the catalog that the tables follow."""

    def __init__(self, tables: Tables, catalog: Catalog, planner: SpecMaker) -> None:
        self._tables, self._planner, self._edits = tables, planner, CatalogEdits(tables, catalog)

    # CREATE

    def create(
        self,
        command: CreateView | CreateTable | CreateSchema,
        user: User,
        search_path: Sequence[str],
        columns: Sequence[str],
        dialect: str,
    ) -> list[str]:
        self._tables.catch_up()
        if isinstance(command, CreateSchema):
            return self._create_schema(command, user)
        if isinstance(command, CreateView) and command.temporary:
            raise SqlError(
                "temporary views are not supported",
                hint="use WITH, or create a view and drop it",
                sqlstate="0A000",
            )
        key = self._new_key(command.name, search_path, user)
        kind = StatementKind.VIEW if isinstance(command, CreateView) else StatementKind.TABLE
        replaces = isinstance(command, CreateView) and command.replace
        old = self._tables.entry(key)
        if old is not None:
            if command.if_not_exists:
                return [f'relation "{key[1]}" already exists, skipping']
            self._check_replaceable(old, kind, replaces)
        if isinstance(command, CreateView):
            spec: Spec = self._planner.view(command, user, search_path, columns, dialect)
        else:
            spec = self._planner.table(command, user)
        name = old.statement if old is not None else ".".join(key)
        statement = Statement(name, kind, _text(key, spec), self._edits.needs(key, spec))
        self._edits.apply(Create(statement, replaces), user)
        return []

    def _create_schema(self, command: CreateSchema, user: User) -> list[str]:
        name = naming.check_new(command.name)
        if name.startswith("pg_"):
            raise SqlError(
                f'unacceptable schema name "{name}"',
                hint='The prefix "pg_" is reserved for system schemas.',
                sqlstate="42939",
            )
        if not user.may_write(name):
            raise SqlError(
                "permission denied for database penstock",
                hint="the user needs the right to write",
                sqlstate="42501",
            )
        if self._tables.has_schema(name) or self._tables.is_taken(name):
            if command.if_not_exists:
                return [f'schema "{name}" already exists, skipping']
            raise SqlError(f'schema "{name}" already exists', sqlstate="42P06")
        self._edits.apply(
            Create(Statement(name, StatementKind.SCHEMA, f"CREATE SCHEMA {naming.backquoted(name)}")), user
        )
        return []

    def _new_key(self, path: Sequence[str], search_path: Sequence[str], user: User) -> Key:
        schema, name = naming.split(path)
        if schema is None:
            candidates = naming.effective(search_path, user.name)
            schema = next((each for each in candidates if self._tables.has_schema(each)), None)
            if schema is None:
                raise SqlError("no schema has been selected to create in", sqlstate="3F000")
        self._edits.check_writable(schema, user)
        if not self._tables.has_schema(schema):
            raise SqlError(
                f'schema "{schema}" does not exist', hint=f"CREATE SCHEMA {schema}", sqlstate="3F000"
            )
        return schema, naming.check_new(name)

    def _check_replaceable(self, old: TableEntry, kind: StatementKind, replaces: bool) -> None:
        if not replaces:
            raise SqlError(f'relation "{old.key[1]}" already exists', sqlstate="42P07")
        if old.kind != kind:
            raise SqlError(f'"{old.key[1]}" is not a view', sqlstate="42809")

    # DROP

    def drop(self, command: Drop, user: User, search_path: Sequence[str]) -> list[str]:
        self._tables.catch_up()
        if command.kind == "schema":
            return self._drop_schemas(command, user)
        notices: list[str] = []
        chosen: list[TableEntry] = []
        for path in command.names:
            entry = self._existing(command, path, search_path, user, notices)
            if entry is not None and entry not in chosen:
                chosen.append(entry)
        users = self._users(chosen)
        self._check_alone(chosen, users, command, user, notices)
        self._edits.check_only_sql([entry.statement for entry in (*chosen, *users)])
        # Those that others need go last.
        order = {entry.key: number for number, entry in enumerate(self._tables.entries())}
        for entry in sorted([*chosen, *users], key=lambda each: order.get(each.key, 0), reverse=True):
            self._edits.apply(DropStatement(entry.statement, cascade=command.cascade), user, missing_ok=True)
        return notices

    def _existing(
        self, command: Drop, path: Sequence[str], search_path: Sequence[str], user: User, notices: list[str]
    ) -> TableEntry | None:
        schema, name = naming.split(path)
        candidates = [schema] if schema is not None else naming.effective(search_path, user.name)
        found = [entry for each in candidates if (entry := self._tables.entry((each, name)))]
        if found:
            self._edits.check_droppable(found[0], command.kind, user)
            return found[0]
        if schema is not None:
            self._edits.check_writable(schema, user)
        shown = ".".join(path)
        if schema is not None and not self._tables.has_schema(schema):
            what, state = f'schema "{schema}" does not exist', "3F000"
        else:
            what, state = f'{command.kind} "{shown}" does not exist', "42P01"
        if not command.if_exists:
            raise SqlError(what, sqlstate=state)
        notices.append(f"{what}, skipping")
        return None

    def _users(self, chosen: Sequence[TableEntry]) -> list[TableEntry]:
        """Everything that reads the chosen entries, directly or not, and is not chosen itself."""
        entries, found, ahead = self._tables.entries(), list[TableEntry](), list(chosen)
        while ahead:
            for user in dependents(entries, ahead.pop().key):
                if user not in found and user not in chosen:
                    found.append(user)
                    ahead.append(user)
        return found

    def _check_alone(
        self,
        chosen: Sequence[TableEntry],
        users: Sequence[TableEntry],
        command: Drop,
        user: User,
        notices: list[str],
    ) -> None:
        for each in users:
            if not command.cascade:
                raise needed(f"{command.kind} {naming.shown(chosen[0].key)}", _read_by(each, chosen, users))
            self._edits.check_writable(each.key[0], user)
            notices.append(f"drop cascades to {each.kind} {naming.shown(each.key)}")

    def _drop_schemas(self, command: Drop, user: User) -> list[str]:
        notices: list[str] = []
        for path in command.names:
            schema = path[-1]
            self._edits.check_writable(schema, user)
            statement = self._tables.schema_statement(schema)
            if statement is not None:
                self._drop_schema(schema, statement, command, user, notices)
            elif self._tables.has_schema(schema):
                raise SqlError(
                    f"permission denied for schema {schema}: it is built in or configured", sqlstate="42501"
                )
            elif command.if_exists:
                notices.append(f'schema "{schema}" does not exist, skipping')
            else:
                raise SqlError(f'schema "{schema}" does not exist', sqlstate="3F000")
        return notices

    def _drop_schema(
        self, schema: str, statement: str, command: Drop, user: User, notices: list[str]
    ) -> None:
        inside = [entry for entry in self._tables.entries() if entry.key[0] == schema and entry.statement]
        gone = [*inside, *self._users(inside)]
        if gone and not command.cascade:
            first = gone[0]
            raise needed(
                f"schema {schema}", f"{first.kind} {naming.shown(first.key)} depends on schema {schema}"
            )
        for each in gone:
            self._edits.check_writable(each.key[0], user)
            notices.append(f"drop cascades to {each.kind} {naming.shown(each.key)}")
        self._edits.check_only_sql([statement])
        self._edits.apply(DropStatement(statement, cascade=command.cascade), user)


def _text(key: Key, spec: Spec) -> str:
    """The statement for the catalog; what is there for people alone must not make it too long."""
    text = encode(key, spec)
    if isinstance(spec, ViewSpec) and len(text.encode()) > MAX_SQL:
        text = encode(key, replace(spec, written=""))
    return text


def _read_by(user: TableEntry, chosen: Sequence[TableEntry], users: Sequence[TableEntry]) -> str:
    needs = user.spec.needs if isinstance(user.spec, ViewSpec) else ()
    read = next((each for each in (*chosen, *users) if each.key in needs), chosen[0])
    return f"{user.kind} {naming.shown(user.key)} depends on {read.kind} {naming.shown(read.key)}"
