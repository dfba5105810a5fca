"""What a session keeps under names: prepared statements, and portals, which are also its cursors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from penstock.errors import SqlError
from penstock.server.network.budgets import Purse
from penstock.server.pgwire.session.portals import Portal
from penstock.server.pgwire.session.statements import ParsedStatement

_MOST_STATEMENTS = 10_000
_MOST_PORTALS = 1_000
_PLAN = 50
"""What a statement that was understood takes in memory, beside its text: so many times as much."""


def _cost(statement: ParsedStatement) -> int:
    planned = statement.prepared is not None or statement.cursor is not None
    return len(statement.text) * (_PLAN if planned else 1)


class NamedStatements:
    """Prepared statements; the empty name is the last one that was given none."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse
        self._kept: dict[str, tuple[ParsedStatement, str, bool]] = {}

    def keep(self, name: str, statement: ParsedStatement, *, by_sql: bool = False) -> None:
        """Remember a statement under a name that is free, or under none."""
        if name and name in self._kept:
            raise SqlError(f'prepared statement "{name}" already exists', sqlstate="42P05")
        self.forget(name)
        if len(self._kept) >= _MOST_STATEMENTS:
            raise SqlError("too many prepared statements", sqlstate="53400", hint="DEALLOCATE ALL")
        self._purse.take(_cost(statement), "prepared statements", "close those that you do not need")
        self._kept[name] = statement, datetime.now(UTC).isoformat(), by_sql

    def get(self, name: str) -> ParsedStatement | None:
        found = self._kept.get(name)
        return None if found is None else found[0]

    def find(self, name: str) -> ParsedStatement:
        statement = self.get(name)
        if statement is None:
            what = f'prepared statement "{name}" does not exist' if name else "there is no unnamed statement"
            raise SqlError(what, sqlstate="26000")
        return statement

    def forget(self, name: str) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._purse.give(_cost(kept[0]))

    def clear(self) -> None:
        for name in list(self._kept):
            self.forget(name)

    def told(self) -> Mapping[str, tuple[ParsedStatement, str, bool]]:
        """By name: the statement, when it was prepared, and whether by SQL."""
        return self._kept


class BoundStatement:
    """A statement with its values under a name; it runs when rows are first asked for."""

    def __init__(
        self,
        statement: ParsedStatement,
        values: Sequence[object],
        formats: Sequence[int],
        *,
        size: int = 0,
        hold: bool = False,
    ) -> None:
        """``size`` is how many bytes its values take."""
        self.size = size
        self.statement = statement
        self.values = values
        self.formats = formats
        self.portal: Portal | None = None
        self.hold = hold
        self.survives = False
        """Whether a transaction in which it was declared ended well: then no later one undoes it."""

    def close(self) -> None:
        if self.portal is not None:
            self.portal.close()


class NamedPortals:
    """Portals and cursors; the empty name is that of the last one that was given none."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse
        self._bound: dict[str, BoundStatement] = {}

    def bind(self, name: str, bound: BoundStatement) -> None:
        if name and name in self._bound:
            raise SqlError(f'cursor "{name}" already exists', sqlstate="42P03")
        if len(self._bound) >= _MOST_PORTALS:
            raise SqlError("too many open cursors", sqlstate="53400", hint="CLOSE ALL")
        self.unbind(name)
        self._purse.take(bound.size, "values of parameters", "close portals that you do not need")
        self._bound[name] = bound

    def get(self, name: str) -> BoundStatement | None:
        return self._bound.get(name)

    def find(self, name: str, kind: str = "portal") -> BoundStatement:
        bound = self.get(name)
        if bound is None:
            raise SqlError(f'{kind} "{name}" does not exist', sqlstate="34000")
        return bound

    def unbind(self, name: str) -> None:
        bound = self._bound.pop(name, None)
        if bound is not None:
            self._purse.give(bound.size)
            bound.close()

    def clear(self) -> None:
        for name in list(self._bound):
            self.unbind(name)

    def transaction_ended(self, *, keep: bool) -> None:
        """A transaction ended, well or not: only what was declared to be held is left."""
        for name, bound in list(self._bound.items()):
            if bound.survives or (bound.hold and keep):
                bound.survives = True
            else:
                self.unbind(name)

    def told(self) -> Mapping[str, tuple[str, bool]]:
        """By name: the text of the statement, and whether it is held."""
        return {name: (each.statement.text, each.hold) for name, each in self._bound.items()}
