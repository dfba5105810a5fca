"""A clock for tests."""

from __future__ import annotations


class ManualClock:
    """A clock that only the test moves. Call it for the time, in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
