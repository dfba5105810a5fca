"""Transactions as clients see them. Nothing beneath is transactional: they cover the session itself."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import SqlError
from penstock.server.session_settings import Settings
from penstock.sql.statements.commands import Command, Commit, Rollback, RollbackTo

_LEAVES = (Commit, Rollback, RollbackTo)


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that PostgreSQL warns of and then does."""

    what: str
    sqlstate: str


class TransactionBlock:
    """Where the session is: outside of a transaction block, in one, or in one that failed.

    Statements outside of a block make a transaction too, which ends with the message they came in (or with
    Sync): an error undoes what they set.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._savepoints: list[str] = []
        self.block = False
        self.failed = False
        self.open = False
        self.several = False
        """Whether the message has several statements, which PostgreSQL takes for a block."""

    @property
    def status(self) -> str:
        return "E" if self.failed else "T" if self.block else "I"

    def enter(self) -> None:
        """A statement begins."""
        if not self.open:
            self._settings.begin()
            self.open = True

    def allow(self, command: Command) -> None:
        """Raise if this may not run now: in a block that failed, only what leaves it may."""
        if self.failed and not isinstance(command, _LEAVES):
            raise SqlError(
                "current transaction is aborted, commands ignored until end of transaction block",
                sqlstate="25P02",
            )

    def fail(self) -> None:
        """A statement failed."""
        if self.block:
            self.failed = True
        elif self.open:
            self._end(keep=False)

    def settle(self) -> bool:
        """The message is done: a transaction that is no block ends. Whether one did."""
        self.several = False
        if self.block or not self.open:
            return False
        self._end(keep=True)
        return True

    def begin(self) -> Warned | None:
        if self.block:
            return Warned("there is already a transaction in progress", "25001")
        self.enter()
        self.block = True
        return None

    def commit(self) -> Warned | None:
        """End the block; `failed` says before whether that is a rollback."""
        return self._finish(keep=not self.failed)

    def rollback(self) -> Warned | None:
        return self._finish(keep=False)

    def savepoint(self, name: str) -> None:
        self.require("SAVEPOINT")
        self._settings.begin()
        self._savepoints.append(name)

    def release(self, name: str) -> None:
        self.require("RELEASE SAVEPOINT")
        depth = self._depth(name)
        self._settings.release(depth)
        del self._savepoints[depth - 1 :]

    def rollback_to(self, name: str) -> None:
        self.require("ROLLBACK TO SAVEPOINT")
        depth = self._depth(name)
        self._settings.rollback(depth)
        # The savepoint itself stays, and can be gone back to again.
        self._settings.begin()
        del self._savepoints[depth:]
        self.failed = False

    def require(self, what: str) -> None:
        """Raise unless this is a transaction block."""
        if not self.block:
            raise SqlError(f"{what} can only be used in transaction blocks", sqlstate="25P01")

    def forbid(self, what: str) -> None:
        if self.block or self.several:
            raise SqlError(f"{what} cannot run inside a transaction block", sqlstate="25001")

    def _depth(self, name: str) -> int:
        """The number of the newest savepoint of this name, from 1."""
        for number in range(len(self._savepoints), 0, -1):
            if self._savepoints[number - 1] == name:
                return number
        raise SqlError(f'savepoint "{name}" does not exist', sqlstate="3B001")

    def _finish(self, *, keep: bool) -> Warned | None:
        warned = None if self.block else Warned("there is no transaction in progress", "25P01")
        if self.open:
            self._end(keep=keep or not self.block)
        return warned

    def _end(self, *, keep: bool) -> None:
        if keep:
            self._settings.commit()
        else:
            self._settings.rollback()
        self._savepoints.clear()
        self.block = self.failed = self.open = False
