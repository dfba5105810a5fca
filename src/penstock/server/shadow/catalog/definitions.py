"""What the views say: PostgreSQL shows the text of a view's author instead of that of its empty twin.

The texts stand in a table of the shadow's own catalog that nobody may read. ``pg_get_viewdef`` looks there,
and tells those who may use the view's schema. Functions that are built in cannot be replaced in their place,
since PostgreSQL calls them by number: it is renamed, and the views of the catalog that call it are made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.server.base import TableInfo
from penstock.server.shadow.catalog.twins import fit, possible
from penstock.server.shadow.postgres.link import literal

Path = tuple[str, str]

SETUP = """
CREATE TABLE pg_catalog.pg_view_text (
    schema_name name, view_name name, text text NOT NULL, PRIMARY KEY (schema_name, view_name)
);
ALTER FUNCTION pg_catalog.pg_get_viewdef(oid) RENAME TO pg_get_twindef;
ALTER FUNCTION pg_catalog.pg_get_viewdef(oid, boolean) RENAME TO pg_get_twindef;
ALTER FUNCTION pg_catalog.pg_get_viewdef(oid, integer) RENAME TO pg_get_twindef;
ALTER FUNCTION pg_catalog.pg_get_viewdef(text) RENAME TO pg_get_twindef;
ALTER FUNCTION pg_catalog.pg_get_viewdef(text, boolean) RENAME TO pg_get_twindef;
CREATE FUNCTION pg_catalog.pg_get_viewdef(oid, integer) RETURNS text
LANGUAGE sql STABLE STRICT SECURITY DEFINER SET search_path = pg_catalog AS $$
    -- Inside, the current user is the owner; the session's is who asks.
    SELECT CASE WHEN t.text IS NULL THEN pg_catalog.pg_get_twindef($1, $2)
                WHEN pg_catalog.has_schema_privilege(session_user, n.oid, 'USAGE') THEN t.text END
    FROM (VALUES ($1)) AS asked (oid)
    LEFT JOIN pg_catalog.pg_class c ON c.oid = asked.oid
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_view_text t ON t.schema_name = n.nspname AND t.view_name = c.relname
$$;
CREATE FUNCTION pg_catalog.pg_get_viewdef(oid) RETURNS text
LANGUAGE sql STABLE STRICT AS $$ SELECT pg_catalog.pg_get_viewdef($1, 79) $$;
CREATE FUNCTION pg_catalog.pg_get_viewdef(oid, boolean) RETURNS text
LANGUAGE sql STABLE STRICT AS $$ SELECT pg_catalog.pg_get_viewdef($1, 79) $$;
CREATE FUNCTION pg_catalog.pg_get_viewdef(text) RETURNS text
LANGUAGE sql STABLE STRICT AS $$ SELECT pg_catalog.pg_get_viewdef($1::regclass::oid, 79) $$;
CREATE FUNCTION pg_catalog.pg_get_viewdef(text, boolean) RETURNS text
LANGUAGE sql STABLE STRICT AS $$ SELECT pg_catalog.pg_get_viewdef($1::regclass::oid, 79) $$;
DO $$
DECLARE
    changed text;
    query text;
BEGIN
    FOREACH changed IN ARRAY ARRAY['pg_catalog.pg_views', 'information_schema.views'] LOOP
        query := replace(pg_catalog.pg_get_twindef(changed), 'pg_get_twindef(', 'pg_get_viewdef(');
        -- The standard shows a definition to the owner alone. Here, that is never who asks.
        query := replace(
            query, 'pg_has_role(c.relowner, ''USAGE''::text) THEN pg_get_viewdef', 'true THEN pg_get_viewdef'
        );
        EXECUTE format('CREATE OR REPLACE VIEW %s AS %s', changed, query);
    END LOOP;
END $$;
"""
PRESENT = "SELECT schema_name, view_name, text FROM pg_catalog.pg_view_text"


def present_from(rows: Iterable[list[str | None]]) -> dict[Path, str]:
    """What is there, from the rows of `PRESENT`."""
    return {(schema or "", name or ""): text or "" for schema, name, text in rows}


def wanted(tables: Iterable[TableInfo]) -> dict[Path, str]:
    """The texts of all views, by the names that their twins have."""
    found: dict[Path, str] = {}
    for table in tables:
        if table.definition and possible(table.schema) and table.name:
            found.setdefault((fit(table.schema), fit(table.name)), shown(table.definition))
    return found


def shown(query: str) -> str:
    """A query as ``pg_get_viewdef`` gives it: with a semicolon, which must not end up in a comment."""
    text = query.replace("\0", "").strip()
    return f"{text}\n;" if "--" in text.rpartition("\n")[2] else f"{text};"


def changes(present: Mapping[Path, str], target: Mapping[Path, str]) -> Iterator[tuple[Path, str]]:
    """Statements that make the one the other, each with the path of its view."""
    for path in present.keys() - target.keys():
        yield path, f"DELETE FROM pg_catalog.pg_view_text WHERE {_is(path)}"
    for path, text in target.items():
        if path not in present:
            values = ", ".join(map(literal, (*path, text)))
            yield path, f"INSERT INTO pg_catalog.pg_view_text VALUES ({values})"
        elif present[path] != text:
            yield path, f"UPDATE pg_catalog.pg_view_text SET text = {literal(text)} WHERE {_is(path)}"


def _is(path: Path) -> str:
    return f"schema_name = {literal(path[0])} AND view_name = {literal(path[1])}"
