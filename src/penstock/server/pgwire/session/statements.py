"""Statements as a session keeps them: understood, perhaps with parameters, to be run once or often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.server.base import Connection, Prepared
from penstock.sql.statements.classify import Command, Empty, StatementText, classify, split
from penstock.sql.statements.commands import (
    FOR_ENGINE,
    Declare,
    QueryStatement,
    Unsupported,
)

if TYPE_CHECKING:
    from penstock.server.session_settings import SessionRows

_CACHED = 4096
"""Longer texts are not remembered."""


@dataclass(frozen=True, slots=True)
class ParsedStatement:
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


@lru_cache(maxsize=1024)
def _pieces_of(text: str) -> tuple[tuple[StatementText, Command], ...]:
    found = []
    for piece in split(text):
        with placed(piece.offset):
            found.append((piece, classify(piece.text)))
    return tuple(found)


def pieces(text: str) -> list[tuple[StatementText, Command]]:
    """The statements of a text and what each asks for, without empty ones. Raises `SqlError` 42601."""
    found = _pieces_of(text) if len(text) <= _CACHED else _pieces_of.__wrapped__(text)
    return [each for each in found if not isinstance(each[1], Empty)]


def understand(
    piece: StatementText, command: Command, connection: Connection, types: Sequence[int] = ()
) -> ParsedStatement:
    """The statement, analysed by the engine if it is for it. Places in errors are in the whole text."""
    if isinstance(command, Unsupported):
        raise command.error()
    if isinstance(command, Declare):
        with placed(piece.offset + command.offset):
            inner = understand(StatementText(command.query, 0), classify(command.query), connection, types)
        return ParsedStatement(piece.text, piece.offset, command, cursor=inner.prepared)
    if not isinstance(command, FOR_ENGINE):
        return ParsedStatement(piece.text, piece.offset, command)
    text, offset, asked = piece.text, 0, command
    if isinstance(command, QueryStatement):
        text, offset, asked = command.text, command.offset, QueryStatement(command.text)
    with placed(piece.offset + offset):
        prepared = connection.prepare(text, types, command=asked)
    return ParsedStatement(piece.text, piece.offset, command, prepared)


@contextmanager
def placed(offset: int) -> Iterator[None]:
    """Errors inside tell places in a text that begins so many characters into the whole."""
    try:
        yield
    except SqlError as error:
        if error.position is not None and offset:
            error.position = max(0, error.position + offset)
        raise


def session_rows(
    prepared: Mapping[str, tuple[ParsedStatement, str, bool]], cursors: Mapping[str, tuple[str, bool]]
) -> SessionRows:
    """What PostgreSQL's catalog tells of a session: rows by table, of what has a name.

    Of statements: when they were prepared, and whether by SQL.
    """
    told = [_statement(name, *each) for name, each in prepared.items() if name]
    open_ = [
        {"name": name, "statement": text, "is_holdable": hold, "is_binary": False, "is_scrollable": True}
        for name, (text, hold) in cursors.items()
        if name
    ]
    return {"pg_prepared_statements": told, "pg_cursors": open_}


def _statement(name: str, statement: ParsedStatement, since: str, by_sql: bool) -> Mapping[str, object]:
    columns = statement.prepared.columns if statement.prepared is not None else None
    return {
        "name": name,
        "statement": f"PREPARE {name} AS {statement.text}" if by_sql else statement.text,
        "prepare_time": since,
        "parameter_types": _types(statement.parameters),
        "result_types": None if columns is None else _types([each.oid for each in columns]),
        "from_sql": by_sql,
        "generic_plans": 0,
        "custom_plans": 0,
    }


def _types(oids: Sequence[int]) -> str:
    return "{" + ",".join(map(str, oids)) + "}"
