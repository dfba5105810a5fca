"""Changes of the catalog, one by one: who may make them, and what it means if the catalog refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.control.catalog import Catalog, Create, StatementKind
from penstock.control.catalog import Drop as DropStatement
from penstock.control.catalog.rules import dependents as dependents_of
from penstock.errors import CatalogConflict, DuplicateName, SqlError, TerminalError
from penstock.server.base import User
from penstock.server.relations.entry import TableEntry
from penstock.server.relations.relation import Key
from penstock.server.relations.spec import Spec, ViewSpec

if TYPE_CHECKING:
    from penstock.server.relations.relations import Tables


class CatalogEdits:
    """Checks and makes single changes of the catalog that the tables follow."""

    def __init__(self, tables: Tables, catalog: Catalog) -> None:
        self._tables, self._catalog = tables, catalog

    def check_writable(self, schema: str, user: User) -> None:
        if not user.may_write(schema):
            raise SqlError(f"permission denied for schema {schema}", sqlstate="42501")
        if not self._tables.has_schema(schema) and self._tables.is_taken(schema):
            raise SqlError(
                f"permission denied for schema {schema}: it belongs to the system, a run or a stream",
                hint="make it in another schema",
                sqlstate="42501",
            )

    def check_droppable(self, entry: TableEntry, kind: str, user: User) -> None:
        self.check_writable(entry.key[0], user)
        if entry.kind != kind:
            raise SqlError(
                f'"{entry.key[1]}" is not a {kind}',
                hint=f"Use DROP {entry.kind.upper()} to remove a {entry.kind}.",
                sqlstate="42809",
            )
        if not entry.statement:
            raise SqlError(
                f"permission denied for table {entry.key[1]}: it stands in the configuration",
                hint="take it out of [[tables]] in penstock.toml",
                sqlstate="42501",
            )

    def check_only_sql(self, statements: Sequence[str]) -> None:
        """What streams need is not taken from under them by a cascade."""
        entries = self._catalog.head().entries
        for statement in statements:
            for each in dependents_of(entries, statement):
                if each.kind not in (StatementKind.TABLE, StatementKind.VIEW, StatementKind.SCHEMA):
                    raise needed(
                        statement,
                        f"{each.kind} {each.name} depends on it",
                        f"drop it first: penstock catalog drop {each.name}",
                    )

    def needs(self, key: Key, spec: Spec) -> tuple[str, ...]:
        """The statements of the catalog that must be there before: what a view reads, and the schema."""
        keys = spec.needs if isinstance(spec, ViewSpec) else ()
        entries = [self._tables.entry(each) for each in keys]
        schemas = [self._tables.schema_statement(schema) for schema in (key[0], *(each[0] for each in keys))]
        every = [*(schemas), *(entry.statement for entry in entries if entry is not None)]
        return tuple(dict.fromkeys(each for each in every if each))

    def apply(self, change: Create | DropStatement, user: User, *, missing_ok: bool = False) -> None:
        try:
            self._catalog.change(change, by=user.name)
        except DuplicateName as error:
            raise SqlError(
                error.what, hint="choose another name, or drop it first", sqlstate="42P07"
            ) from error
        except CatalogConflict as error:
            raise SqlError(error.what, hint="try again", sqlstate="40001") from error
        except TerminalError as error:
            # What a cascade has taken along already need not go again.
            if missing_ok and isinstance(change, DropStatement) and self._catalog.find(change.name) is None:
                return
            raise SqlError(error.what, hint=error.hint, sqlstate=self._state(change)) from error
        finally:
            self._tables.catch_up()

    def _state(self, change: Create | DropStatement) -> str:
        """Why the catalog refuses what looked right a moment ago."""
        if isinstance(change, DropStatement):
            return "2BP01"
        head = self._catalog.head()
        gone = any(head.find(need) is None for need in change.statement.needs)
        return "42P01" if gone else "42P17"


def needed(
    what: str, who: str, hint: str = "Use DROP ... CASCADE to drop the dependent objects too."
) -> SqlError:
    return SqlError(
        f"cannot drop {what} because other objects depend on it",
        left=who,
        hint=hint,
        sqlstate="2BP01",
    )
