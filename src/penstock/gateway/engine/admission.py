"""Who may run now, and who waits: a limit for both, fair between users.

A pure state machine: no clock, no threads. Its owner holds a lock around it.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from penstock.errors import SqlError

RUNNING = 100
QUEUED = 1_000


class Admission:
    """Places for queries. Whoever waits is served in turns: one query of each user, then the next of each."""

    def __init__(self, running: int = RUNNING, queued: int = QUEUED) -> None:
        self._limit = running
        self._room = queued
        self._running: set[str] = set()
        # The first user is the next one served. Nobody stands here without a waiting query.
        self._waiting: OrderedDict[str, deque[str]] = OrderedDict()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def enter(self, user: str, query: str) -> bool:
        """Ask for a place: True if it runs now, False if it waits. `SqlError` if there is no room."""
        if len(self._running) < self._limit:
            self._running.add(query)
            return True
        if self.waiting >= self._room:
            raise SqlError(
                f"too many queries: {self.running} run and {self.waiting} wait",
                sqlstate="53300",
                hint="try again later, or raise the limits of running and queued queries",
            )
        self._waiting.setdefault(user, deque()).append(query)
        return False

    def leave(self, query: str) -> list[str]:
        """A query ended, or gave up waiting: those that may run now. Harmless for one that is not here."""
        self._running.discard(query)
        for user, queue in list(self._waiting.items()):
            if query in queue:
                queue.remove(query)
                if not queue:
                    del self._waiting[user]
        admitted = []
        while self._waiting and len(self._running) < self._limit:
            admitted.append(self._next())
        return admitted

    def _next(self) -> str:
        user, queue = self._waiting.popitem(last=False)
        query = queue.popleft()
        if queue:
            self._waiting[user] = queue
        self._running.add(query)
        return query
