"""The words of a statement, each with its place, by PostgreSQL's lexical rules.

Backticks quote names as in Spark: PostgreSQL allows them nowhere but in operators that nobody defines. In the
dialect ``spark`` a backslash escapes inside quotes, and double quotes hold text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import SqlError

WORD, IDENTIFIER, STRING, NUMBER, PARAMETER, SYMBOL = (
    "word",
    "identifier",
    "string",
    "number",
    "parameter",
    "symbol",
)
LONGEST = 1 << 20
"""Characters of a text: reading a million takes seconds, in which nobody can cancel it."""
REMEMBERED = 4096
"""Texts longer than this are not kept: their tokens take a hundred times the memory."""
_LETTER = "A-Za-z_\u0080-\U0010ffff"
_COMMON = r"""
    (?P<space>[\s\x00]+|--[^\r\n]*)
  | (?P<comment>/\*)
  | (?P<number>0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+
      |(?:\d[\d_]*(?:\.(?!\.)[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?)
  | (?P<parameter>\$\d+)
  | (?P<backtick>`[^`]*(?:``[^`]*)*`)
"""
_POSTGRES = re.compile(
    _COMMON
    + rf"""
  | (?P<dollar>\$(?:[{_LETTER}][{_LETTER}0-9]*)?\$)
  | (?P<escaped>[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*')
  | (?P<unicode>[uU]&'[^']*(?:''[^']*)*')
  | (?P<unicode_name>[uU]&"[^"]*(?:""[^"]*)*")
  | (?P<string>[bBxXnN]?'[^']*(?:''[^']*)*')
  | (?P<quoted>"[^"]*(?:""[^"]*)*")
  | (?P<open>(?:[eEbBxXnN]|[uU]&)?['"`])
  | (?P<word>[{_LETTER}][{_LETTER}0-9$]*)
  | (?P<symbol>::|:=|\.\.|=>|[(),;.:\[\]{{}}\\$]|(?:(?!--|/\*)[+\-*/<>=~!@#%^&|?])+)
""",
    re.VERBOSE | re.DOTALL,
)
_SPARK = re.compile(
    _COMMON
    + rf"""
  | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
  | (?P<escaped>[xX]?(?:'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|"[^"\\]*(?:(?:\\.|"")[^"\\]*)*"))
  | (?P<open>[rRxX]?['"`])
  | (?P<word>[{_LETTER}][{_LETTER}0-9]*)
  | (?P<symbol>::|:=|\.\.|=>|[(),;.:\[\]{{}}\\$]|(?:(?!--|/\*)[+\-*/<>=~!@#%^&|?])+)
""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL
)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_UNICODE = re.compile(r"\\(?:\\|([0-9a-fA-F]{4})|\+([0-9a-fA-F]{6}))")


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a statement. ``value`` is what it means: folded, unquoted, unescaped; ``text`` is as
    written.
    """

    kind: str
    value: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a text, and how many characters stand before it."""

    text: str
    offset: int


def tokens(text: str, dialect: str = "postgres") -> list[Token]:
    """The tokens of a text, without comments and space. Raises `SqlError` 42601 at a quote that never
    ends.
    """
    if len(text) > LONGEST:
        raise SqlError(
            f"the statement has {len(text):,} characters, more than {LONGEST:,}",
            sqlstate="54000",
            hint="Pass values as parameters.",
        )
    match = (_SPARK if dialect == "spark" else _POSTGRES).match
    found: list[Token] = []
    at = 0
    while at < len(text):
        hit = match(text, at)
        if hit is None:
            raise _at(at, f'syntax error at or near "{text[at]}"')
        kind = hit.lastgroup or ""
        end = hit.end()
        if kind == "comment":
            end = _comment_end(text, at)
        elif kind == "dollar":
            end = _dollar_end(text, at, hit.group())
            inner = text[hit.end() : end - len(hit.group())]
            found.append(Token(STRING, inner, text[at:end], at, end))
        elif kind == "open":
            raise _unterminated(text, at, hit.group())
        elif kind != "space":
            as_kind, read = _READ[kind]
            found.append(Token(as_kind, read(hit.group()), hit.group(), at, end))
        at = end
    return found


def split(text: str, dialect: str = "auto") -> list[Piece]:
    """The statements of a text, cut at semicolons that stand outside of quotes, comments and parentheses.

    Pieces of nothing but space and comments are left out, unless there is no other.
    """
    pieces: list[Piece] = []
    start, depth, empty = 0, 0, True
    for token in lexed(text, dialect):
        if token.text == ";" and token.kind == SYMBOL and depth <= 0:
            if not empty:
                pieces.append(Piece(text[start : token.start], start))
            start, depth, empty = token.end, 0, True
            continue
        empty = False
        if token.kind == SYMBOL:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
    if not empty:
        pieces.append(Piece(text[start:], start))
    return pieces or [Piece("", 0)]


def lexed(text: str, dialect: str = "auto") -> tuple[Token, ...]:
    """As `tokens`; "auto" reads by PostgreSQL's rules, and by Spark's where only those make sense."""
    return (_remembered if len(text) <= REMEMBERED else _lexed)(text, dialect)


def _lexed(text: str, dialect: str) -> tuple[Token, ...]:
    if dialect != "auto":
        return tuple(tokens(text, dialect))
    try:
        return tuple(tokens(text))
    except SqlError:
        if "\\" not in text and '"' not in text:
            raise
        try:
            return tuple(tokens(text, "spark"))
        except SqlError:
            pass
        raise


_remembered = functools.lru_cache(maxsize=256)(_lexed)


def _comment_end(text: str, at: int) -> int:
    depth, position = 1, at + 2
    while depth:
        closes, opens = text.find("*/", position), text.find("/*", position)
        if closes < 0:
            raise _at(at, f'unterminated /* comment at or near "{text[at : at + 40]}"')
        inner = 0 <= opens < closes
        depth += 1 if inner else -1
        position = (opens if inner else closes) + 2
    return position


def _dollar_end(text: str, at: int, tag: str) -> int:
    end = text.find(tag, at + len(tag))
    if end < 0:
        raise _at(at, f'unterminated dollar-quoted string at or near "{text[at : at + 40]}"')
    return end + len(tag)


def _unterminated(text: str, at: int, opening: str) -> SqlError:
    what = "string" if opening.endswith("'") else "identifier"
    return _at(at, f'unterminated quoted {what} at or near "{text[at : at + 40]}"')


def _at(position: int, what: str) -> SqlError:
    return SqlError(what, sqlstate="42601", position=position)


def _string(text: str) -> str:
    prefix = text[0] if text[0] != "'" else ""
    inner = text[len(prefix) + 1 : -1].replace("''", "'")
    return text if prefix in tuple("bBxX") and prefix else inner


def _escaped(text: str) -> str:
    opening = text.index("'") if text[0] != '"' and "'" in text[:2] else text.index('"')
    quote = text[opening]
    return _ESCAPE.sub(_one_escape, text[opening + 1 : -1].replace(quote * 2, quote))


def _one_escape(hit: re.Match[str]) -> str:
    short, long, hexed, octal, letter = hit.groups()
    if letter is not None:
        return _LETTERS.get(letter, letter)
    number = int(octal, 8) if octal else int(short or long or hexed, 16)
    return chr(number) if number < 0x110000 else "\ufffd"


def _unicode(text: str) -> str:
    quote = text[2]
    inner = text[3:-1].replace(quote * 2, quote)
    return _UNICODE.sub(lambda hit: _code(hit.group(1) or hit.group(2)), inner)


def _code(digits: str | None) -> str:
    if digits is None:
        return "\\"
    number = int(digits, 16)
    return chr(number) if number < 0x110000 else "\ufffd"


_READ: dict[str, tuple[str, Callable[[str], str]]] = {
    "word": (WORD, str.lower),
    "quoted": (IDENTIFIER, lambda text: text[1:-1].replace('""', '"')),
    "backtick": (IDENTIFIER, lambda text: text[1:-1].replace("``", "`")),
    "unicode_name": (IDENTIFIER, _unicode),
    "string": (STRING, _string),
    "escaped": (STRING, _escaped),
    "unicode": (STRING, _unicode),
    "raw": (STRING, lambda text: text[2:-1]),
    "number": (NUMBER, str),
    "parameter": (PARAMETER, lambda text: text[1:]),
    "symbol": (SYMBOL, str),
}
