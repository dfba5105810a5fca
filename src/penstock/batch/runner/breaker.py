"""When attempts fail one after the other with the same error, trying on only sets partitions aside."""

from __future__ import annotations

import re
import threading

from penstock.core.ranges import Range
from penstock.errors import FailingAlike, PenstockError

# Of fewer partitions than this it may be the partitions' fault.
_FEWEST = 3
# Numbers and names that are made up differ between partitions; the error is the same.
_PARTICULARS = re.compile(r"\b[0-9a-f]{6,}\b|\d+")


class Breaker:
    """Counts failures in a row with the same error, over all partitions. For any thread.

    ``limit`` 0 never trips.
    """

    def __init__(self, limit: int, run: str) -> None:
        self._limit = limit
        self._run = run
        self._lock = threading.Lock()
        self._kind = ""
        self._count = 0
        self._partitions: set[Range] = set()

    def succeeded(self) -> None:
        with self._lock:
            self._kind = ""

    def failed(self, error: PenstockError, partition: Range) -> FailingAlike | None:
        """Why the run should halt, if this was one failure too many."""
        first = (error.what.splitlines() or [""])[0]
        kind = f"{error.code} {_PARTICULARS.sub('#', first)}"
        with self._lock:
            if kind != self._kind:
                self._kind, self._count = kind, 0
                self._partitions.clear()
            self._count += 1
            self._partitions.add(partition)
            if not self._limit or self._count < self._limit or len(self._partitions) < _FEWEST:
                return None
            return FailingAlike(
                f"the last {self._count} attempts failed with the same error: {first}",
                left="complete partitions and checkpoints are kept, and nothing more was tried",
                hint=f"mend the cause, then `penstock runs resume {self._run}`; what was set aside already "
                f"is tried again after `penstock partitions retry {self._run} --all`",
            )
