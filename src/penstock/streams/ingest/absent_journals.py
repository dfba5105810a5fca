"""Journals that are gone: for how long, and when they are forgotten.

Who lists a source counts for how long its journals were missing. Time counts between two listings that both
lack a journal, by the monotonic clock of the process that made both, and not more than some minutes at a
time. What was counted is committed with the epochs, and whoever lists next goes on from there. So time in
which nobody looked does not count: a restart, a pause or a clock that was set can make it later, never
earlier, and no two clocks are compared. One listing that finds the journal, and it begins anew.

Once the count is full, the owner of the journal forgets it, if nobody waits for it and there is nothing of it
left. Of all journals that a source forgot, the greatest clock stays, the *floor*. It is one number, whatever
comes and goes. A journal that appears after that may be one of these, since their names are forgotten, too:
it begins with the floor, and documents that are not later are refused (see
`journals.shuffle.slices.positions`).

The owner forgets a journal one epoch after the lister has committed the full count, and the lister forgets it
one epoch after that. So a journal that comes back in between is not lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.codec import DocumentFormat
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.ingest.journal_shuffle import JournalShuffle
from penstock.streams.ingest.journal_states import position_of
from penstock.streams.ingest.part_listing import Listing
from penstock.streams.model import PartState, Pointer, Standing

if TYPE_CHECKING:
    from penstock.sources.journals import JournalSource

_log = logging.getLogger(__name__)

_STEP = 60.0
"""How often it is written down for how long journals were missing."""
_LONGEST = 600.0
"""So much counts between two listings at the most: a process may have been stopped in between."""
_AT_ONCE = 16
"""How many journals are looked for in an epoch before they are forgotten."""
_AGAIN = 600.0

Absent = Mapping[str, Mapping[str, int]]
"""For how many seconds parts were missing, by source."""


@dataclass(frozen=True, slots=True)
class AbsentFile:
    """What is written down of it."""

    absent: Absent


ABSENT = DocumentFormat(AbsentFile, "a list of missing journals", ignores_unknown=True)

Parts = Mapping[PartName, PartState]


class Absences:
    """For how long journals were missing, as counted by the instance that lists their sources."""

    def __init__(self, sources: Collection[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._sources = sources
        self._clock = clock
        self._seconds: dict[str, dict[str, float]] = {}
        self._seen: dict[str, float] = {}
        self._stated: Absent = {}
        self._stated_at = 0.0

    def resume(self, absent: Absent) -> None:
        """Go on from what was committed."""
        self._seconds = {name: {p: float(s) for p, s in parts.items()} for name, parts in absent.items()}
        self._seen = {}
        self._stated, self._stated_at = absent, self._clock()

    def note(self, source: str, known: Collection[str], listing: Listing) -> None:
        """Take in a listing, once."""
        if source not in self._sources or listing.at == self._seen.get(source):
            return
        if not listing.parts:
            # All journals gone at once: rather the place that they are in is away.
            self._seen[source] = listing.at
            return
        before, last = self._seconds.get(source, {}), self._seen.get(source, listing.at)
        passed = max(0.0, min(_LONGEST, listing.at - last))
        self._seen[source] = listing.at
        self._seconds[source] = {
            part: before[part] + passed if part in before else 0.0
            for part in known
            if part not in listing.parts
        }

    def stated(self) -> Absent:
        """What is written down: it changes with who is missing, and else once in a while."""
        found = {name: parts for name, parts in self._seconds.items() if parts}
        same = {n: p.keys() for n, p in found.items()} == {n: p.keys() for n, p in self._stated.items()}
        if not same or (found and self._clock() >= self._stated_at + _STEP):
            self._stated = {n: {part: int(s) for part, s in parts.items()} for n, parts in found.items()}
            self._stated_at = self._clock()
        return self._stated


class Forgetting:
    """Which of its journals an instance forgets."""

    def __init__(
        self,
        sources: Mapping[str, JournalSource],
        shuffle: JournalShuffle,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._after = {n: s.forget_after for n, s in sources.items() if s.forget_after is not None}
        self._sources = sources
        self._shuffle = shuffle
        self._clock = clock
        self._read: dict[Pointer, Absent] = {}
        self._gone: frozenset[PartName] = frozenset()
        self._found: dict[PartName, float] = {}
        """Those that are there although no listing names them, and when that was seen."""

    @property
    def sources(self) -> Collection[str]:
        """The sources whose journals are forgotten at all."""
        return self._after.keys()

    def follow(self, storage: Storage, standings: Iterable[Standing]) -> None:
        """Take over what a committed epoch says of journals that are missing."""
        pointers = {each.absent for each in standings if each.absent is not None}
        self._read = {p: self._read[p] if p in self._read else read_absent(storage, p) for p in pointers}
        self._gone = frozenset(
            PartName(source, part)
            for absent in self._read.values()
            for source, parts in absent.items()
            for part, seconds in parts.items()
            if source in self._after and seconds >= self._after[source]
        )
        self._found = {name: at for name, at in self._found.items() if name in self._gone}

    def forgotten(self, parts: Parts, busy: Collection[PartName]) -> dict[PartName, int]:
        """Those of ``parts`` to be forgotten now, and the greatest clock that was read of each.

        Not one that is ``busy``, that a transaction waits for or has a piece of, or that is there.
        """
        if not self._gone:
            return {}
        due = [name for name in sorted(self._gone & parts.keys()) if name not in busy]
        recently = self._clock() - _AGAIN
        due = [name for name in due if self._found.get(name, recently) <= recently]
        due = [name for name in due if not self._shuffle.is_needed(name, parts[name])]
        return {
            name: position_of(str(name), parts[name].state).greatest
            for name in due[:_AT_ONCE]
            if self._is_gone(name)
        }

    def _is_gone(self, name: PartName) -> bool:
        """Whether there is nothing of a journal: a source that reads fewer by now does not list it either."""
        try:
            if self._sources[name.source].journals.begin(name.part) is None:
                return True
        except Exception as error:
            _log.warning("journal %s is not forgotten, since it cannot be looked for: %s", name.part, error)
        self._found[name] = self._clock()
        return False


def read_absent(storage: Storage, pointer: Pointer) -> Absent:
    """What `EpochFiles.absent` wrote."""
    return pointer.read(storage, ABSENT).absent


def absent_of(storage: Storage, standings: Iterable[Standing], sources: Collection[str]) -> Absent:
    """For how long parts of these sources were missing, as of a committed epoch."""
    pointers = {each.absent for each in standings if each.absent is not None}
    found = [item for pointer in pointers for item in read_absent(storage, pointer).items()]
    return {source: parts for source, parts in found if source in sources}
