"""Statements as a session keeps them: understood, perhaps with parameters, to be run once or often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from penstock.dialect.commands import (
    Commit,
    CreateSchema,
    CreateTable,
    CreateView,
    Declare,
    Drop,
    Explain,
    Query,
    Rename,
    Rollback,
    RollbackTo,
    Unsupported,
)
from penstock.dialect.statements import Command, Empty, Piece, classify, split
from penstock.errors import SqlError
from penstock.gateway.base import Connection, Prepared

_CACHED = 4096
"""Longer texts are not remembered."""
_FOR_ENGINE = (Query, Explain, CreateView, CreateTable, CreateSchema, Drop, Rename)
_LEAVES = (Commit, Rollback, RollbackTo)


@dataclass(frozen=True, slots=True)
class Statement:
    """``offset`` is where its text begins in what the client sent.

    ``prepared`` is None for what the session answers itself; ``cursor`` is the query that it declares.
    """

    text: str
    offset: int
    command: Command
    prepared: Prepared | None = None
    cursor: Prepared | None = None

    @property
    def parameters(self) -> tuple[int, ...]:
        if self.cursor is not None:
            return self.cursor.parameters
        return self.prepared.parameters if self.prepared is not None else ()

    @property
    def leaves(self) -> bool:
        """Whether it may run in a transaction that failed: it ends that."""
        return isinstance(self.command, _LEAVES)


@lru_cache(maxsize=1024)
def _pieces_of(text: str) -> tuple[tuple[Piece, Command], ...]:
    found = []
    for piece in split(text):
        with placed(piece.offset):
            found.append((piece, classify(piece.text)))
    return tuple(found)


def pieces(text: str) -> list[tuple[Piece, Command]]:
    """The statements of a text and what each asks for, without empty ones. Raises `SqlError` 42601."""
    found = _pieces_of(text) if len(text) <= _CACHED else _pieces_of.__wrapped__(text)
    return [each for each in found if not isinstance(each[1], Empty)]


def understand(
    piece: Piece, command: Command, connection: Connection, types: Sequence[int] = ()
) -> Statement:
    """The statement, analysed by the engine if it is for it. Places in errors are in the whole text."""
    if isinstance(command, Unsupported):
        raise command.error()
    if isinstance(command, Declare):
        with placed(piece.offset + command.offset):
            inner = understand(Piece(command.query, 0), classify(command.query), connection, types)
        return Statement(piece.text, piece.offset, command, cursor=inner.prepared)
    if not isinstance(command, _FOR_ENGINE):
        return Statement(piece.text, piece.offset, command)
    text, offset = (command.text, command.offset) if isinstance(command, Query) else (piece.text, 0)
    with placed(piece.offset + offset):
        prepared = connection.prepare(text, types)
    return Statement(piece.text, piece.offset, command, prepared)


@contextmanager
def placed(offset: int) -> Iterator[None]:
    """Errors inside tell places in a text that begins so many characters into the whole."""
    try:
        yield
    except SqlError as error:
        if error.position is not None and offset:
            error.position = max(0, error.position + offset)
        raise
