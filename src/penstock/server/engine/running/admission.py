"""Who may run now, and who waits: a limit for both, fair between users.

A pure state machine: no clock, no threads. Its owner holds a lock around it.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from penstock.errors import SqlError

RUNNING = 100
QUEUED = 1_000


class Admission:
    """Places for queries. Whoever waits is served in turns: one query of each user, then the next of each.

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
