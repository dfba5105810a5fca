"""Who may hold rows of the system in memory: a few at a time, however many ask."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

SIZE = 8
_LOOK = 0.5
"""Seconds after which who waits asks whether that is still wanted."""


class Turns:
    """At most so many, and half of them for one user, so that nobody keeps the others out. Thread-safe."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._share = max(1, size // 2)
        self._free = threading.Condition()
        self._taken: Counter[str] = Counter()

    def take(self, user: str, wanted: Callable[[], bool]) -> bool:
        """Wait for a turn as long as it is wanted; whether there is one. `give` it back afterwards."""
        with self._free:
            while self._taken.total() >= self._size or self._taken[user] >= self._share:
                if not wanted():
                    return False
                self._free.wait(_LOOK)
            self._taken[user] += 1
            return True

    def give(self, user: str) -> None:
        with self._free:
            self._taken[user] -= 1
            if not self._taken[user]:
                del self._taken[user]
            self._free.notify_all()


@dataclass(frozen=True, slots=True)
class Turn:
    """One user's next turn."""

    turns: Turns
    user: str

    def take(self, wanted: Callable[[], bool]) -> bool:
        return self.turns.take(self.user, wanted)

    def give(self) -> None:
        self.turns.give(self.user)
