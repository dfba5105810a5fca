"""How much an instance may poll in an epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.streams.ingest import Limits, Polled

_LEAST = 1 << 20


class Allowance:
    """How much may be polled: bounded by the configuration, and by the room that is left in the queue.

    A poll is asked for rows and may bring any number of bytes, so the room is counted in rows of the size
    that rows had before: in the queue for its room, and in memory for what tasks may hold.
    """

    def __init__(self, limits: Limits, left: Callable[[], int], cap: int = 0) -> None:
        self._limits = limits
        self._left = left
        self._cap = cap
        self._row = 0.0
        self._sizes: dict[str, float] = {}

    @property
    def least(self) -> Limits:
        """For what must be read although there is no room: as little as makes sense."""
        return replace(self._limits, bytes=min(self._limits.bytes, _LEAST))

    def limits(self, sharers: int, used: int = 0) -> Limits | None:
        """What one of ``sharers`` instances may poll now; None for nothing.

        ``used`` are bytes beside those of the queue.
        """
        left = (self._left() - used) // max(1, sharers)
        if left <= 0:
            return None
        # One row at the least, or a row that is larger than its share would stop everything for good.
        rows = min(self._limits.rows, max(1, int(left / self._row))) if self._row else self._limits.rows
        size = min(self._limits.bytes, left)
        return replace(self._limits, rows=rows, bytes=size, sizes=dict(self._sizes))

    def is_filled_by(self, used: int) -> bool:
        """Whether it is rather these bytes that take the room than those of the queue."""
        return used > self._cap - self._left()

    def learn(self, polled: Polled) -> None:
        """Take note of how large rows are."""
        rows = sum(file.record.rows for file in polled.files)
        if rows:
            self._row = sum(file.record.bytes for file in polled.files) / rows
        self._sizes.update(polled.sizes)
