"""Sockets that take connections, and how many may be open before they show who they are."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

_BACKLOG = 1024
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_Connection = TypeVar("_Connection")
_log = logging.getLogger(__name__)


class Unauthenticated(Generic[_Connection]):
    """Connections that have not shown yet who they are, so many at most, in the order in which they came.

    When there are too many, the oldest of the address that has most must go: who is honest is greeted in no
    time, and whoever opens connections without end pushes out its own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._connections: dict[_Connection, str] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def all(self) -> list[_Connection]:
        return list(self._connections)

    def add(self, connection: _Connection, address: str) -> _Connection | None:
        """Take one in. Who is given back must go, and is not among them any more."""
        leaving: _Connection | None = None
        if len(self._connections) >= self._most:
            [(pushing, _)] = Counter(self._connections.values()).most_common(1)
            leaving = next(each for each, where in self._connections.items() if where == pushing)
            del self._connections[leaving]
        self._connections[connection] = address
        return leaving

    def remove(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)


class Listeners:
    """Listens at every address of a host. Belongs to the event loop in which it is made.

    ``admit`` gets each socket that was accepted, not blocking, and the address it comes from.
    """

    def __init__(self, admit: Callable[[socket.socket, str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._admit = admit
        self._sockets: list[socket.socket] = []

    async def start(self, host: str, port: int) -> int:
        """Listen, and tell the port: with 0 a free one is taken. Raises `OSError`."""
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(found):
            # With port 0 all addresses get the port that the first was given.
            port = self._listen(family, (address[0], port, *address[2:]))
        for each in self._sockets:
            self._loop.add_reader(each, self._accept, each)
        return port

    def close(self) -> None:
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets.clear()

    def _listen(self, family: int, address: tuple[object, ...]) -> int:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            self.close()
            raise
        self._sockets.append(listener)
        return int(listener.getsockname()[1])

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_BACKLOG):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                # Nothing can be accepted until something is closed: to try at once would only burn time.
                _log.warning("no connection can be accepted at the moment: %s", error)
                self._loop.remove_reader(listener)
                self._loop.call_later(1.0, self._accept_again, listener)
                return
            sock.setblocking(False)
            self._admit(sock, str(address[0]))

    def _accept_again(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            self._loop.add_reader(listener, self._accept, listener)
