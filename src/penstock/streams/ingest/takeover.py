"""From a committed epoch to what an instance holds: at first all that it owns, then what others did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.cluster.rules.model import Decision
from penstock.errors import StreamError
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.ingest.absent_journals import Absences, Forgetting, absent_of
from penstock.streams.ingest.event_times import EventTimes
from penstock.streams.ingest.finished_parts import FinishedParts
from penstock.streams.ingest.holding import Holding, standings_of
from penstock.streams.ingest.journal_shuffle import JournalShuffle
from penstock.streams.ingest.part_listing import Listings
from penstock.streams.ingest.part_lists import PartLists, announced
from penstock.streams.ingest.part_owners import PartOwners
from penstock.streams.ingest.watermarks import advanced, latest, looked, told
from penstock.streams.model import Standing

if TYPE_CHECKING:
    from penstock.streams.api.stream import SourceSpec


class Takeover:
    """Lets the parts of one instance follow what is committed.

    ``since`` reads from the store what was committed last, if that is a later epoch than the one it is given.
    """

    def __init__(
        self,
        storage: Storage,
        sources: Mapping[str, SourceSpec],
        owners: PartOwners,
        shuffle: JournalShuffle,
        times: EventTimes,
        listings: Listings,
        absences: Absences,
        forgetting: Forgetting,
        since: Callable[[int], Decision | None],
        tell: Callable[[str], object],
    ) -> None:
        self._storage = storage
        self._sources = sources
        self._owners = owners
        self._shuffle = shuffle
        self._times = times
        self._listings = listings
        self._absences = absences
        self._forgetting = forgetting
        self._since = since
        self._tell = tell
        self._known = 0
        """The epoch that was taken over last."""
        self.names: set[PartName] = set()
        """The parts of all instances that went on when owners changed last, or came since."""

    def assigned(self, committed: Decision | None) -> Holding:
        """What this instance owns under new owners."""
        standings = standings_of(committed)
        before = PartLists.read(self._storage, standings, self._sources)
        self._check_sources(before.sources)
        lists = [name for name in self._sources if self._owners.is_lister(name)]
        listed, parts = before.listed(self._storage, lists), before.open(self._storage)
        floors = latest(each.floors for each in standings)
        begun = {name: self._shuffle.begin_of(name, floors) for name in before.found & parts.keys()}
        mine = {name: begun.get(name, at) for name, at in parts.items() if self._owners.is_mine(name)}
        epoch = committed.epoch if committed else 0
        self._shuffle.follow(standings, epoch)
        self._listings.known, self.names = listed, set(parts)
        self._absences.resume(absent_of(self._storage, standings, lists))
        self._forgetting.follow(self._storage, standings)
        holding = Holding(
            mine,
            self._first_standing(standings),
            before.kept(self._storage) if self._owners.keeps_finished else FinishedParts(),
            # All from the start: one that nobody has asked yet must hold the watermark back.
            queues=self._times.queues(before.queues),
            looked=looked(standings, {name.source: [name.part] for name in before.found}),
            told=told(standings, self._times.lateness),
        )
        self._times.keep({*mine, *holding.queues})
        self._known = epoch
        for text in before.passed_over() if self._owners.keeps_finished else ():
            self._tell(text)
        return holding

    def _first_standing(self, standings: list[Standing]) -> Standing:
        """What is true of all. Whatever the states are, they go into an own file with the next answer."""
        return Standing(
            newest=latest(each.newest for each in standings),
            watermark=advanced(standings, self._times.lateness),
            floors=latest(each.floors for each in standings),
        )

    def caught_up(self, before: Holding) -> Holding:
        """With what the last committed epoch brought: new parts, and the newest event time of all."""
        decision = self._since(self._known)
        if decision is not None:
            return self._followed(before, decision)
        if self._shuffle and self._shuffle.epoch != self._known:
            raise StreamError(f"the shuffle stands at epoch {self._shuffle.epoch}, not {self._known}")
        return before

    def _followed(self, before: Holding, decision: Decision) -> Holding:
        standings = standings_of(decision)
        found, forgotten = announced(self._storage, standings)
        self._check_sources(source for source, parts in found.items() if parts)
        names = [PartName(source, part) for source, parts in found.items() for part in sorted(parts)]
        floors = latest([before.standing.floors, *(each.floors for each in standings)])
        mine = [name for name in names if name not in before.parts and self._owners.is_mine(name)]
        fresh = {name: self._shuffle.begin_of(name, floors) for name in mine}
        standing = replace(
            before.standing,
            # They are told of once: from now on they stand in a file of this instance's.
            states=None if fresh else before.standing.states,
            newest=latest([before.standing.newest, *(each.newest for each in standings)]),
            watermark=latest([before.standing.watermark, advanced(standings, self._times.lateness)]),
            floors=floors,
        )
        finished = before.finished or decision.epoch
        at_rest = not names and all(each.open == 0 for each in standings)
        # What can fail comes first: an epoch that was taken over by half would never be looked at again.
        self._forgetting.follow(self._storage, standings)
        self._shuffle.follow(standings, decision.epoch)
        holding = replace(
            before,
            parts={**before.parts, **fresh} if fresh else before.parts,
            standing=standing,
            looked=looked(standings, found),
            told=told(standings, self._times.lateness),
            finished=finished if at_rest else None,
        )
        self.names.update(names)
        self.names -= forgotten
        self._listings.committed(found, forgotten)
        self._known = decision.epoch
        return holding

    def _check_sources(self, names: Iterable[str]) -> None:
        unknown = sorted(set(names) - self._sources.keys())
        if unknown:
            raise StreamError(
                f"the stream has parts of {', '.join(unknown)}, which this instance does not know",
                hint="run the same definition of the stream on all instances",
            )
