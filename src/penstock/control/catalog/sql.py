"""Texts of statements, looked at just closely enough to tell where one ends.

Quotes and comments are read as Spark reads them: a backslash escapes inside quotes, but not in a raw
string, and bracketed comments nest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.errors import UsageError

MAX_SQL = 128 * 1024
"""The most bytes of a statement's text. Rows do not belong there."""

_TOKEN = re.compile(
    r"""(?P<space> \s+ )
      | (?P<line> --[^\n]* )
      | (?P<comment> /\* )
      | (?P<end> ; )
      | (?P<quoted> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` )
      | (?P<open> ['"`] )
      | (?P<code> \w+ | . )""",
    re.VERBOSE | re.DOTALL,
)
_BRACKET = re.compile(r"/\*|\*/")


class _Piece(NamedTuple):
    what: str
    begin: int
    end: int


def one_statement(text: str) -> str:
    """The statement in ``text``, without space around it or a semicolon after it.

    Raises `UsageError` unless there is exactly one, complete and not too long.
    """
    _check_writable(text)
    pieces = [piece for piece in _pieces(text) if piece.what != "space"]
    _check_closed(text, pieces)
    code = [n for n, piece in enumerate(pieces) if piece.what in ("quoted", "code")]
    if not code:
        raise UsageError("the statement is empty", hint="give the SQL that rebuilds it")
    ends = [n for n, piece in enumerate(pieces) if piece.what == "end"]
    if ends and ends[0] < code[-1]:
        raise UsageError(
            f"there is more than one statement: something follows the ';' {_place(text, pieces[ends[0]])}",
            hint="add each of them under a name of its own",
        )
    last = ends[0] - 1 if ends else len(pieces) - 1
    return text[pieces[0].begin : pieces[last].end]


def script(statements: Iterable[str]) -> str:
    """Statements as one text that can be fed to any SQL shell."""
    return "\n\n".join(_ended(statement) for statement in statements)


def _ended(statement: str) -> str:
    # A semicolon in a comment would end nothing.
    *_, last = _pieces(statement)
    return f"{statement}\n;" if last.what == "line" else f"{statement};"


def _pieces(text: str) -> Iterator[_Piece]:
    at = 0
    while found := _TOKEN.match(text, at):
        what, begin, at = found.lastgroup or "", at, found.end()
        if what == "comment":
            at = _after_comment(text, at)
            what = "comment" if at else "open"
            at = at or len(text)
        yield _Piece(what, begin, at)


def _after_comment(text: str, at: int) -> int:
    """Where the comment ends whose begin stands before ``at``; 0 if nowhere."""
    depth = 1
    for bracket in _BRACKET.finditer(text, at):
        depth += 1 if bracket.group() == "/*" else -1
        if depth == 0:
            return bracket.end()
    return 0


def _check_closed(text: str, pieces: Iterable[_Piece]) -> None:
    for piece in pieces:
        if piece.what == "open":
            begin = text[piece.begin : piece.begin + 2] if text[piece.begin] == "/" else text[piece.begin]
            raise UsageError(
                f"the statement is not complete: nothing closes the {begin} {_place(text, piece)}",
                hint="close it, or write it as part of a text in quotes",
            )


def _check_writable(text: str) -> None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise UsageError("the statement holds something that is no text", hint="write it in UTF-8") from None
    if length > MAX_SQL:
        raise UsageError(
            f"the statement has {length:,} bytes, of {MAX_SQL:,} at most",
            hint="put rows into a file, and let the statement name it",
        )


def _place(text: str, piece: _Piece) -> str:
    line = text.count("\n", 0, piece.begin) + 1
    column = piece.begin - text.rfind("\n", 0, piece.begin)
    return f"in line {line}, column {column}"
