"""Threads that do one thing at a time, and that nobody has to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable


def background(target: Callable[[], object], name: str = "penstock-output") -> threading.Thread:
    """A thread that the process does not wait for at its end."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


class TaskThread:
    """A thread that takes one task after the other: what is offered while it is busy is left out.

    It lasts, since each thread that talks to Spark has a connection of its own.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: Callable[[], object] | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def offer(self, task: Callable[[], object]) -> bool:
        """Whether it takes the task on."""
        with self._changed:
            if self._task is not None or self._closed:
                return False
            self._task = task
            self._changed.notify_all()
        if self._thread is None:
            self._thread = background(self._work, self._name)
        return True

    def wait(self, seconds: float) -> bool:
        """Whether it has nothing to do, now or before so many seconds are over."""
        with self._changed:
            return self._changed.wait_for(lambda: self._task is None, seconds)

    def close(self) -> None:
        """Take nothing more; the thread ends when it is done with what it has."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            finally:
                with self._changed:
                    self._task = None
                    self._changed.notify_all()

    def _next(self) -> Callable[[], object] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._task is not None or self._closed)
            return self._task
