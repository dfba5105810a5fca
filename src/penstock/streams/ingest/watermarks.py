"""Watermarks: up to which event time a source has brought everything that is in order.

Each part has a *low*, the time before which no row of it is expected any more. Of a part that brings rows it
is its newest row; of one that nobody has read yet it is the begin of time. A part that was asked and had
nothing for ``idle_after`` is idle: its low is what the source had brought when it was last asked. Parts that
nobody knows yet have a low as well, which is what the source had brought when the last complete listing
began. A part that has finished has none.

The watermark of a source is the least of these lows, less the lateness that is allowed, and never goes back.
A row below the watermark of the epochs before its own is late. So no row is late that is in order within its
part, as long as the part is known and not idle; nor one that was written after all that had been read when
its part was last asked, or listed.

Of journals, the queues count as parts. They are asked when all journals were read to their ends, and nothing
that was read for them waits (see `JournalEnds`); time without that does not make them idle, and those that
are idle are waited for again. What is known of them is committed with the states of their owner.

All of it follows from committed epochs alone, so that every instance comes to the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.sources.base import PartName
from penstock.streams.model import OPEN, PartState, Standing

if TYPE_CHECKING:
    from penstock.streams.api.stream import SourceSpec

MICRO = 1_000_000
Parts = Mapping[PartName, PartState]
Times = Mapping[str, int]
"""Event times in microseconds, by source."""
_NOTHING = OPEN + 1
"""What stands for a source that had brought nothing by then."""


def latest(each: Iterable[Times]) -> dict[str, int]:
    """The greatest of each source."""
    merged: dict[str, int] = {}
    for times in each:
        for source, value in times.items():
            merged[source] = max(value, merged.get(source, value))
    return merged


def least(each: Iterable[Times]) -> dict[str, int]:
    """The least of each source."""
    merged: dict[str, int] = {}
    for times in each:
        for source, value in times.items():
            merged[source] = min(value, merged.get(source, value))
    return merged


def told(standings: Iterable[Standing], lateness: Times) -> dict[str, int]:
    """The watermarks that rows of a committed epoch were judged by.

    Those who wrote standings before there were lows judged by the newest row of a source, and windows that
    were closed by that stay closed.
    """
    return latest(
        standing.watermark if standing.open is not None else _less(standing.newest, lateness)
        for standing in standings
    )


def advanced(standings: Collection[Standing], lateness: Times) -> dict[str, int]:
    """The watermarks by which rows of the next epoch are judged."""
    lows = least(standing.low for standing in standings)
    found = {source: low for source, low in lows.items() if low != OPEN}
    return latest([told(standings, lateness), _less(found, lateness)])


def lateness_of(sources: Mapping[str, SourceSpec]) -> dict[str, int]:
    """By source with event time, how far rows may be out of order, in microseconds."""
    return {
        name: round(spec.timestamps.lateness * MICRO)
        for name, spec in sources.items()
        if spec.timestamps is not None
    }


class Lows:
    """The lows of the parts of one instance."""

    def __init__(
        self, sources: Mapping[str, SourceSpec], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle_after = {
            name: spec.timestamps.idle_after for name, spec in sources.items() if spec.timestamps is not None
        }
        self._clock = clock
        self._quiet: dict[PartName, tuple[float, float]] = {}
        """Since when a part has had nothing, and when that was last heard of."""
        self._heard: dict[PartName, int] = {}
        """What the source had brought when a part that had nothing was last asked."""

    def moved(self, before: Parts, asked: Parts, brought: Mapping[PartName, int], newest: Times) -> Parts:
        """The states of parts that were ``asked``, with what is known of their time.

        ``brought`` has the newest event time of those that had rows, ``newest`` is what each source had
        brought before they were asked.
        """
        return {
            name: self._moved(name, before.get(name, PartState()), after, brought.get(name), newest)
            for name, after in asked.items()
        }

    def of(self, parts: Parts, awaited: Collection[PartName] = ()) -> dict[str, int]:
        """The least low of each source that has event time and parts that go on.

        Those that are ``awaited`` have rows, or may have some, and do not count as idle.
        """
        return least(
            {name.source: self._low(name, known if name not in awaited else replace(known, idle=False))}
            for name, known in parts.items()
            if not known.finished and name.source in self._idle_after
        )

    def paused(self, names: Iterable[PartName]) -> None:
        """Take note that parts could not be asked: this time does not count towards ``idle_after``."""
        now = self._clock()
        for name in names:
            if name in self._quiet:
                since, heard = self._quiet[name]
                self._quiet[name] = since + now - heard, now

    def forget(self, kept: Collection[PartName]) -> None:
        """Forget the parts that are not among these."""
        self._quiet = {name: known for name, known in self._quiet.items() if name in kept}
        self._heard = {name: known for name, known in self._heard.items() if name in kept}

    def _moved(
        self, name: PartName, before: PartState, after: PartState, brought: int | None, newest: Times
    ) -> PartState:
        if name.source not in self._idle_after:
            return after
        if after.finished:
            self._quiet.pop(name, None)
            self._heard.pop(name, None)
            return after
        if brought is not None:
            self._quiet.pop(name, None)
            # One that was idle begins anew: the others must not run away from it.
            is_first = before.idle or before.newest is None
            return replace(after, newest=brought if is_first else max(before.newest or brought, brought))
        now = self._clock()
        since, _ = self._quiet.get(name, (now, now))
        self._quiet[name] = since, now
        if (heard := newest.get(name.source)) is not None:
            self._heard[name] = heard
        limit = self._idle_after[name.source]
        idle = before.idle or (limit is not None and now - since >= limit)
        return replace(after, newest=before.newest, idle=idle)

    def _low(self, name: PartName, known: PartState) -> int:
        low = OPEN if known.newest is None else known.newest
        return max(low, self._heard.get(name, OPEN)) if known.idle else low


def _less(times: Times, lateness: Times) -> dict[str, int]:
    return {source: value - lateness[source] for source, value in times.items() if source in lateness}


class JournalEnds:
    """What the sources had brought when the journals of one instance were last read to their ends.

    A queue of journals is idle only if no journal has anything for it. Documents of a journal may go to any
    queue. So a queue without rows was *asked* when every journal of its source was read to its end, whoever
    owns them, and what was read for it is visible. Each instance tells with its epoch what the source had
    brought when each of its journals was last read to its end: the least of all is what rows are later than
    that come after. While a journal has more to read, was not asked yet, or was just found, queues without
    rows are waited for like those that nobody has asked.

    A document that is too new to be read (``read_delay``), with what stands behind it, counts as not written
    yet.
    """

    def __init__(self) -> None:
        self._ends: dict[PartName, int] = {}

    def heard(self, asked: Iterable[PartName], behind: Collection[PartName], newest: Times) -> None:
        """Journals were ``asked``, some have more; ``newest`` is what sources had brought before that."""
        for name in asked:
            if name in behind:
                self._ends.pop(name, None)
            else:
                self._ends[name] = newest.get(name.source, _NOTHING)

    def clear(self) -> None:
        """What was read will be read again, so nobody knows of any that it was read to its end."""
        self._ends.clear()

    def of(self, journals: Collection[PartName], *, free: bool) -> dict[str, int]:
        """What to tell of these, by source. Not ``free``: they could not all be asked."""
        self._ends = {name: end for name, end in self._ends.items() if name in journals}
        return least({name.source: self._ends.get(name, OPEN) if free else OPEN} for name in journals)


def looked(standings: Iterable[Standing], found: Mapping[str, Collection[str]]) -> dict[str, int]:
    """What an epoch tells of all journals; those that were ``found`` in it were not read."""
    fresh = {source: OPEN for source, parts in found.items() if parts}
    return least([*(each.looked for each in standings), fresh])


def brought_by(looks: Times, newest: Times) -> dict[str, int]:
    """What sources had brought when their journals were last read to their ends; of others the newest."""
    known = {source: value for source, value in looks.items() if value > _NOTHING}
    return {**{source: value for source, value in newest.items() if source not in looks}, **known}
