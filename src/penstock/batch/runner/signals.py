"""SIGTERM and Ctrl-C while a runner works."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping_on_signals(stop: Callable[[], None], *, enabled: bool) -> Iterator[None]:
    """Call ``stop`` on the first signal; a second Ctrl-C does not wait any longer.

    Only the main thread may handle signals: elsewhere this does nothing. PySpark's own handler of
    Ctrl-C, which cancels all jobs of the session, is back in its place afterwards.
    """
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True
        # In a thread of its own: the handler may have interrupted the very lock that it needs.
        threading.Thread(target=stop, name="penstock-stop", daemon=True).start()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
