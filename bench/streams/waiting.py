"""Waiting for peers, with a deadline and a reason."""

from __future__ import annotations

import time
from collections.abc import Callable

_PATIENCE = 300.0


def wait_until(condition: Callable[[], bool], what: str, log: Callable[[], str] = lambda: "") -> None:
    """Wait; after some minutes give up with ``what`` was waited for, and the end of the log."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_PATIENCE:g} s for {what}\n{log()}")
        time.sleep(0.01)
