"""Threads that come when there is work, and go when there is none."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

_LINGER = 10.0
_log = logging.getLogger(__name__)
Job = Callable[[], None]


class ThreadPool:
    """Runs each job at once in a thread of its own, up to ``most`` at a time; further ones wait in order.

    A connection has a thread only while it works, and one that has nothing to do for ten seconds ends: a
    burst of many connections leaves nothing behind.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        # Of threads that have ended: names are used again, so that there are never more than threads.
        self._numbers: list[int] = []
        self._closed = False

    @property
    def count(self) -> int:
        return len(self._threads)

    def run(self, job: Job) -> None:
        """Have it run; ``job`` handles its errors itself."""
        with self._wake:
            if self._closed:
                return
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._wake.notify()
            elif len(self._threads) < self._most:
                number = heapq.heappop(self._numbers) if self._numbers else len(self._threads) + 1
                name = f"{self._name}-{number}"
                thread = threading.Thread(target=self._work, args=[number], name=name, daemon=True)
                self._threads.add(thread)
                thread.start()

    def close(self, patience: float) -> None:
        """Take no more jobs, and wait that many seconds for those that run."""
        with self._wake:
            self._closed = True
            self._jobs.clear()
            self._wake.notify_all()
            threads = list(self._threads)
        end = time.monotonic() + patience
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _work(self, number: int) -> None:
        while (job := self._next(number)) is not None:
            try:
                job()
            except Exception:
                _log.exception("a job of the gateway failed")
            # It holds a whole session: not until the next one comes.
            del job

    def _next(self, number: int) -> Job | None:
        with self._wake:
            self._idle += 1
            try:
                if not self._jobs and not self._closed:
                    self._wake.wait_for(lambda: self._jobs or self._closed, _LINGER)
                if self._jobs:
                    return self._jobs.popleft()
                self._threads.discard(threading.current_thread())
                heapq.heappush(self._numbers, number)
                return None
            finally:
                self._idle -= 1
