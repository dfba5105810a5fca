"""The event time of one instance's parts, and of its queues of journals: see `watermarks` for the rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.sources.base import PartName
from penstock.streams.ingest.holding import Holding, Parts
from penstock.streams.ingest.journal_shuffle import JournalShuffle, JournalsToRead
from penstock.streams.ingest.watermarks import JournalEnds, Lows, Times, brought_by, lateness_of, least
from penstock.streams.model import OPEN, PartState

if TYPE_CHECKING:
    from penstock.streams.api.stream import SourceSpec


class EventTimes:
    """What one instance knows of event time."""

    def __init__(
        self,
        sources: Mapping[str, SourceSpec],
        shuffle: JournalShuffle,
        owns: Callable[[str, str], bool],
        clock: Callable[[], float],
    ) -> None:
        self.lateness = lateness_of(sources)
        self._shuffle = shuffle
        self._owns = owns
        self._lows = Lows(sources, clock)
        self._ends = JournalEnds()

    def keep(self, names: Collection[PartName]) -> None:
        """Forget what was known of other parts than these, and of the ends of journals."""
        self._lows.forget(names)
        self._ends.clear()

    def aborted(self) -> None:
        """What was read is read again: nobody knows whether that was to the ends of journals."""
        self._ends.clear()

    def moved(self, before: Parts, asked: Parts, brought: Mapping[PartName, int], newest: Times) -> Parts:
        """The states of parts that were asked, with what is known of their time: see `Lows.moved`."""
        return self._lows.moved(before, asked, brought, newest)

    def read(self, journals: Iterable[PartName], behind: Collection[PartName], newest: Times) -> None:
        """Take note of journals that were read: see `JournalEnds.heard`."""
        self._ends.heard(journals, behind, newest)

    def queues(self, known: Parts) -> Parts:
        """The queues of journals that this instance owns, of sources with event time."""
        found = self._shuffle.queues(self._owns, known)
        return {name: each for name, each in found.items() if name.source in self.lateness}

    def moved_queues(
        self, holding: Holding, to_read: JournalsToRead, brought: Mapping[PartName, int]
    ) -> Parts:
        """What is known of the queues of journals after an epoch.

        While there may be something for it that was not read, a queue without rows was not asked, and cannot
        become idle. Otherwise it was, whoever owns the journals.
        """
        queues = self.queues(holding.queues)
        silent = self._awaited(holding, queues) if to_read == "all" else queues.keys()
        asked = {
            name: PartState(each.state)
            for name, each in queues.items()
            if name in brought or name not in silent
        }
        self._lows.paused(queues.keys() - asked.keys())
        heard = brought_by(holding.looked, holding.standing.newest)
        return {**queues, **self._lows.moved(queues, asked, brought, heard)}

    def looked(self, holding: Holding, to_read: JournalsToRead) -> Mapping[str, int]:
        """What to tell of the ends of this instance's journals."""
        journals = [n for n in holding.parts if self._shuffle.is_journal(n) and n.source in self.lateness]
        return self._ends.of(set(journals), free=to_read == "all")

    def low(self, before: Holding, parts: Parts, queues: Parts, others: Iterable[Times]) -> dict[str, int]:
        """Before which event time no row is expected of these parts and queues, nor of ``others``."""
        read = {name: known for name, known in parts.items() if not self._shuffle.is_journal(name)}
        lows = self._lows.of(read), self._lows.of(queues, self._awaited(before, queues))
        return least([*lows, *others])

    def unlisted(self, listed: Collection[str], lows: Times) -> dict[str, int]:
        """The lows of parts that nobody knows yet, of the sources that this instance lists."""
        return {name: lows.get(name, OPEN) for name in listed if name in self.lateness}

    def _awaited(self, holding: Holding, queues: Parts) -> Collection[PartName]:
        """The queues for which there is something, or may be, that is not visible yet."""
        return {
            name
            for name in queues
            if holding.looked.get(name.source) == OPEN or name in self._shuffle.on_their_way
        }
