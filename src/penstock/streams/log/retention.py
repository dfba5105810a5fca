"""How long epochs are kept, and the deletion of files that nobody needs any more.

A floor is written first and files are deleted after it: whoever dies in between leaves files that the next
one deletes. An epoch that is not decided is never touched, whatever its number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from penstock.core.failpoints import reach
from penstock.errors import EpochGone
from penstock.streams.layout import group_of
from penstock.streams.log.epoch_log import COMPACT_EVERY, EpochLog, LogView
from penstock.streams.log.readers import ReaderPositions
from penstock.streams.log.segments import LogDocument
from penstock.streams.log.sweeping import Sweeper
from penstock.streams.model import Epoch

MARGIN = 64
"""So many epochs after it, what an epoch left behind is swept: a straggler has long been fenced by then."""
_GROUPS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Tidied:
    """What a round did: the floor it left, and how many files it deleted that belonged to nothing."""

    floor: int
    swept: int = 0


def retain(
    epochs: Iterable[Epoch], total: int, *, now: float, age: float, size: int, positions: Collection[int]
) -> int | None:
    """The new floor; None if nothing is let go.

    ``epochs`` are the retained ones, oldest first, and ``total`` is their size in bytes. From the oldest on,
    an epoch is let go if it was committed more than ``age`` seconds before ``now``, or if it and all later
    ones take more than ``size`` bytes; but not before every reader is past it, and never the end.

    The age is only as good as the wall clocks of the leaders that committed, and of the one who asks.
    """
    floor = None
    readers = min(positions, default=None)
    for epoch in epochs:
        is_needed = epoch.ended or (readers is not None and epoch.number > readers)
        if is_needed or not (total > size or _age(epoch, now) > age):
            break
        floor = epoch.number + 1
        total -= epoch.bytes
    return floor


def _age(epoch: Epoch, now: float) -> float:
    return now - datetime.fromisoformat(epoch.at).timestamp() if epoch.at else 0.0


class LogRetention:
    """Keeps the log of a stream in order: see `tidy`. Several may do so at once, and any may die."""

    def __init__(
        self, log: EpochLog, *, age: float, size: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._log = log
        self._readers = ReaderPositions(log)
        self._sweeper = Sweeper(log)
        self._age = age
        self._size = size
        self._clock = clock
        self._swept_at = 0

    def tidy(self) -> Tidied:
        """Compact the log, let go of what is not retained, and delete the files that belong to nothing.

        It is cheap when there is nothing to do, and meant to be called every few seconds.
        """
        self._log.compact()
        self._retain()
        reach("retention.floor")
        self._clear()
        return Tidied(self._log.floor, self._sweep())

    def _retain(self) -> None:
        wanted = 0

        def floor(view: LogView) -> int:
            nonlocal wanted
            # Read after the document: see `penstock.streams.log.readers`.
            positions = self._readers.positions()
            found = retain(
                self._log.retained(view),
                view.size,
                now=self._clock(),
                age=self._age,
                size=self._size,
                positions=positions,
            )
            wanted = view.floor if found is None else found
            return wanted

        document = self._log.raise_floor(floor)
        if wanted > document.floor and self._log.compact(force=True):
            self._log.raise_floor(floor)

    def _clear(self) -> None:
        """Delete the rows of epochs that were let go, as far as nobody is still reading them."""
        document = self._log.view().document
        if document.cleared >= document.floor:
            return
        # Read after the document: see `penstock.streams.log.readers`.
        limit = self._readers.unheld(document.floor)
        if document.cleared < limit:
            self._sweeper.clear(document.cleared, limit)
            reach("retention.cleared")
            self._log.change(lambda view: replace(view.document, cleared=max(view.document.cleared, limit)))

    def _sweep(self) -> int:
        """Delete what aborted epochs and lost attempts left, and states that nobody refers to."""
        committed = self._log.committed()
        if committed < self._swept_at + COMPACT_EVERY:
            return 0
        swept = self._sweeper.states(committed - MARGIN) + self._sweeper.segments()
        swept += self._sweeper.runs(committed - MARGIN) + self._sweeper.finished(committed - MARGIN)
        swept += self._sweeper.polled(committed - MARGIN) + self._sweep_groups(committed - MARGIN)
        self._swept_at = committed
        return swept

    def _sweep_groups(self, limit: int) -> int:
        document, count = self._log.view().document, 0
        first = max(document.swept, group_of(document.floor))
        for group in range(first, min(group_of(limit + 1), first + _GROUPS_AT_ONCE)):
            try:
                count += self._sweeper.group(group)
            except EpochGone:
                continue  # somebody let them go meanwhile, and deletes all of them
            self._log.change(partial(_with_swept, group + 1))
        return count


def _with_swept(swept: int, view: LogView) -> LogDocument:
    return replace(view.document, swept=max(view.document.swept, swept))
