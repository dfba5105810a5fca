"""Journals that have nothing new rest for a moment, so that thousands of idle ones cost little."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from penstock.sources.parts import PartName

_EACH = 1 / 2000
_LONGEST = 5.0


class Resting:
    """Which journals are worth asking: all, as long as they are few or bring something.

    One that had nothing is asked again after half a millisecond for each journal there is, five seconds at
    the most: at about 2,000 in a second, looking for news does not get in the way of reading.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[PartName, float] = {}

    def awake(self, journals: Collection[PartName]) -> list[PartName]:
        """Those to ask now."""
        limit = self._clock() - min(_LONGEST, _EACH * len(journals))
        return [read for read in journals if self._since.get(read, limit) <= limit]

    def heard(self, wanted: Iterable[PartName], busy: Collection[PartName]) -> None:
        """Take note of who had nothing: all but the ``busy``, who brought something or had not their turn."""
        now = self._clock()
        for read in wanted:
            if read not in busy:
                self._since[read] = now
            else:
                self._since.pop(read, None)
