"""Queries of system tables alone: which they are, how the shadow catalog reads them, and which are long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.server.engine.planning.plans import OUR_FUNCTIONS, Path
from penstock.sql.statements.analysis import Analysis, is_catalog

if TYPE_CHECKING:
    from penstock.server.base import User
    from penstock.server.engine.running.relaying import Rows
    from penstock.server.relations import Relation, Tables

Key = tuple[str, str]
"""Schema and name."""
_REMEMBERED = 60.0


def named(
    analysis: Analysis, tables: Tables, search_path: Sequence[str], user: User
) -> dict[Path, Relation] | None:
    """The system tables that a query names; None if it names others, or none but the catalog's."""
    if analysis.dialect != "postgres" or not analysis.table_functions.isdisjoint(OUR_FUNCTIONS):
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
