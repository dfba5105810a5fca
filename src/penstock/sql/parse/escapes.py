"""What the escapes in literals mean: those of PostgreSQL's ``E''`` and ``U&''``, and those of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator

NO_CHARACTER = "\ufffd"
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL
)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_POSTGRES_LETTERS = {**_LETTERS, "v": "\v"}
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadEscapeError(ValueError):
    """An escape that PostgreSQL refuses; with the code of its error."""

    def __init__(self, what: str, sqlstate: str = "22025") -> None:
        super().__init__(what)
        self.sqlstate = sqlstate


def escaped(inner: str) -> str:
    r"""What stands between the quotes of ``E'…'``. Raises `BadEscapeError`.

    ``\x`` and octal digits give bytes, not characters: it takes two of them to write an é.
    """
    found = b"".join(_pieces(inner))
    try:
        if b"\0" in found:
            raise BadEscapeError('invalid byte sequence for encoding "UTF8": 0x00', "22021")
        return found.decode()
    except UnicodeDecodeError as error:
        bad = " ".join(f"0x{byte:02x}" for byte in found[error.start : error.end])
        raise BadEscapeError(f'invalid byte sequence for encoding "UTF8": {bad}', "22021") from None


def _pieces(inner: str) -> Iterator[bytes]:
    at, half = 0, ""
    for hit in _ESCAPE.finditer(inner):
        short, long, hexed, octal, letter = hit.groups()
        code = short or long
        if half and (code is None or hit.start() > at):
            raise BadEscapeError("invalid Unicode surrogate pair", "42601")
        yield inner[at : hit.start()].encode()
        at = hit.end()
        if code is not None:
            whole = half + _character(int(code, 16))
            half = whole if len(whole) == 1 and "\ud800" <= whole <= "\udbff" else ""
            yield b"" if half else _joined(whole).encode()
        elif letter is not None:
            if letter in "uU":
                raise BadEscapeError("invalid Unicode escape")
            yield _POSTGRES_LETTERS.get(letter, letter).encode()
        else:
            yield bytes([int(hexed, 16) if hexed else int(octal, 8) & 0xFF])
    if half:
        raise BadEscapeError("invalid Unicode surrogate pair", "42601")
    yield inner[at:].encode()


def _character(number: int) -> str:
    if not 0 < number < 0x110000:
        raise BadEscapeError("invalid Unicode escape value", "42601")
    return chr(number)


def _joined(text: str) -> str:
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise BadEscapeError("invalid Unicode surrogate pair", "42601") from None


def backslashed(inner: str) -> str:
    """What stands between the quotes of a literal of Spark's."""
    return _paired(_ESCAPE.sub(_one_escape, inner))


def _one_escape(hit: re.Match[str]) -> str:
    short, long, hexed, octal, letter = hit.groups()
    if letter is not None:
        return _LETTERS.get(letter, letter)
    number = int(octal, 8) if octal else int(short or long or hexed, 16)
    return chr(number) if number < 0x110000 else NO_CHARACTER


def unicode_escaped(inner: str, escape: str = "\\") -> str:
    """What stands between the quotes of ``U&'…'``, with `NO_CHARACTER` for what is no escape.

    PostgreSQL refuses that, unless a UESCAPE behind the literal says that it is none.
    """
    mark = re.escape(escape)
    escapes = re.compile(rf"{mark}(?:({mark})|([0-9a-fA-F]{{4}})|\+([0-9a-fA-F]{{6}})|)")
    return _paired(escapes.sub(lambda hit: hit[1] or _code(hit[2] or hit[3]), inner))


def _code(digits: str | None) -> str:
    number = int(digits, 16) if digits else 0
    return chr(number) if 0 < number < 0x110000 else NO_CHARACTER


def _paired(text: str) -> str:
    """Two halves of a character that were escaped one by one are one character."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
