"""How many bytes clients may have a server keep for them: each one, and all together."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable

from penstock.errors import SqlError

CONNECTION = 256 << 20
CLIENTS = 1 << 30
_LITTLE = 1 << 20
"""Who has no more than this is always given it: nobody is locked out by others that take all there is."""


class Budget:
    """So many bytes for all owners, and so many for each. Safe for many threads."""

    def __init__(self, total: int = CLIENTS, each: int = CONNECTION) -> None:
        self.total = total
        self.each = each
        self._lock = threading.Lock()
        self._taken: Counter[Hashable] = Counter()
        self._sum = 0

    @property
    def taken(self) -> int:
        return self._sum

    def take(self, owner: Hashable, size: int) -> bool:
        """Whether there is room for so many bytes more; then they are taken."""
        with self._lock:
            own = self._taken[owner] + size
            if own > self.each or (self._sum + size > self.total and own > _LITTLE):
                return False
            self._taken[owner] = own
            self._sum += size
            return True

    def give(self, owner: Hashable, size: int) -> None:
        with self._lock:
            self._taken[owner] -= size
            self._sum -= size
            if not self._taken[owner]:
                del self._taken[owner]

    def give_all(self, owner: Hashable) -> None:
        """An owner is gone, and all that it had."""
        with self._lock:
            self._sum -= self._taken.pop(owner, 0)


class Purse:
    """What one connection may take of a budget."""

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()

    def take(self, size: int, what: str, hint: str) -> None:
        """Take so many bytes for ``what``, or raise `SqlError` 53200."""
        if not self._budget.take(self, size):
            raise SqlError(
                f"out of memory for {what}: {size:,} bytes more are too many", sqlstate="53200", hint=hint
            )

    def give(self, size: int) -> None:
        self._budget.give(self, size)

    def close(self) -> None:
        self._budget.give_all(self)
