"""Connections to the shadow, each under the role of one user.

A connection logs in as its role instead of switching to it: nothing that a statement could do, classified
wrongly or not, leads back to the owner, because that session never was the owner. The price is a log-in, two
milliseconds, when a user comes for the first time or after a long time. Whoever reaches the socket needs no
password: its folder is open to nobody but us.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from penstock.errors import SqlError
from penstock.server.shadow.postgres.link import Link

_SIZE = 16
_PATIENCE = 30.0


class Pool:
    """At most so many connections, and at most half of them for one role, so that one user who has them all
    sleep keeps nobody else out. Thread-safe.
    """

    def __init__(self, connect: Callable[[str], Link], size: int = _SIZE) -> None:
        self._connect = connect
        self._size = size
        self._share = max(1, size // 2)
        self._free = threading.Condition()
        self._idle: OrderedDict[Link, None] = OrderedDict()
        self._used: Counter[str] = Counter()
        self._open = 0
        self._generation = 0

    def take(self, role: str) -> Link:
        """A connection of that role that nobody else has; `give` or `drop` it afterwards."""
        deadline = time.monotonic() + _PATIENCE
        with self._free:
            found: Link | None = None
            while self._used[role] >= self._share or (
                (found := self._find(role)) is None and self._open >= self._size
            ):
                if not self._free.wait(deadline - time.monotonic()):
                    raise SqlError(
                        "the catalog is busy with other statements", hint="try again", sqlstate="53300"
                    )
            self._used[role] += 1
            if found is not None:
                return found
            self._open += 1
            generation = self._generation
        try:
            link = self._connect(role)
        except BaseException:
            self._closed(role)
            raise
        link.generation = generation
        return link

    def give(self, link: Link) -> None:
        """Back for the next one."""
        with self._free:
            if link.generation == self._generation and link.usable:
                self._idle[link] = None
                self._unused(link.role)
                return
        self.drop(link)

    def drop(self, link: Link) -> None:
        """Not fit for another."""
        link.close()
        self._closed(link.role)

    def clear(self, role: str | None = None) -> None:
        """Close the idle ones, of one role or of all; then also those in use, when they come back."""
        with self._free:
            if role is None:
                self._generation += 1
            for link in [link for link in self._idle if role in (None, link.role)]:
                del self._idle[link]
                link.close()
                self._open -= 1
            self._free.notify_all()

    def _find(self, role: str) -> Link | None:
        """An idle one of the role. If all are taken, the one that was idle longest makes room."""
        for link in reversed(self._idle):
            if link.role == role:
                del self._idle[link]
                return link
        if self._open >= self._size and self._idle:
            oldest, _ = self._idle.popitem(last=False)
            oldest.close()
            self._open -= 1
        return None

    def _closed(self, role: str) -> None:
        with self._free:
            self._open -= 1
            self._unused(role)

    def _unused(self, role: str) -> None:
        self._used[role] -= 1
        if not self._used[role]:
            del self._used[role]
        # Not everybody who waits can take it: it may be another's.
        self._free.notify_all()
