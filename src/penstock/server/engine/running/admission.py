"""Who may run now, and who waits: a limit for both, fair between users.

`Admission` decides about queries on Spark. `Turns` decides who may hold rows of the system tables in memory.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import SqlError

RUNNING = 100
QUEUED = 1_000
TURNS = 8
_LOOK = 0.5
"""Seconds after which who waits asks whether that is still wanted."""


class Admission:
    """Places for queries: a pure state machine without clock and threads. Its owner holds a lock around it.

    Whoever waits is served in turns: one query of each user, then the next of each.

    Of many places, to run or to wait, one user gets nine tenths: cursors that nobody reads, or a program that
    asks without end, keep nobody else out.
    """

    def __init__(self, running: int = RUNNING, queued: int = QUEUED) -> None:
        self._limit = running
        self._room = queued
        self._running: dict[str, str] = {}
        # The first user is the next one served. Nobody stands here without a waiting query.
        self._waiting: OrderedDict[str, deque[str]] = OrderedDict()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def waiting_of_others(self, user: str) -> int:
        """How many queries of other users wait for a place."""
        return sum(len(queue) for other, queue in self._waiting.items() if other != user)

    def enter(self, user: str, query: str) -> bool:
        """Ask for a place: True if it runs now, False if it waits. `SqlError` if there is no room."""
        if self._may_run(user):
            self._running[query] = user
            return True
        own = len(self._waiting.get(user, ()))
        if self.waiting >= self._room or own >= _share(self._room):
            raise SqlError(
                f"too many queries: {self.running} run and {self.waiting} wait, {own} of them yours",
                sqlstate="53300",
                hint="try again later, or raise the limits of running and queued queries",
            )
        self._waiting.setdefault(user, deque()).append(query)
        return False

    def leave(self, query: str) -> list[str]:
        """A query ended, or gave up waiting: those that may run now. Harmless for one that is not here."""
        self._running.pop(query, None)
        for user, queue in list(self._waiting.items()):
            if query in queue:
                queue.remove(query)
                if not queue:
                    del self._waiting[user]
        admitted = []
        while (ready := next(filter(self._may_run, self._waiting), None)) is not None:
            admitted.append(self._next(ready))
        return admitted

    def _may_run(self, user: str) -> bool:
        if len(self._running) >= self._limit:
            return False
        # To count them costs something, and cannot matter while there is room for all.
        most = _share(self._limit)
        return len(self._running) < most or sum(each == user for each in self._running.values()) < most

    def _next(self, user: str) -> str:
        queue = self._waiting.pop(user)
        query = queue.popleft()
        if queue:
            self._waiting[user] = queue
        self._running[query] = user
        return query


def _share(places: int) -> int:
    """How many of them one user may have."""
    return places - places // 10


class Turns:
    """At most so many, and half of them for one user, so that nobody keeps the others out. Thread-safe."""

    def __init__(self, size: int = TURNS) -> None:
        self._size = size
        self._share = max(1, size // 2)
        self._free = threading.Condition()
        self._taken: Counter[str] = Counter()

    def take(self, user: str, wanted: Callable[[], bool]) -> bool:
        """Wait for a turn as long as it is wanted; whether there is one. `give` it back afterwards."""
        with self._free:
            while self._taken.total() >= self._size or self._taken[user] >= self._share:
                if not wanted():
                    return False
                self._free.wait(_LOOK)
            self._taken[user] += 1
            return True

    def give(self, user: str) -> None:
        with self._free:
            self._taken[user] -= 1
            if not self._taken[user]:
                del self._taken[user]
            self._free.notify_all()


@dataclass(frozen=True, slots=True)
class Turn:
    """One user's next turn."""

    turns: Turns
    user: str

    def take(self, wanted: Callable[[], bool]) -> bool:
        return self.turns.take(self.user, wanted)

    def give(self) -> None:
        self.turns.give(self.user)
