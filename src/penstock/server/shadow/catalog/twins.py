"""Twins of our tables, without their rows: what there is, what there should be, and how to get there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.server.base import PUBLIC, TableInfo
from penstock.server.shadow import feeding
from penstock.server.shadow.postgres.link import literal, quoted
from penstock.types import postgres

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST = 63
"""Bytes of a name in PostgreSQL."""
_COLUMNS = 1600
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
_RESERVED = frozenset({"information_schema"})


@dataclass(frozen=True, slots=True)
class Twin:
    """A relation without rows. Columns are name, type as DDL, and whether it is NOT NULL."""

    schema: str
    name: str
    view: bool
    columns: tuple[tuple[str, str, bool], ...]
    system: bool = field(default=False, compare=False)
    """Whether it gets rows with a statement. It does not show in what is there, and never changes."""

    @property
    def path(self) -> tuple[str, str]:
        return self.schema, self.name

    def create(self) -> str:
        if self.system:
            return feeding.view(self.schema, self.name, self.columns)
        place = f"{quoted(self.schema)}.{quoted(self.name)}"
        if self.view:
            columns = ", ".join(f"NULL::{ddl} AS {quoted(name)}" for name, ddl, _ in self.columns)
            return f"CREATE VIEW {place} AS SELECT {columns}"
        columns = ", ".join(
            f"{quoted(name)} {ddl}{' NOT NULL' if needed else ''}" for name, ddl, needed in self.columns
        )
        return f"CREATE TABLE {place} ({columns})"

    def drop(self) -> str:
        return f"DROP {'VIEW' if self.view else 'TABLE'} {quoted(self.schema)}.{quoted(self.name)}"


def twin(table: TableInfo, ddl: Callable[[pa.DataType], str]) -> Twin:
    """What stands for a table."""
    columns: dict[str, tuple[str, bool]] = {}
    for number, column in enumerate(table.columns):
        if number == _COLUMNS:
            break
        name = fit(column.name) or f"column{number + 1}"
        if name in columns:
            name = _distinct(f"{column.name}.{number}")
        columns[name] = (ddl(column.type), not column.nullable)
    # PostgreSQL refuses tables with columns of these names, but not views.
    view = table.kind != "table" or not _SYSTEM_COLUMNS.isdisjoint(columns)
    return Twin(
        fit(table.schema),
        fit(table.name),
        view,
        tuple((name, written, needed and not view) for name, (written, needed) in columns.items()),
        system=table.kind == "system",
    )


def wanted(tables: Iterable[TableInfo]) -> dict[tuple[str, str], Twin]:
    """The twins of all tables that PostgreSQL lets us name so."""
    known: dict[pa.DataType, str] = {}

    def ddl(type_: pa.DataType) -> str:
        written = known.get(type_)
        if written is None:
            written = known[type_] = _ddl(type_)
        return written

    found: dict[tuple[str, str], Twin] = {}
    for table in tables:
        if possible(table.schema) and table.name:
            made = twin(table, ddl)
            found.setdefault(made.path, made)
    return found


def possible(schema: str) -> bool:
    """Whether PostgreSQL lets us have a schema of that name."""
    return bool(schema) and not schema.startswith("pg_") and schema not in _RESERVED


def changes(
    present: Mapping[tuple[str, str], Twin], target: Mapping[tuple[str, str], Twin]
) -> Iterator[tuple[tuple[str, str], str]]:
    """Statements that make the one the other, each with the path of its twin."""
    for path, old in present.items():
        if target.get(path) != old:
            yield path, old.drop()
    for path, new in target.items():
        if present.get(path) != new:
            yield path, new.create()


def present_from(rows: Iterable[list[str | None]]) -> dict[tuple[str, str], Twin]:
    """What is there, from the rows of `PRESENT`."""
    columns: dict[tuple[str, str, bool], list[tuple[str, str, bool]]] = {}
    for schema, name, kind, column, ddl, needed in rows:
        assert schema is not None and name is not None
        listed = columns.setdefault((schema, name, kind == "v"), [])
        if column is not None and ddl is not None:
            listed.append((column, ddl, needed == "t"))
    return {
        (schema, name): Twin(schema, name, view, tuple(listed))
        for (schema, name, view), listed in columns.items()
    }


PRESENT = """
SELECT n.nspname, c.relname, c.relkind,
    a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'v') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY c.oid, a.attnum
"""
SCHEMAS = (
    "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
)


def create_schema(schema: str, owner: str) -> str:
    """A schema and the group of those who may read it.

    A group's name begins like those of PostgreSQL's own roles, so that clients do not list it among the
    users. CREATE ROLE refuses such a name, hence the second step.
    """
    group, first = group_of(schema), f"read:{hashlib.sha256(schema.encode()).hexdigest()[:16]}"
    made = "" if schema == PUBLIC else f"CREATE SCHEMA {quoted(schema)};"
    return (
        f"{made} CREATE ROLE {quoted(first)};"
        f" UPDATE pg_catalog.pg_authid SET rolname = {literal(group)} WHERE rolname = {literal(first)};"
        f" GRANT USAGE ON SCHEMA {quoted(schema)} TO {quoted(group)};"
        f" ALTER DEFAULT PRIVILEGES FOR ROLE {quoted(owner)} IN SCHEMA {quoted(schema)}"
        f" GRANT SELECT ON TABLES TO {quoted(group)}"
    )


def drop_schema(schema: str) -> str:
    """Only one that is empty."""
    return f"DROP SCHEMA {quoted(schema)}; DROP ROLE {quoted(group_of(schema))}"


def group_of(schema: str) -> str:
    """The role whose members may read a schema."""
    return fit(f"pg_read:{schema}", distinct=True)


def fit(name: str, *, distinct: bool = False) -> str:
    """A name as PostgreSQL keeps it: cut as its parser cuts it, or so that different ones stay different."""
    name = name.replace("\0", "")
    if len(name.encode("utf-8", "replace")) <= _LONGEST:
        return name
    return _distinct(name) if distinct else _cut(name, _LONGEST)


def _distinct(name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12]
    return f"{_cut(name, _LONGEST - 13)}~{digest}"


def _cut(name: str, size: int) -> str:
    return name.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _ddl(type_: pa.DataType) -> str:
    try:
        return postgres.pg_ddl(type_)
    except Exception:
        # A type that cannot be told must not take the table with it.
        return "text"
