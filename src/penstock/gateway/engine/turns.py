"""Who may hold rows of the system in memory: a few at a time, however many ask."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

SIZE = 8


class Turns:
    """At most so many, and half of them for one user, so that nobody keeps the others out. Thread-safe."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._share = max(1, size // 2)
        self._free = threading.Condition()
        self._taken: Counter[str] = Counter()

    def take(self, user: str) -> None:
        """Wait for a turn; `give` it back afterwards."""
        with self._free:
            self._free.wait_for(lambda: self._taken.total() < self._size and self._taken[user] < self._share)
            self._taken[user] += 1

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

    def take(self) -> None:
        self.turns.take(self.user)

    def give(self) -> None:
        self.turns.give(self.user)
