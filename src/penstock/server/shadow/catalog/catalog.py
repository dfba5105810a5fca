"""Keeps the shadow's relations and roles equal to what they stand for, with the owner's own connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from penstock.errors import SqlError
from penstock.server.base import PUBLIC, TableInfo, User
from penstock.server.shadow.catalog import definitions, dependencies, roles, twins
from penstock.server.shadow.postgres.link import Link
from penstock.server.shadow.postgres.setup import OWNER

_LOG = logging.getLogger(__name__)
_TOGETHER = 100
"""Statements sent at once."""
_VACUUM_AFTER = 500
_VACUUM = "VACUUM (ANALYZE) " + ", ".join(
    f"pg_catalog.{name}"
    for name in (
        "pg_class",
        "pg_attribute",
        "pg_type",
        "pg_depend",
        "pg_shdepend",
        "pg_rewrite",
        "pg_view_text",
        "pg_auth_members",
    )
)
_LOCK_TIMEOUT = "55P03"
_BLOCKERS = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM (
    SELECT DISTINCT pid FROM pg_catalog.pg_locks
    WHERE locktype = 'relation' AND relation >= 16384 AND pid <> pg_catalog.pg_backend_pid()
) AS holders
"""


class ShadowCatalog:
    """What the server holds, as this process knows it. Not thread-safe: its owner holds a lock."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect
        self._link: Link | None = None
        self._twins: dict[tuple[str, str], twins.Twin] = {}
        self._definitions: dict[tuple[str, str], str] = {}
        self._reading: set[dependencies.Pair] = set()
        self._schemas: frozenset[str] = frozenset()
        self._system: frozenset[str] = frozenset()
        self._roles: dict[str, frozenset[str]] = {}
        self._changed = 0

    def forget(self) -> None:
        """The server is another: what is known about it must be read anew."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def sync(
        self, tables: Sequence[TableInfo], users: Sequence[User], schemas: Iterable[str]
    ) -> tuple[int, set[str]]:
        """Make it so, in one transaction. Tells how many statements it took, and which roles are gone."""
        link = self._owner()
        target = twins.wanted(tables)
        names = {twins.fit(schema) for schema in schemas if twins.possible(schema)}
        names |= {PUBLIC} | {schema for schema, _ in target}
        before = [((name, ""), twins.create_schema(name, OWNER)) for name in sorted(names - self._schemas)]
        between = list(twins.changes(self._twins, target))
        changed = {path for path, _ in between}
        pairs = dependencies.wanted(tables, target)
        between = [
            *dependencies.removed(self._reading, pairs, changed),
            *between,
            *dependencies.added(self._reading, pairs, changed),
            *definitions.changes(self._definitions, definitions.wanted(tables)),
        ]
        self._system = frozenset(twin.schema for twin in target.values() if twin.system)
        people = [roles.role_of(user, names, self._system) for user in users]
        gone = set(self._roles) - {role.name for role in people}
        after = [((name, ""), twins.drop_schema(name)) for name in sorted(self._schemas - names)]
        granted = [(("", ""), statement) for statement in roles.changes(self._roles, people)]
        granted += [(("", ""), roles.drop(name)) for name in sorted(gone)]
        # Memberships end with the group, so roles come before schemas that go.
        statements = [*before, *between, *granted, *after]
        if not statements:
            return 0, set()
        self._change(link, statements)
        self._changed += len(between)
        self._read(link)
        if self._changed >= _VACUUM_AFTER:
            # Nothing else does: autovacuum would be a process that is always there.
            link.execute(_VACUUM)
            self._changed = 0
        return len(statements), gone

    def admit(self, user: User) -> str:
        """The role of a user, who need not have been there at the last `sync`."""
        link = self._owner()
        role = roles.role_of(user, self._schemas, self._system)
        for statement in roles.changes(self._roles, [role]):
            link.execute(statement)
        self._roles[role.name] = role.groups
        return role.name

    def known(self, user: User) -> str | None:
        """The role of a user, if nothing has to be done for it."""
        if self._link is None:
            return None
        role = roles.role_of(user, self._schemas, self._system)
        return role.name if self._roles.get(role.name) == role.groups else None

    def _owner(self) -> Link:
        if self._link is not None and self._link.usable:
            return self._link
        self.forget()
        link = self._connect()
        self._read(link)
        self._link = link
        return link

    def _read(self, link: Link) -> None:
        self._twins = twins.present_from(link.execute(twins.PRESENT))
        self._definitions = definitions.present_from(link.execute(definitions.PRESENT))
        self._reading = dependencies.present_from(link.execute(dependencies.PRESENT))
        self._schemas = frozenset(str(name) for (name,) in link.execute(twins.SCHEMAS))
        self._roles = roles.present_from(link.execute(roles.PRESENT))

    def _change(self, link: Link, statements: Sequence[tuple[tuple[str, str], str]]) -> None:
        try:
            self._at_once(link, [statement for _, statement in statements])
        except SqlError as error:
            link.execute("ROLLBACK")
            if error.sqlstate == _LOCK_TIMEOUT:
                # Somebody reads a twin and does not take the answer. Everybody else waits for us.
                link.execute(_BLOCKERS)
                self._at_once(link, [statement for _, statement in statements])
            else:
                self._one_by_one(link, statements)

    @staticmethod
    def _at_once(link: Link, statements: Sequence[str]) -> None:
        link.execute("BEGIN; SET LOCAL lock_timeout = '1s'; SET LOCAL allow_system_table_mods = on")
        for start in range(0, len(statements), _TOGETHER):
            link.execute("; ".join(statements[start : start + _TOGETHER]))
        link.execute("COMMIT")

    @staticmethod
    def _one_by_one(link: Link, statements: Sequence[tuple[tuple[str, str], str]]) -> None:
        """One that PostgreSQL refuses is left out; the others must be there."""
        link.execute("BEGIN; SET LOCAL lock_timeout = '1s'; SET LOCAL allow_system_table_mods = on")
        for (schema, name), statement in statements:
            try:
                link.execute(f"SAVEPOINT one; {statement}; RELEASE one")
            except SqlError as error:
                link.execute("ROLLBACK TO one; RELEASE one")
                _LOG.warning("%s.%s is not in the shadow catalog: %s", schema, name, error.what)
        link.execute("COMMIT")
