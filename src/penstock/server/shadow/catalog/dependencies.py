"""Which view reads what, as PostgreSQL keeps it: clients that drop with CASCADE want to know what goes along.

Twins read nothing, so PostgreSQL finds no dependency itself: it is told. Before a twin goes, the dependencies
on it go, since otherwise PostgreSQL would not let it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

from penstock.server.base import TableInfo
from penstock.server.shadow.catalog.twins import fit, possible
from penstock.server.shadow.postgres.link import literal, quoted

Path = tuple[str, str]
Pair = tuple[Path, Path]
"""A view, and what it reads."""

PRESENT = """
SELECT n.nspname, c.relname, rn.nspname, rc.relname
FROM pg_catalog.pg_depend d
JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid
JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_class rc ON rc.oid = d.refobjid
JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'n'
    AND c.oid >= 16384 AND c.oid <> rc.oid AND n.nspname !~ '^pg_'
"""


def present_from(rows: Iterable[list[str | None]]) -> set[Pair]:
    """What is there, from the rows of `PRESENT`."""
    return {((a or "", b or ""), (c or "", d or "")) for a, b, c, d in rows}


def wanted(tables: Iterable[TableInfo], twins: Collection[Path]) -> set[Pair]:
    """What the views read, of all that has a twin."""
    found: set[Pair] = set()
    for table in tables:
        view = fit(table.schema), fit(table.name)
        for schema, name in table.reads if possible(table.schema) else ():
            read = fit(schema), fit(name)
            if view != read and view in twins and read in twins:
                found.add((view, read))
    return found


def removed(present: Set[Pair], target: Set[Pair], changed: Set[Path]) -> list[tuple[Path, str]]:
    """Statements for before twins change."""
    gone = sorted(pair for pair in present if pair not in target or not changed.isdisjoint(pair))
    return [(view, f"DELETE FROM pg_catalog.pg_depend d {_where(view, read)}") for view, read in gone]


def added(present: Set[Pair], target: Set[Pair], changed: Set[Path]) -> list[tuple[Path, str]]:
    """Statements for after twins have changed."""
    new = sorted(pair for pair in target if pair not in present or not changed.isdisjoint(pair))
    return [(view, _insert(view, read)) for view, read in new]


def _where(view: Path, read: Path) -> str:
    return (
        "USING pg_catalog.pg_rewrite r WHERE d.objid = r.oid AND d.classid = 'pg_rewrite'::regclass"
        f" AND r.ev_class = {_oid(view)} AND d.refobjid = {_oid(read)} AND d.deptype = 'n'"
    )


def _insert(view: Path, read: Path) -> str:
    return (
        "INSERT INTO pg_catalog.pg_depend"
        " (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype)"
        f" SELECT 'pg_rewrite'::regclass, oid, 0, 'pg_class'::regclass, {_oid(read)}, 0, 'n'"
        f" FROM pg_catalog.pg_rewrite WHERE ev_class = {_oid(view)}"
    )


def _oid(path: Path) -> str:
    return f"{literal('.'.join(map(quoted, path)))}::regclass"
