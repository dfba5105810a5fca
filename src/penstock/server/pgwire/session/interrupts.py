"""Which statement of a session runs, and whether somebody wants it to stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import SqlError
from penstock.server.base import Execution

_CANCELED = "canceling statement due to user request"


class Interrupts:
    """The session's thread says what it does; `cancel` may be called by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = False
        self._current: Execution | None = None
        self._canceled: str | None = None

    def begin(self) -> None:
        """The session works on a message."""
        self._working = True

    def end(self) -> None:
        """It is done: whoever cancels from now on comes too late."""
        with self._lock:
            self._working, self._canceled = False, None

    @contextmanager
    def during(self, execution: Execution | None) -> Iterator[None]:
        """While this runs, `cancel` stops the execution."""
        with self._lock:
            self._current = execution
            canceled = self._canceled
        try:
            if canceled is not None:
                if execution is not None:
                    execution.cancel(canceled)
                raise SqlError(canceled, sqlstate="57014")
            yield
        finally:
            with self._lock:
                self._current = None

    def cancel(self, why: str = _CANCELED) -> None:
        """Stop the statement that runs, if one does. May block for a moment."""
        with self._lock:
            if not self._working:
                return
            self._canceled = why
            current = self._current
        if current is not None:
            current.cancel(why)
