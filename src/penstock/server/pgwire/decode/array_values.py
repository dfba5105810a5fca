"""Arrays that clients send."""

from __future__ import annotations

import struct
from collections.abc import Callable

from penstock.errors import SqlError
from penstock.server.pgwire.decode.refusals import bad_binary
from penstock.types.postgres import CHAR, NAME, TEXT, UNKNOWN, VARCHAR, type_name

_DEEPEST = 6
_TEXTS = {TEXT, VARCHAR, NAME, CHAR, UNKNOWN}
_SPACE = " \t\n\r\v\f"


def array_from_text(text: str, oid: int, read: Callable[[str], object]) -> list[object]:
    """``{1,NULL,"two words"}``; ``read`` makes a value of an element's text."""
    parser = _Parser(text, type_name(oid), read)
    return parser.whole()


class _Parser:
    def __init__(self, text: str, name: str, read: Callable[[str], object]) -> None:
        self._text = text
        self._name = name
        self._read = read
        self._at = 0

    def whole(self) -> list[object]:
        self._space()
        if self._peek() == "[":
            # Bounds such as [0:2]= say nothing about the elements.
            self._at = self._text.find("=") + 1
            if not self._at:
                raise self._malformed()
            self._space()
        if self._peek() != "{":
            raise self._malformed()
        found = self._list(1)
        self._space()
        if self._at < len(self._text):
            raise self._malformed()
        return found

    def _list(self, depth: int) -> list[object]:
        if depth > _DEEPEST:
            raise SqlError(
                f"number of array dimensions exceeds the maximum allowed ({_DEEPEST})", sqlstate="54000"
            )
        found: list[object] = []
        self._at += 1
        self._space()
        if self._peek() == "}":
            self._at += 1
            return found
        while True:
            self._space()
            found.append(self._list(depth + 1) if self._peek() == "{" else self._element())
            self._space()
            mark = self._peek()
            self._at += 1
            if mark == "}":
                return found
            if mark != ",":
                raise self._malformed()

    def _element(self) -> object:
        if self._peek() == '"':
            return self._read(self._quoted())
        characters: list[str] = []
        kept = 0
        while (mark := self._peek()) not in {",", "}"}:
            if mark in {"", "{", '"'}:
                raise self._malformed()
            if mark == "\\":
                self._at += 1
                mark = self._peek()
                if not mark:
                    raise self._malformed()
                kept = len(characters) + 1
            characters.append(mark)
            self._at += 1
        # Space at the end does not count, unless it came after a backslash.
        plain = "".join(characters[:kept]) + "".join(characters[kept:]).rstrip(_SPACE)
        if not plain:
            raise self._malformed()
        return None if plain.upper() == "NULL" and not kept else self._read(plain)

    def _quoted(self) -> str:
        characters: list[str] = []
        self._at += 1
        while (mark := self._peek()) != '"':
            if mark == "\\":
                self._at += 1
                mark = self._peek()
            if not mark:
                raise self._malformed()
            characters.append(mark)
            self._at += 1
        self._at += 1
        return "".join(characters)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _space(self) -> None:
        while (mark := self._peek()) and mark in _SPACE:
            self._at += 1

    def _malformed(self) -> SqlError:
        return SqlError(f'malformed array literal: "{self._text[:200]}"', sqlstate="22P02")


def array_from_binary(data: bytes, oid: int, inner: int, read: Callable[[bytes], object]) -> list[object]:
    """``read`` makes a value of an element's bytes."""
    name = type_name(oid)
    if len(data) < 12:
        raise bad_binary(name)
    dimensions, _, told = struct.unpack_from(">iiI", data)
    if not 0 <= dimensions <= _DEEPEST or len(data) < 12 + 8 * dimensions:
        raise bad_binary(name)
    if told != inner and not {told, inner} <= _TEXTS:
        raise SqlError(
            f"binary data has array element type {told} ({type_name(told)}) instead of expected "
            f"{inner} ({type_name(inner)})",
            sqlstate="42804",
        )
    sizes = [struct.unpack_from(">i", data, 12 + 8 * at)[0] for at in range(dimensions)]
    count = 1 if dimensions else 0
    for size in sizes:
        count *= size
        # Each element takes at least its length of four bytes.
        if size < 0 or count * 4 > len(data):
            raise bad_binary(name)
    return _shaped(_elements(data, 12 + 8 * dimensions, count, name, read), sizes)


def _elements(data: bytes, at: int, count: int, name: str, read: Callable[[bytes], object]) -> list[object]:
    found: list[object] = []
    for _ in range(count):
        if at + 4 > len(data):
            raise bad_binary(name)
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if length < -1 or at + length > len(data):
            raise bad_binary(name)
        found.append(None if length == -1 else read(data[at : at + length]))
        at += max(length, 0)
    if at != len(data):
        raise bad_binary(name)
    return found


def _shaped(flat: list[object], sizes: list[int]) -> list[object]:
    if len(sizes) <= 1 or not flat:
        return flat
    step = len(flat) // sizes[0]
    return [_shaped(flat[at : at + step], sizes[1:]) for at in range(0, len(flat), step)]
