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
from penstock.sql.parse.escapes import (
    NO_CHARACTER,
    BadEscapeError,
    backslashed,
    escaped,
    unicode_escaped,
)

WORD, IDENTIFIER, STRING, NUMBER, PARAMETER, SYMBOL = (
    "word",
    "identifier",
    "string",
    "number",
    "parameter",
    "symbol",
)
PLAIN = re.compile(r"'[^']*(?:''[^']*)*'|[bBxX]'[^']*'")
"""String literals that everybody reads alike."""
LONGEST = 1 << 20
"""Characters of a text: reading a million takes seconds, in which nobody can cancel it."""
REMEMBERED = 4096
"""Of texts longer than this only the last is kept: their tokens take a hundred times the memory."""
_KEPT = 1 << 19
_QUOTES = re.compile(r"['\"\u0080-\U0010ffff]|\$(?![0-9])")
"""What a text has that may be written more plainly."""
_LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_LETTER = "A-Za-z_\u0080-\U0010ffff"
_COMMON = r"""
    (?P<space>[ \t\n\r\f\v\x00]+|--[^\r\n]*)
  | (?P<comment>/\*)
  | (?P<number>0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+
      |(?:[0-9][0-9_]*(?:\.(?!\.)[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?)
  | (?P<parameter>\$[0-9]+)
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
  | (?P<backslashed>[xX]?(?:'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|"[^"\\]*(?:(?:\\.|"")[^"\\]*)*"))
  | (?P<open>[rRxX]?['"`])
  | (?P<word>[{_LETTER}][{_LETTER}0-9]*)
  | (?P<symbol>::|:=|\.\.|=>|[(),;.:\[\]{{}}\\$]|(?:(?!--|/\*)[+\-*/<>=~!@#%^&|?])+)
""",
    re.VERBOSE | re.DOTALL,
)
_CONTINUES = re.compile(r"(?:[ \t\f\v]|--[^\r\n]*+)*+[\r\n](?:[ \t\r\n\f\v]++|--[^\r\n]*+[\r\n])*+'")
"""What lets a string go on: a line break, and nothing but space and comments up to the next quote.

It never goes back over what it has read: otherwise each blank after a string would double the time.
"""
_RESTS = {
    "string": re.compile(r"[^']*(?:''[^']*)*'"),
    "unicode": re.compile(r"[^']*(?:''[^']*)*'"),
    "escaped": re.compile(r"[^'\\]*(?:(?:\\.|'')[^'\\]*)*'", re.DOTALL),
}
_UNICODE_KINDS = ("unicode", "unicode_name")
_LONGEST_NUMBER = 1_000
"""No type here has as many digits, and Python does not make a number of many more."""


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
class StatementText:
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
    postgres = dialect != "spark"
    match = (_POSTGRES if postgres else _SPARK).match
    found: list[Token] = []
    escapable = -9, ""
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
            whole = hit.group()
            if len(whole) > _LONGEST_NUMBER and kind in ("number", "parameter"):
                raise SqlError("a number has too many digits", sqlstate="22003", position=at)
            if postgres and kind in _RESTS:
                whole, end = _continued(text, kind, whole, end)
            found.append(_token(kind, whole, text, at, end))
            if kind in _UNICODE_KINDS:
                escapable = len(found), whole
        if len(found) == escapable[0] + 2 and found[-1].kind == STRING and found[-2].value == "uescape":
            found[-3:] = [_uescaped(text, escapable[1], found[-3], found[-1])]
        at = end
    return found


def _token(kind: str, whole: str, text: str, at: int, end: int) -> Token:
    as_kind, read = _READ[kind]
    try:
        return Token(as_kind, read(whole), text[at:end], at, end)
    except BadEscapeError as error:
        raise SqlError(str(error), sqlstate=error.sqlstate, position=at) from None


def _continued(text: str, kind: str, whole: str, end: int) -> tuple[str, int]:
    """A string with what continues it on further lines, which is read by the rules of its first part."""
    while going := _CONTINUES.match(text, end):
        rest = _RESTS[kind].match(text, going.end())
        if rest is None:
            raise _unterminated(text, going.end() - 1, "'")
        whole, end = whole[:-1] + rest.group(), rest.end()
    return whole, end


def _uescaped(text: str, whole: str, literal: Token, mark: Token) -> Token:
    """A U& literal with UESCAPE behind it, which names the character that escapes in it."""
    if not re.fullmatch(r"[^0-9a-fA-F+'\"\s]", mark.value):
        raise _at(mark.start, "invalid Unicode escape character")
    inner = _unicode(whole, mark.value)
    return Token(literal.kind, inner, text[literal.start : mark.end], literal.start, mark.end)


def plain(text: str) -> str:
    """The same statement with every string literal, and U& name, in its plainest form.

    Who reads it with rules of their own then reads what PostgreSQL does: nothing is left to escape, to
    continue on the next line, or to quote with dollars.
    """
    if not _QUOTES.search(text):
        return text
    pieces, at = [], 0
    for token in lexed(text, "postgres"):
        if token.text[0] in "uU" and NO_CHARACTER in token.value:
            raise _at(token.start, "invalid Unicode escape")
        if token.kind == STRING and token.text[0] in "nN" and token.value.endswith(" "):
            raise SqlError(
                "N'…' with blanks at its end is not supported",
                sqlstate="0A000",
                position=token.start,
                hint="Write it without the N: its type is char then, which leaves them out.",
            )
        if token.kind == STRING and not PLAIN.fullmatch(token.text):
            bits = token.text[0] in "bBxX"
            written = token.value if bits else "'" + token.value.replace("'", "''") + "'"
        elif token.kind == IDENTIFIER and token.text[0] in "uU":
            written = '"' + token.value.replace('"', '""') + '"'
        elif token.kind == WORD and _is_read_otherwise(token):
            written = f'"{token.value}"'
        else:
            continue
        pieces += [text[at : token.start], written.ljust(token.end - token.start)]
        at = token.end
    return "".join([*pieces, text[at:]])


def _is_read_otherwise(word: Token) -> bool:
    """Would others read it as something else: as a keyword by its capitals, as space, or as a number?"""
    text = word.text
    if text.isascii():
        return False
    is_name = text.replace("$", "_").isidentifier()
    return not is_name or text.lower() != word.value or text.upper().isascii()


def split(text: str, dialect: str = "auto") -> list[StatementText]:
    """The statements of a text, cut at semicolons that stand outside of quotes, comments and parentheses.

    Pieces of nothing but space and comments are left out, unless there is no other.
    """
    pieces: list[StatementText] = []
    start, depth, empty = 0, 0, True
    for token in lexed(text, dialect):
        if token.text == ";" and token.kind == SYMBOL and depth <= 0:
            if not empty:
                pieces.append(StatementText(text[start : token.start], start))
            start, depth, empty = token.end, 0, True
            continue
        empty = False
        if token.kind == SYMBOL:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
    if not empty:
        pieces.append(StatementText(text[start:], start))
    return pieces or [StatementText("", 0)]


def lexed(text: str, dialect: str = "auto") -> tuple[Token, ...]:
    """As `tokens`; "auto" reads by PostgreSQL's rules, and by Spark's where only those make sense."""
    if len(text) <= REMEMBERED:
        return _remembered(text, dialect)
    # A statement is cut, classified and analysed in turn: each wants the same tokens.
    known = _LAST[0]
    if known[0] == text and dialect in known[1]:
        return known[2]
    found = _lexed(text, dialect)
    if len(text) <= _KEPT:
        alike = dialect != "spark" and "\\" not in text and '"' not in text
        _LAST[0] = text, ("auto", "postgres") if alike else (dialect,), found
    return found


_LAST: list[tuple[str, tuple[str, ...], tuple[Token, ...]]] = [("", (), ())]


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
    return escaped(text[2:-1].replace("''", "'"))


def _backslashed(text: str) -> str:
    opening = 1 if text[0] in "xX" else 0
    quote = text[opening]
    return backslashed(text[opening + 1 : -1].replace(quote * 2, quote))


def _unicode(text: str, escape: str = "\\") -> str:
    return unicode_escaped(text[3:-1].replace(text[2] * 2, text[2]), escape)


def folded(word: str) -> str:
    """A word that is not quoted. PostgreSQL folds the letters of ASCII and no others."""
    return word.lower() if word.isascii() else word.translate(_LOWER)


_READ: dict[str, tuple[str, Callable[[str], str]]] = {
    "word": (WORD, folded),
    "quoted": (IDENTIFIER, lambda text: text[1:-1].replace('""', '"')),
    "backtick": (IDENTIFIER, lambda text: text[1:-1].replace("``", "`")),
    "unicode_name": (IDENTIFIER, _unicode),
    "string": (STRING, _string),
    "escaped": (STRING, _escaped),
    "backslashed": (STRING, _backslashed),
    "unicode": (STRING, _unicode),
    "raw": (STRING, lambda text: text[2:-1]),
    "number": (NUMBER, str),
    "parameter": (PARAMETER, lambda text: text[1:]),
    "symbol": (SYMBOL, str),
}
