"""Queries of system tables alone: which they are, how the shadow catalog reads them, and which are long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.dialect.analysis import Analysis, is_catalog
from penstock.dialect.quoting import as_columns
from penstock.errors import SqlError
from penstock.gateway.engine.calls import OURS
from penstock.gateway.engine.plans import Path

if TYPE_CHECKING:
    from penstock.gateway.base import User
    from penstock.gateway.engine.relaying import Rows
    from penstock.gateway.shadow import Description
    from penstock.gateway.tables import Relation, Tables

Key = tuple[str, str]
"""Schema and name."""
_REMEMBERED = 60.0


def named(
    analysis: Analysis, tables: Tables, search_path: Sequence[str], user: User
) -> dict[Path, Relation] | None:
    """The system tables that a query names; None if it names others, or none but the catalog's."""
    if analysis.dialect != "postgres" or not analysis.table_functions.isdisjoint(OURS):
        return None
    return found((ref.path for ref in analysis.relations), tables, search_path, user)


def found(
    paths: Iterable[Path], tables: Tables, search_path: Sequence[str], user: User
) -> dict[Path, Relation] | None:
    """The system tables that these names mean now; None if one of them means another."""
    relations: dict[Path, Relation] = {}
    for path in paths:
        if is_catalog(path):
            continue
        try:
            relation = tables.find(path, search_path, user)
        except SqlError:
            return None
        if relation.kind != "system":
            return None
        relations[path] = relation
    return relations or None


def described(
    sql: str, relations: Mapping[Path, Relation], describe: Callable[[str], Description]
) -> tuple[str, Description]:
    """The query as PostgreSQL must read it, and what it says about it."""
    columns = {name for relation in relations.values() for name in relation.columns.names}
    text = as_columns(sql, columns)
    try:
        return text.text, describe(text.text)
    except SqlError as error:
        if error.position is not None:
            error.position = text.before(error.position)
        raise


class LongTables:
    """Tables that were too long for the shadow a moment ago: to try again would be to read them twice."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[tuple[str, Key], float] = {}

    def note(self, user: User, rows: Rows) -> None:
        longest = max(rows, key=lambda key: rows[key].nbytes)
        self._until[user.name, longest] = self._clock() + _REMEMBERED

    def among(self, user: User, keys: Iterable[Key]) -> bool:
        now = self._clock()
        return any(self._until.get((user.name, key), 0.0) > now for key in keys)
