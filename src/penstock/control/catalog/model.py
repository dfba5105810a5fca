"""The values of the catalog: statements, the head that lists them, and the changes that were made."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.control.catalog.sql import one_statement
from penstock.core.names import LONGEST, RULE, is_name
from penstock.errors import UsageError

HISTORY = 64
"""How many of the last changes the catalog remembers."""

LONGEST_NAME = 2 * LONGEST + 1
LONGEST_NOTE = 120


class StatementKind(enum.StrEnum):
    """What a statement makes."""

    SOURCE = "source"
    TABLE = "table"
    STREAM = "stream"
    VIEW = "view"
    SINK = "sink"
    SCHEMA = "schema"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A statement without its text: ``digest`` says which text it is, ``needs`` what must be there before."""

    name: str
    kind: StatementKind
    digest: str
    needs: tuple[str, ...] = ()
    created: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing of the catalog, and the SQL that rebuilds it.

    ``name`` is a plain name or several with dots between them, ``needs`` are the names of statements
    that must be there before this one. ``created`` tells people when and by whom it was made; if it is
    empty, the catalog fills it in.
    """

    name: str
    kind: StatementKind
    sql: str
    needs: tuple[str, ...] = ()
    created: str = ""

    @property
    def entry(self) -> CatalogEntry:
        """The statement as the head lists it."""
        return CatalogEntry(self.name, self.kind, digest_of(self.sql), self.needs, self.created)


@dataclass(frozen=True, slots=True)
class ChangeStamp:
    """Who makes a change, and when. ``request`` tells the change from every other one."""

    request: str
    by: str = ""
    when: str = ""


@dataclass(frozen=True, slots=True)
class Logged:
    """A change that was made: it led to ``version``."""

    version: int
    what: str
    by: str
    when: str
    request: str


@dataclass(frozen=True, slots=True)
class Head:
    """Everything about the catalog but the texts. Version 0 is the empty one; each change adds 1.

    An entry stands after all that it needs. ``history`` holds the last changes, oldest first.
    """

    version: int = 0
    entries: tuple[CatalogEntry, ...] = ()
    history: tuple[Logged, ...] = ()

    def find(self, name: str) -> CatalogEntry | None:
        """The entry of this name, if there is one."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def made(self, request: str) -> Logged | None:
        """The change of this request, if it is among the last ones."""
        return next((logged for logged in self.history if logged.request == request), None)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The catalog with all texts: statements in an order in which they can be replayed."""

    version: int = 0
    statements: tuple[Statement, ...] = ()


def checked(statement: Statement) -> Statement:
    """The statement as the catalog keeps it, its SQL without a semicolon at the end.

    Raises `UsageError` for what cannot be one.
    """
    for name in (statement.name, *statement.needs):
        check_name(name)
    return Statement(
        statement.name,
        _kind(statement.kind),
        one_statement(statement.sql),
        tuple(dict.fromkeys(statement.needs)),
        note(statement.created),
    )


def check_name(name: str) -> None:
    """Raise `UsageError` unless a statement can have this name."""
    # SQL has names that begin with underscores, which a path or command of ours could not have.
    if len(name) > LONGEST_NAME or not all(is_name(part.lstrip("_")) for part in name.split(".")):
        raise UsageError(
            f"{name!r} cannot be a name in the catalog",
            hint=f"{RULE}; a qualified name has such names between dots, {LONGEST_NAME} at most in all",
        )


def digest_of(sql: str) -> str:
    """What the text of a statement is known by."""
    return hashlib.sha256(sql.encode()).hexdigest()


def note(text: str) -> str:
    """A text for people, on one line and of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_NOTE else line[: LONGEST_NOTE - 1] + "…"


def named(names: Iterable[str], most: int = 5) -> str:
    """Names for people to read: the first few, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def _kind(kind: str) -> StatementKind:
    try:
        return StatementKind(kind)
    except ValueError:
        raise UsageError(
            f"there is no kind {kind!r} of statement", hint=f"kinds: {', '.join(StatementKind)}"
        ) from None
