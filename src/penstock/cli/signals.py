"""SIGTERM and Ctrl-C: the first one asks to stop, another one does not wait."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from penstock.cli import exits

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Some parents pass on a Ctrl-C that the terminal has sent to their children too.
_SAME = 1.0


class Signals:
    """While in use, signals call ``first`` and then, if people insist, end the process."""

    def __init__(self, first: Callable[[str], None], again: Callable[[], None] = lambda: None) -> None:
        self._first = first
        self._again = again
        self._at: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _SIGNALS}
            self.install()
        return self

    def install(self) -> None:
        """Take the signals, also from Spark, which takes SIGINT when its session starts."""
        if self._before:
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self._at is None:
            self._at = now
            self._first(signal.Signals(number).name)
        elif now - self._at > _SAME:
            self._again()
            os._exit(exits.RESUMABLE)
