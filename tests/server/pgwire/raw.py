"""A client that sends exactly what a test says, right or wrong."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

SSL = 80877103
GSSENC = 80877104
CANCEL = 80877102


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + struct.pack(">i", len(body) + 4) + body


def startup(parameters: Mapping[str, str], minor: int = 0, major: int = 3) -> bytes:
    body = struct.pack(">i", (major << 16) | minor)
    body += b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items()) + b"\0"
    return struct.pack(">i", len(body) + 4) + body


def request(code: int, rest: bytes = b"") -> bytes:
    return struct.pack(">ii", 8 + len(rest), code) + rest


def query(sql: str) -> bytes:
    return message("Q", sql.encode() + b"\0")


def parse(sql: str, name: str = "", types: Sequence[int] = ()) -> bytes:
    head = f"{name}\0{sql}\0".encode()
    return message("P", head + struct.pack(f">h{len(types)}I", len(types), *types))


def bind(
    values: Sequence[bytes | None] = (),
    *,
    portal: str = "",
    name: str = "",
    formats: Sequence[int] = (),
    results: Sequence[int] = (),
) -> bytes:
    body = f"{portal}\0{name}\0".encode() + struct.pack(f">h{len(formats)}h", len(formats), *formats)
    body += struct.pack(">h", len(values))
    for value in values:
        body += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return message("B", body + struct.pack(f">h{len(results)}h", len(results), *results))


def describe(kind: str = "P", name: str = "") -> bytes:
    return message("D", f"{kind}{name}\0".encode())


def execute(portal: str = "", limit: int = 0) -> bytes:
    return message("E", f"{portal}\0".encode() + struct.pack(">i", limit))


SYNC = message("S")
FLUSH = message("H")


class Raw:
    """One connection. ``parameters``, ``process`` and ``key`` are what the server told at the start."""

    def __init__(self, port: int, *, timeout: float = 10.0) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        self.parameters: dict[str, str] = {}
        self.process = 0
        self.key = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def send(self, *parts: bytes) -> None:
        self.sock.sendall(b"".join(parts))

    def receive(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            more = self.sock.recv(count - len(got))
            if not more:
                raise EOFError(got)
            got += more
        return got

    def read(self) -> tuple[str, bytes]:
        kind, length = struct.unpack(">ci", self.receive(5))
        return kind.decode(), self.receive(length - 4)

    def read_until(self, last: str = "Z") -> list[tuple[str, bytes]]:
        found = [self.read()]
        while found[-1][0] != last:
            found.append(self.read())
        return found

    def enter(self, minor: int = 0, **parameters: str) -> list[tuple[str, bytes]]:
        """Come in; what the server said."""
        self.send(startup({"user": "someone", "database": "penstock", **parameters}, minor))
        said = self.read_until()
        for kind, body in said:
            if kind == "S":
                name, value, _ = body.split(b"\0")
                self.parameters[name.decode()] = value.decode()
            elif kind == "K":
                self.process, self.key = struct.unpack(">I", body[:4])[0], body[4:]
        return said

    def ask(self, *parts: bytes) -> list[tuple[str, bytes]]:
        """Send, and read until the server is ready again."""
        self.send(*parts)
        return self.read_until()

    def is_closed(self) -> bool:
        """Wait for the server to hang up."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True


def kinds(said: Sequence[tuple[str, bytes]]) -> str:
    return "".join(kind for kind, _ in said)


def fields(body: bytes) -> dict[str, str]:
    """The fields of an error or a notice."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}


def error(said: Sequence[tuple[str, bytes]]) -> dict[str, str]:
    """The one error in what was said."""
    (body,) = [body for kind, body in said if kind == "E"]
    return fields(body)


def row(body: bytes) -> list[bytes | None]:
    (count,) = struct.unpack(">h", body[:2])
    at, found = 2, []
    for _ in range(count):
        (length,) = struct.unpack(">i", body[at : at + 4])
        at += 4
        found.append(None if length < 0 else body[at : at + length])
        at += max(length, 0)
    return found


def rows(said: Sequence[tuple[str, bytes]]) -> list[list[bytes | None]]:
    return [row(body) for kind, body in said if kind == "D"]


def tags(said: Sequence[tuple[str, bytes]]) -> list[str]:
    return [body[:-1].decode() for kind, body in said if kind == "C"]
