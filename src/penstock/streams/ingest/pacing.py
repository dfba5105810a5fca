"""When the next epoch is due, how much it may poll, and which journals are worth asking."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.cluster.rules.model import BarrierKind, Decision, Outcome
from penstock.sources.base import PartName
from penstock.streams.model import Brought

if TYPE_CHECKING:
    from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
    from penstock.streams.ingest.jobs.task_results import Polled

_LONGEST_PAUSE = 10.0
_PLENTY = 4
_LEAST_BYTES = 1 << 20
_REST_EACH = 1 / 2000
_LONGEST_REST = 5.0


class StreamRhythm:
    """An epoch begins every so often, at once where the last one brought plenty, later where it failed.

    ``wanted`` says whether epochs are wanted at all at the moment. Each decision of this leader is handed to
    ``decided`` once.
    """

    def __init__(
        self,
        every: float,
        rows: int,
        size: int,
        wanted: Callable[[], bool],
        decided: Callable[[Decision], None],
    ) -> None:
        self._every = every
        self._rows = rows
        self._bytes = size
        self._wanted = wanted
        self._decided = decided
        self._seen = 0
        self._failures = 0
        # The first epoch of a leader is due at once, whatever stands here; one that cannot begin is not.
        self._pause = every

    def __call__(self, last: Decision | None) -> float | None:
        if last is not None and last.epoch != self._seen:
            self._seen = last.epoch
            self._pause = self._pause_after(last)
            self._decided(last)
        return self._pause if self._wanted() else None

    def _pause_after(self, last: Decision) -> float:
        if last.outcome is Outcome.ABORT:
            self._failures += 1
            return float(min(_LONGEST_PAUSE, self._every * 2 ** min(self._failures, 10)))
        self._failures = 0
        if last.kind is BarrierKind.DRAIN:
            return 0.0
        brought = [Brought.decode(text) for text in last.files]
        # Whoever brings a good part of what it may bring has probably more.
        plenty = any(
            each.rows >= self._rows / _PLENTY or each.bytes >= self._bytes / _PLENTY for each in brought
        )
        return 0.0 if plenty else max(0.0, self._every - last.seconds)


class Allowance:
    """How much may be polled: bounded by the configuration, and by the room that is left in the queue.

    A poll is asked for rows and may bring any number of bytes, so the room is counted in rows of the size
    that rows had before: in the queue for its room, and in memory for what tasks may hold.
    """

    def __init__(self, limits: PollLimits, left: Callable[[], int], cap: int = 0) -> None:
        self._limits = limits
        self._left = left
        self._cap = cap
        self._row = 0.0
        self._sizes: dict[str, float] = {}

    @property
    def least(self) -> PollLimits:
        """For what must be read although there is no room: as little as makes sense."""
        return replace(self._limits, bytes=min(self._limits.bytes, _LEAST_BYTES))

    def limits(self, sharers: int, used: int = 0) -> PollLimits | None:
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


class Resting:
    """Which journals are worth asking: all, as long as they are few or bring something.

    Those that have nothing new rest for a moment, so that thousands of idle ones cost little.

    One that had nothing is asked again after half a millisecond for each journal there is, five seconds at
    the most: at about 2,000 in a second, looking for news does not get in the way of reading.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[PartName, float] = {}

    def awake(self, journals: Collection[PartName]) -> list[PartName]:
        """Those to ask now. Others than these are not remembered."""
        if len(self._since) > len(journals):
            self._since = {read: since for read, since in self._since.items() if read in journals}
        limit = self._clock() - min(_LONGEST_REST, _REST_EACH * len(journals))
        return [read for read in journals if self._since.get(read, limit) <= limit]

    def heard(self, wanted: Iterable[PartName], busy: Collection[PartName]) -> None:
        """Take note of who had nothing: all but the ``busy``, who brought something or had not their turn."""
        now = self._clock()
        for read in wanted:
            if read not in busy:
                self._since[read] = now
            else:
                self._since.pop(read, None)
