"""Users as roles: who there is, and which schemas each may read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.server.base import User
from penstock.server.shadow.catalog.twins import fit, group_of
from penstock.server.shadow.postgres.link import quoted
from penstock.server.shadow.postgres.setup import OWNER

_TAKEN = frozenset({OWNER, "public", "none"})


@dataclass(frozen=True, slots=True)
class Role:
    """A user as PostgreSQL knows it. ``groups`` are memberships, one for each schema that it may read."""

    name: str
    groups: frozenset[str]


def role_name(user: str) -> str:
    """The role of a user: the same name, unless PostgreSQL keeps it for itself."""
    name = fit(user, distinct=True)
    kept = not name or name in _TAKEN or name.startswith(("pg_", "~"))
    return fit(f"~{name}", distinct=True) if kept else name


def role_of(user: User, schemas: Iterable[str], system: Collection[str] = ()) -> Role:
    """``system`` are schemas of everybody: what is seen there is decided row by row."""
    readable = (schema for schema in schemas if schema in system or user.may_read(schema))
    return Role(role_name(user.name), frozenset(group_of(schema) for schema in readable))


def changes(present: Mapping[str, frozenset[str]], roles: Iterable[Role]) -> list[str]:
    """Statements that make these roles as they should be; others stay."""
    statements: list[str] = []
    for role in roles:
        had = present.get(role.name)
        if had is None:
            # What its groups may, it may; nothing is ever given to the role itself.
            statements.append(f"CREATE ROLE {quoted(role.name)} LOGIN")
        for group in sorted(role.groups - (had or frozenset())):
            statements.append(f"GRANT {quoted(group)} TO {quoted(role.name)}")
        for group in sorted((had or frozenset()) - role.groups):
            statements.append(f"REVOKE {quoted(group)} FROM {quoted(role.name)}")
    return statements


def drop(name: str) -> str:
    return f"DROP ROLE {quoted(name)}"


PRESENT = """
SELECT r.rolname, g.rolname
FROM pg_catalog.pg_roles r
LEFT JOIN pg_catalog.pg_auth_members m ON m.member = r.oid
LEFT JOIN pg_catalog.pg_roles g ON g.oid = m.roleid
WHERE r.rolcanlogin AND NOT r.rolsuper
"""


def present_from(rows: Iterable[list[str | None]]) -> dict[str, frozenset[str]]:
    """What is there, from the rows of `PRESENT`."""
    found: dict[str, set[str]] = {}
    for name, group in rows:
        assert name is not None
        groups = found.setdefault(name, set())
        if group is not None:
            groups.add(group)
    return {name: frozenset(groups) for name, groups in found.items()}
