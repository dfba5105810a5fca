"""When a stream's next epoch is due."""

from __future__ import annotations

from collections.abc import Callable

from penstock.cluster.model import Decision, Kind, Outcome
from penstock.streams.model import Brought

_LONGEST = 10.0
_PLENTY = 4


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
            return float(min(_LONGEST, self._every * 2 ** min(self._failures, 10)))
        self._failures = 0
        if last.kind is Kind.DRAIN:
            return 0.0
        brought = [Brought.decode(text) for text in last.files]
        # Whoever brings a good part of what it may bring has probably more.
        plenty = any(
            each.rows >= self._rows / _PLENTY or each.bytes >= self._bytes / _PLENTY for each in brought
        )
        return 0.0 if plenty else max(0.0, self._every - last.seconds)
