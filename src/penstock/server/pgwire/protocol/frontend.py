"""Bytes of a client, cut into messages as they come.

Nothing that a client sends is believed: lengths, counts and texts are checked before anything is made of
them, and no more than one message of the allowed size is ever kept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from penstock.errors import SqlError
from penstock.server.network.budgets import Purse
from penstock.server.pgwire.protocol.requests import (
    Bind,
    CancelRequest,
    Close,
    CopyData,
    CopyDone,
    CopyFail,
    Describe,
    Execute,
    Flush,
    FunctionCall,
    GssEncRequest,
    Message,
    MessageReader,
    Opening,
    Parse,
    Password,
    ProtocolError,
    Query,
    SslRequest,
    Startup,
    Sync,
    Terminate,
)

STARTUP_LIMIT = 10_000
"""The longest message before a client has shown who it is."""
MESSAGE_LIMIT = 64 * 1024 * 1024
_CANCEL, _SSL, _GSSENC = 80877102, 80877103, 80877104
_LONGEST_KEY = 256
_COMPACT = 1 << 16
_LONG = 1 << 20
"""Messages that are longer are counted while they come in."""


class Frontend:
    """Cuts what a client sends into messages: `feed` it bytes, then `read` until None.

    The first message is an opening one. TLS and cancel requests leave it at the opening, `Startup` ends that;
    after `authenticated` longer messages are allowed. A message that is wrong inside is skipped, so that the
    next `read` goes on after it; a fatal `ProtocolError` is raised again by each further `read`.
    """

    def __init__(self, limit: int = MESSAGE_LIMIT, purse: Purse | None = None) -> None:
        self._limit = limit
        self._purse = purse or Purse()
        self._taken = 0
        self._allowed = min(limit, STARTUP_LIMIT)
        self._buffer = bytearray()
        self._at = 0
        self._opening = True
        self._broken: ProtocolError | None = None

    @property
    def buffered(self) -> int:
        """How many bytes were fed and not yet read."""
        return len(self._buffer) - self._at

    def authenticated(self) -> None:
        self._allowed = self._limit

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        if self._at >= _COMPACT or self._at == len(self._buffer):
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def read(self) -> Message | None:
        """The next message, or None until more was fed."""
        if self._broken is not None:
            raise self._broken
        try:
            return self._read_opening() if self._opening else self._read_message()
        except ProtocolError as error:
            if error.fatal:
                self._broken = error
                self._buffer.clear()
                self._at = 0
            raise

    def _read_opening(self) -> Opening | None:
        body = self._cut(0, least=8, what="invalid length of startup packet")
        if body is None:
            return None
        try:
            opening = _opening(body)
        except ProtocolError as error:
            raise ProtocolError(error.what, hint=error.hint, sqlstate=error.sqlstate, fatal=True) from None
        self._opening = not isinstance(opening, Startup)
        return opening

    def _read_message(self) -> Message | None:
        if self.buffered < 1:
            return None
        kind = self._buffer[self._at]
        parser = _PARSERS.get(kind)
        if parser is None:
            raise ProtocolError(f"invalid frontend message type {kind}", fatal=True)
        body = self._cut(1, least=4, what="invalid message length")
        return None if body is None else parser(MessageReader(body))

    def _cut(self, skip: int, *, least: int, what: str) -> bytes | None:
        """The body of a message whose length stands ``skip`` bytes on, once all of it is there."""
        if self.buffered < skip + 4:
            return None
        start = self._at + skip
        (length,) = struct.unpack_from(">i", self._buffer, start)
        if length < least:
            raise ProtocolError(what, fatal=True)
        if length > self._allowed:
            hint = None if self._opening else f"the longest message allowed is {self._allowed} bytes"
            raise ProtocolError(what, hint=hint, fatal=True)
        if self.buffered < skip + length:
            self._take(length)
            return None
        body = bytes(memoryview(self._buffer)[start + 4 : start + length])
        self._at = start + length
        self._take(0)
        return body

    def _take(self, length: int) -> None:
        """Before all of a long message is here, see that there is room for it."""
        wanted = 2 * length if length > _LONG else 0
        if wanted == self._taken:
            return
        try:
            if wanted > self._taken:
                self._purse.take(wanted - self._taken, "a message", "send values in smaller pieces")
            else:
                self._purse.give(self._taken - wanted)
        except SqlError as error:
            raise ProtocolError(error.what, hint=error.hint, sqlstate=error.sqlstate, fatal=True) from None
        self._taken = wanted


def _opening(body: bytes) -> Opening:
    reader = MessageReader(body)
    code = reader.int32()
    if code in {_SSL, _GSSENC}:
        reader.end()
        return SslRequest() if code == _SSL else GssEncRequest()
    if code == _CANCEL:
        process = reader.int32() & 0xFFFFFFFF
        key = body[8:]
        if not 4 <= len(key) <= _LONGEST_KEY:
            raise ProtocolError("invalid length of cancel request packet")
        return CancelRequest(process, key)
    major, minor = code >> 16, code & 0xFFFF
    if major != 3:
        raise ProtocolError(
            f"unsupported frontend protocol {major & 0xFFFF}.{minor}: server supports 3.0 to 3.2",
            sqlstate="0A000",
        )
    parameters: dict[str, str] = {}
    while name := reader.text():
        parameters[name] = reader.text()
    if reader.more():
        raise ProtocolError("invalid startup packet layout: expected terminator as last byte")
    return Startup(minor, parameters, _options(parameters.get("options", "")))


def _options(text: str) -> dict[str, str]:
    """The settings in ``-c name=value --name=value``; a backslash keeps the character after it."""
    words = _words(text)
    settings: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word == "-c" and words:
            setting = words.pop(0)
        elif word.startswith(("-c", "--")):
            setting = word[2:]
        else:
            raise ProtocolError(
                f"invalid command-line argument for server process: {word}",
                sqlstate="42601",
                hint="write options as -c name=value",
            )
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ProtocolError(f"-c {setting} requires a value", sqlstate="42601")
        settings[name.replace("-", "_")] = value
    return settings


def _words(text: str) -> list[str]:
    words: list[str] = []
    word: str | None = None
    characters = iter(text)
    for character in characters:
        if character.isspace():
            if word is not None:
                words.append(word)
            word = None
        else:
            kept = next(characters, "") if character == "\\" else character
            word = (word or "") + kept
    return words if word is None else [*words, word]


def _query(reader: MessageReader) -> Query:
    sql = reader.text()
    reader.end()
    return Query(sql)


def _parse(reader: MessageReader) -> Parse:
    parse = Parse(reader.text(), reader.text(), reader.oids())
    reader.end()
    return parse


def _bind(reader: MessageReader) -> Bind:
    portal, statement, formats = reader.text(), reader.text(), reader.int16s()
    parameters: list[bytes | None] = []
    for _ in range(reader.count(4)):
        length = reader.int32()
        parameters.append(None if length == -1 else reader.take(length))
    result_formats = reader.int16s()
    reader.end()
    if len(formats) > 1 and len(formats) != len(parameters):
        raise ProtocolError(
            f"bind message has {len(formats)} parameter formats but {len(parameters)} parameters"
        )
    for code in (*formats, *result_formats):
        if code not in {0, 1}:
            raise ProtocolError(f"unsupported format code: {code}", sqlstate="22023")
    return Bind(portal, statement, formats, tuple(parameters), result_formats)


def _target(reader: MessageReader, what: str) -> tuple[str, str]:
    kind = chr(reader.take(1)[0])
    if kind not in {"S", "P"}:
        raise ProtocolError(f"invalid {what} message subtype {ord(kind)}")
    name = reader.text()
    reader.end()
    return kind, name


def _execute(reader: MessageReader) -> Execute:
    portal, limit = reader.text(), reader.int32()
    reader.end()
    # PostgreSQL takes a negative count for no limit, too.
    return Execute(portal, max(limit, 0))


def _empty(message: Message) -> Callable[[MessageReader], Message]:
    def parse(reader: MessageReader) -> Message:
        reader.end()
        return message

    return parse


def _copy_fail(reader: MessageReader) -> CopyFail:
    reason = reader.text()
    reader.end()
    return CopyFail(reason)


_PARSERS: dict[int, Callable[[MessageReader], Message]] = {
    ord("Q"): _query,
    ord("P"): _parse,
    ord("B"): _bind,
    ord("D"): lambda reader: Describe(*_target(reader, "DESCRIBE")),
    ord("E"): _execute,
    ord("C"): lambda reader: Close(*_target(reader, "CLOSE")),
    ord("H"): _empty(Flush()),
    ord("S"): _empty(Sync()),
    ord("X"): _empty(Terminate()),
    ord("p"): lambda reader: Password(reader.rest()),
    ord("d"): lambda reader: CopyData(reader.rest()),
    ord("c"): _empty(CopyDone()),
    ord("f"): _copy_fail,
    ord("F"): lambda reader: FunctionCall(reader.int32() & 0xFFFFFFFF),
}
