"""Seeing when results are committed, from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

Seen = TypeVar("Seen")
_EVERY = 0.005


class Watch(Generic[Seen]):
    """Calls ``look`` all the time, and keeps when each thing was among its answers first."""

    def __init__(self, look: Callable[[], list[Seen]]) -> None:
        self._look = look
        self._over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.first: dict[Seen, float] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self.note()
                self._over.wait(_EVERY)
            self.note()
        except Exception as error:
            self._error = error

    def note(self) -> None:
        found = self._look()
        now = time.monotonic()
        for each in found:
            self.first.setdefault(each, now)
