"""What clients say in PostgreSQL's protocol, as values, and how one is read from the bytes of its message."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import SqlError


class ProtocolError(SqlError):
    """The client does not speak the protocol.

    After one that is ``fatal`` it is unknown where the next message begins, so the connection has to end.
    """

    def __init__(
        self, what: str, *, hint: str | None = None, sqlstate: str = "08P01", fatal: bool = False
    ) -> None:
        super().__init__(what, hint=hint, sqlstate=sqlstate)
        self.fatal = fatal

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.what, self.hint, self.sqlstate, self.fatal)


def _rebuild(what: str, hint: str | None, sqlstate: str, fatal: bool) -> ProtocolError:
    return ProtocolError(what, hint=hint, sqlstate=sqlstate, fatal=fatal)


class MessageReader:
    """The body of one message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self._data) - self._at:
            raise ProtocolError("insufficient data left in message")
        self._at += count
        return self._data[self._at - count : self._at]

    def int16(self) -> int:
        return int(struct.unpack(">h", self.take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def count(self, size: int) -> int:
        """How many things of at least ``size`` bytes follow: no more than there is room for."""
        # PostgreSQL's limit of parameters is 65535, so the number has no sign.
        number = int(struct.unpack(">H", self.take(2))[0])
        if number * size > len(self._data) - self._at:
            raise ProtocolError("insufficient data left in message")
        return number

    def int16s(self) -> tuple[int, ...]:
        count = self.count(2)
        return struct.unpack(f">{count}h", self.take(2 * count))

    def oids(self) -> tuple[int, ...]:
        count = self.count(4)
        return struct.unpack(f">{count}I", self.take(4 * count))

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("invalid string in message")
        raw = self._data[self._at : end]
        self._at = end + 1
        return _decode(raw)

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def more(self) -> bool:
        return self._at < len(self._data)

    def end(self) -> None:
        if self.more():
            raise ProtocolError("invalid message format")


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = " ".join(f"0x{byte:02x}" for byte in raw[error.start : max(error.end, error.start + 1)])
        raise ProtocolError(
            f'invalid byte sequence for encoding "UTF8": {bad}',
            sqlstate="22021",
            hint="only the client encoding UTF8 is spoken here",
        ) from None


@dataclass(frozen=True, slots=True)
class SslRequest:
    """Answer S and begin TLS, or N. Nothing may be buffered when TLS begins: see `Frontend.buffered`."""


@dataclass(frozen=True, slots=True)
class GssEncRequest:
    """Answer N."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    process: int
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Startup:
    """``minor`` is that of protocol 3; ``options`` are the settings inside the parameter of that name."""

    minor: int
    parameters: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    sql: str


@dataclass(frozen=True, slots=True)
class Parse:
    """``types`` may be shorter than the parameters that the statement has; 0 leaves one open."""

    name: str
    sql: str
    types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    """Formats are 0 for text and 1 for binary: none (all text), one for all, or one for each."""

    portal: str
    statement: str
    formats: tuple[int, ...] = ()
    parameters: tuple[bytes | None, ...] = ()
    result_formats: tuple[int, ...] = ()

    def format(self, parameter: int) -> int:
        """The format of a parameter, counted from 0."""
        if not self.formats:
            return 0
        return self.formats[0] if len(self.formats) == 1 else self.formats[parameter]


@dataclass(frozen=True, slots=True)
class Describe:
    """``kind`` is S for a statement, P for a portal."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    """``limit`` 0 asks for all rows."""

    portal: str
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Close:
    """``kind`` is S for a statement, P for a portal."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Flush:
    pass


@dataclass(frozen=True, slots=True)
class Sync:
    pass


@dataclass(frozen=True, slots=True)
class Terminate:
    pass


@dataclass(frozen=True, slots=True)
class Password:
    """An answer to a request for authentication: what it means depends on the request."""

    data: bytes = field(repr=False)

    def password(self) -> str:
        reader = MessageReader(self.data)
        text = reader.text()
        reader.end()
        return text

    def sasl_initial(self) -> tuple[str, bytes | None]:
        """The mechanism that the client chose, and its first message."""
        reader = MessageReader(self.data)
        mechanism, length = reader.text(), reader.int32()
        data = None if length == -1 else reader.take(length)
        reader.end()
        return mechanism, data


@dataclass(frozen=True, slots=True)
class CopyData:
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CopyDone:
    pass


@dataclass(frozen=True, slots=True)
class CopyFail:
    reason: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """Refused by the server: it is only here to be told from garbage."""

    function: int


Opening = SslRequest | GssEncRequest | CancelRequest | Startup
Message = (
    Opening
    | Query
    | Parse
    | Bind
    | Describe
    | Execute
    | Close
    | Flush
    | Sync
    | Terminate
    | Password
    | CopyData
    | CopyDone
    | CopyFail
    | FunctionCall
)
