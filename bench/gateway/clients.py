"""Clients that cost little: libpq itself, and one that only drains a socket."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import psycopg
from psycopg import pq

CHUNK = 1_000
_READY = b"Z\x00\x00\x00\x05I"
_PROTOCOL = 196_608


class Libpq:
    """A connection of libpq."""

    def __init__(self, url: str) -> None:
        # Not by PGconn.connect, which lets no other thread run: the server may be one.
        self._session = psycopg.connect(url, autocommit=True)
        self.connection = self._session.pgconn

    def ask(self, sql: str, *, binary: bool = False) -> int:
        """How many rows came. The result is held whole, as ``PQexec`` does."""
        text = sql.encode()
        if binary:
            result = self.connection.exec_params(text, None, result_format=pq.Format.BINARY)
        else:
            result = self.connection.exec_(text)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise RuntimeError(result.error_message.decode())
        rows = result.ntuples
        result.clear()
        return rows

    def stream(self, sql: str, *, binary: bool = False) -> int:
        """How many rows came. They are taken in chunks, and none is kept."""
        self.connection.send_query_params(sql.encode(), None, result_format=pq.Format(int(binary)))
        self.connection.set_chunked_rows_mode(CHUNK)
        rows = 0
        while (result := self.connection.get_result()) is not None:
            if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.TUPLES_CHUNK):
                raise RuntimeError(result.error_message.decode())
            rows += result.ntuples
            result.clear()
        return rows

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def drained(url: str, sql: str, *, binary: bool) -> int:
    """Ask, and throw the bytes of the answer away unseen: how many there were."""
    place = urlsplit(url)
    startup = f"user\0{place.username}\0database\0{place.path[1:]}\0\0".encode()
    query = sql.encode() + b"\0"
    with socket.create_connection((place.hostname, place.port)) as sock:
        sock.sendall(struct.pack("!ii", len(startup) + 8, _PROTOCOL) + startup)
        _until_ready(sock)
        if binary:
            bind = b"\0\0" + struct.pack("!hhhh", 0, 0, 1, 1)
            parts = [(b"P", b"\0" + query + b"\0\0"), (b"B", bind), (b"E", b"\0" + bytes(4)), (b"S", b"")]
        else:
            parts = [(b"Q", query)]
        sock.sendall(b"".join(kind + struct.pack("!i", len(body) + 4) + body for kind, body in parts))
        return _until_ready(sock)


def _until_ready(sock: socket.socket) -> int:
    space, total, tail = bytearray(1 << 20), 0, b""
    view = memoryview(space)
    while not tail.endswith(_READY):
        size = sock.recv_into(view)
        if not size:
            raise RuntimeError("the server hung up")
        total += size
        tail = (tail + bytes(view[max(0, size - len(_READY)) : size]))[-len(_READY) :]
    return total
