"""What a table or view is, and how the catalog keeps it: as one statement that Spark can read.

Before the statement stands a comment with what the SQL does not tell. In the query of a view every relation
is written with three names, the first of which is ``penstock``: they were resolved when the view was made,
and whoever rebuilds it writes what they are called in its Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import CatalogError
from penstock.server.base import DATABASE
from penstock.server.relations.naming import backquoted
from penstock.server.relations.relation import Key

_HEAD = re.compile(r"/\* penstock (\{.*?\}) \*/\n", re.DOTALL)
_TICKED = r"`(?:[^`]|``)*`"
_REFERENCE = re.compile(
    rf"""(?P<skip> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
       | `{DATABASE}`\.(?P<schema>{_TICKED})\.(?P<name>{_TICKED})
       | {_TICKED}""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Files as a table. ``columns`` is DDL, empty as long as nobody has looked into the files."""

    path: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    columns: str = ""
    seen: str = ""
    """What the files said when the columns were found in them (`summary`); empty where they were given."""


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """A query under a name: Spark SQL with references, the relations it refers to, its columns as DDL."""

    query: str
    needs: tuple[Key, ...]
    columns: str
    names: tuple[str, ...]
    """The names of the columns, in order."""
    written: str = ""
    """The query as its author wrote it, for people to read; empty where that was not kept."""


Spec = TableSpec | ViewSpec


def reference(key: Key) -> str:
    """How the query of a view names a relation."""
    return ".".join(map(backquoted, (DATABASE, *key)))


def resolved(query: str, name: Callable[[Key], str | None]) -> str:
    """The query with every reference replaced by what Spark calls it; what only looks like one stays."""

    def spelled(found: re.Match[str]) -> str:
        if found["schema"] is None:
            return found[0]
        return name((_unquoted(found["schema"]), _unquoted(found["name"]))) or found[0]

    return _REFERENCE.sub(spelled, query)


def selected(spec: ViewSpec, query: str) -> str:
    """The query under the names that the columns of the view have."""
    inner = [f"c{number}" for number in range(len(spec.names))]
    outer = ", ".join(f"v.{own} AS {backquoted(name)}" for own, name in zip(inner, spec.names, strict=True))
    # On lines of its own, because the query may end with a comment.
    return f"SELECT {outer} FROM (\n{query}\n) AS v({', '.join(inner)})"


def encode(key: Key, spec: Spec) -> str:
    """The statement for the catalog."""
    name = ".".join(map(backquoted, key))
    if isinstance(spec, TableSpec):
        options = ", ".join(f"{_text(k)} = {_text(v)}" for k, v in spec.options.items())
        with_options = f" OPTIONS ({options})" if options else ""
        columns = f" ({spec.columns})" if spec.columns else ""
        head: dict[str, list[Any]] = {"table": [spec.path, spec.format, dict(spec.options), spec.columns]}
        if spec.seen:
            head["seen"] = [spec.seen]
        return (
            f"{_head(head)}CREATE TABLE {name}{columns} USING {spec.format}{with_options} "
            f"LOCATION {_text(spec.path)}"
        )
    begin = f"CREATE VIEW {name} ({', '.join(map(backquoted, spec.names))}) AS\n"
    head = {"view": [[list(need) for need in spec.needs], spec.columns, list(spec.names), len(begin)]}
    if spec.written:
        head["written"] = [spec.written]
    return f"{_head(head)}{begin}{spec.query}"


def decode(sql: str) -> Spec | None:
    """What `encode` encoded; None for a statement that somebody wrote by hand."""
    found = _HEAD.match(sql)
    if not found:
        return None
    try:
        head: dict[str, Any] = json.loads(found[1])
        if "table" in head:
            (path, form, options, columns), (seen,) = head["table"], head.get("seen", [""])
            return TableSpec(path, form, options, columns, seen)
        needs, columns, names, skip = head["view"]
        query, (written,) = sql[found.end() + skip :], head.get("written", [""])
        return ViewSpec(query, tuple((s, n) for s, n in needs), columns, tuple(names), written)
    except (ValueError, LookupError, TypeError) as error:
        raise CatalogError(
            f"the comment before the statement cannot be read: {error}", hint="drop it, and create it again"
        ) from error


def _head(value: Mapping[str, object]) -> str:
    # A star inside would begin or end a comment; JSON has another way to write it.
    text = json.dumps(value, separators=(",", ":")).replace("*", "\\u002a")
    return f"/* penstock {text} */\n"


def _unquoted(ticked: str) -> str:
    return ticked[1:-1].replace("``", "`")


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
