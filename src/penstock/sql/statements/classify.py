"""Which kind of statement a text is: `split` cuts it into statements, `classify` says what one asks for.

This reads no further than it must: whether a query is well formed, what it reads and whether that is
allowed is found by `penstock.sql.statements.analysis`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.errors import SqlError
from penstock.sql.parse.lexing import SYMBOL, WORD, StatementText, split
from penstock.sql.parse.token_reader import TokenReader
from penstock.sql.statements import session_commands as session
from penstock.sql.statements import setting_commands as settings
from penstock.sql.statements import table_commands as tables
from penstock.sql.statements.commands import (
    Begin,
    CloseCursor,
    Command,
    Commit,
    CopyIn,
    CopyOptions,
    CopyOut,
    CreateSchema,
    CreateTable,
    CreateView,
    Deallocate,
    Declare,
    Discard,
    Drop,
    Empty,
    ExecuteStatement,
    Explain,
    Fetch,
    Listen,
    Notify,
    PrepareStatement,
    QueryStatement,
    Release,
    Rename,
    Reset,
    Rollback,
    RollbackTo,
    Savepoint,
    SetVariable,
    Show,
    Unlisten,
    Unsupported,
)
from penstock.sql.statements.copy_command import copy

__all__ = [
    "Begin",
    "CloseCursor",
    "Command",
    "Commit",
    "CopyIn",
    "CopyOptions",
    "CopyOut",
    "CreateSchema",
    "CreateTable",
    "CreateView",
    "Deallocate",
    "Declare",
    "Discard",
    "Drop",
    "Empty",
    "ExecuteStatement",
    "Explain",
    "Fetch",
    "Listen",
    "Notify",
    "PrepareStatement",
    "QueryStatement",
    "Release",
    "Rename",
    "Reset",
    "Rollback",
    "RollbackTo",
    "Savepoint",
    "SetVariable",
    "Show",
    "StatementText",
    "Unlisten",
    "Unsupported",
    "classify",
    "split",
]

_WRITES = frozenset({"insert", "update", "delete", "merge"})
_NOT_HERE = "Only queries, views and external tables are supported here."
_OUTSIDE = "The server's files, jars and settings are set up where it is started: see penstock.toml."
_UNSUPPORTED: dict[str, str | None] = {
    **dict.fromkeys([*_WRITES, "truncate", "replace", "upsert"], tables.WRITTEN_ELSEWHERE),
    **dict.fromkeys(
        ["add", "load", "cache", "uncache", "clear", "refresh", "list", "msck", "repair"], _OUTSIDE
    ),
    **dict.fromkeys(["grant", "revoke", "reassign", "security"], "Use `penstock users` to manage users."),
    **dict.fromkeys(["alter", "comment", "import", "call", "do", "lock", "rename"], _NOT_HERE),
    **dict.fromkeys(["vacuum", "analyze", "analyse", "cluster", "reindex", "checkpoint", "optimize"], None),
}


def classify(text: str, dialect: str = "auto") -> Command:
    """What the statement asks for. Raises `SqlError` 42601 with the place where it cannot be read."""
    reader = TokenReader(text, dialect)
    token = reader.token
    if token is None:
        return Empty()
    if any(inner.kind == SYMBOL and inner.text == ";" for inner in reader.tokens):
        what = "cannot insert multiple commands into a prepared statement"
        raise SqlError(what, sqlstate="42601", hint="Send one statement at a time.")
    if token.kind == SYMBOL and token.text == "(":
        return _query(reader)
    if token.kind != WORD:
        reader.fail()
    read = _READERS.get(token.value)
    if read is not None:
        return read(reader)
    if token.value in _UNSUPPORTED:
        return _unsupported(reader, token.value)
    raise reader.fault()


def _query(reader: TokenReader) -> Command:
    """SELECT, WITH, VALUES and what is in parentheses, unless it writes or locks rows."""
    depth, follows = 0, ""
    with_clause = reader.sees("with")
    for number, token in enumerate(reader.tokens):
        if token.kind == SYMBOL:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        elif token.kind == WORD and not depth:
            if with_clause and follows == ")" and token.value in _WRITES:
                return _unsupported(reader, token.value)
            after = reader.tokens[number + 1].value if number + 1 < len(reader.tokens) else ""
            if token.value == "for" and after in ("update", "share", "no", "key"):
                hint = "Leave FOR UPDATE or FOR SHARE out: nothing here is written in transactions."
                return Unsupported("SELECT", "Rows cannot be locked", hint)
            if token.value == "into" and follows != ".":
                return Unsupported("SELECT INTO", "SELECT INTO is not supported", tables.WRITTEN_ELSEWHERE)
        follows = token.value
    reader.at = 0
    text, offset = reader.rest()
    return QueryStatement(text, offset)


def _table(reader: TokenReader) -> Command:
    """``TABLE x`` is short for SELECT * FROM x."""
    reader.expect("table")
    rest, start = reader.rest()
    lead = "SELECT * FROM "
    command = _query(TokenReader(lead + rest))
    return replace(command, offset=start - len(lead)) if isinstance(command, QueryStatement) else command


def _show(reader: TokenReader) -> Command:
    return tables.spark_show(reader) or settings.show(reader)


def _alter(reader: TokenReader) -> Command:
    return tables.rename(reader) or _unsupported(reader, "alter")


def _unsupported(reader: TokenReader, word: str) -> Command:
    tag = word.upper()
    words = [token.value.upper() for token in reader.tokens[:2] if token.kind == WORD]
    if word in ("alter", "add", "cache", "load", "refresh", "list", "import", "truncate") and len(words) == 2:
        tag = " ".join(words)
    return Unsupported(tag, f"{tag} is not supported", _UNSUPPORTED.get(word))


_READERS: dict[str, Callable[[TokenReader], Command]] = {
    **dict.fromkeys(["select", "with", "values", "from"], _query),
    "table": _table,
    "show": _show,
    "copy": copy,
    "begin": session.begin,
    "start": session.begin,
    **dict.fromkeys(["commit", "end", "abort"], session.commit),
    "rollback": session.rollback,
    "savepoint": session.savepoint,
    "release": session.release,
    "set": settings.set_,
    "reset": settings.reset,
    "declare": session.declare,
    "fetch": session.fetch,
    "move": session.fetch,
    "close": session.close,
    "prepare": session.prepare,
    "execute": session.execute,
    "deallocate": session.deallocate,
    "discard": session.discard,
    "listen": session.listen,
    "unlisten": session.unlisten,
    "notify": session.notify,
    "use": settings.use,
    "explain": tables.explain,
    "create": tables.create,
    "drop": tables.drop,
    "alter": _alter,
    "describe": tables.describe,
    "desc": tables.describe,
}
