"""What an instance answers in an epoch: where its parts stand, and what they brought."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.streams.ingest.absent_journals import Absences, Forgetting
from penstock.streams.ingest.epoch_files import EpochFiles
from penstock.streams.ingest.event_times import EventTimes
from penstock.streams.ingest.finished_parts import FinishedParts
from penstock.streams.ingest.holding import Holding, Parts, divided
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.journal_shuffle import JournalShuffle
from penstock.streams.ingest.part_listing import Listings
from penstock.streams.ingest.part_lists import described
from penstock.streams.ingest.part_owners import PartOwners
from penstock.streams.ingest.slow_polls import SlowPolls
from penstock.streams.ingest.watermarks import latest
from penstock.streams.model import OPEN, Brought, Pointer, Standing

if TYPE_CHECKING:
    from penstock.streams.api.stream import SourceSpec


@dataclass(frozen=True, slots=True)
class Answer:
    """What an instance owns once its answer is committed, and what it has brought."""

    holding: Holding
    brought: Brought | None = None


class EpochAnswers:
    """Writes the answers of one instance."""

    def __init__(
        self,
        sources: Mapping[str, SourceSpec],
        files: EpochFiles,
        owners: PartOwners,
        shuffle: JournalShuffle,
        times: EventTimes,
        listings: Listings,
        absences: Absences,
        forgetting: Forgetting,
        slow: SlowPolls | None,
        tell: Callable[[str], object],
    ) -> None:
        self._sources = sources
        self._files = files
        self._owners = owners
        self._shuffle = shuffle
        self._times = times
        self._listings = listings
        self._absences = absences
        self._forgetting = forgetting
        self._slow = slow
        self._tell = tell
        self._told: Mapping[str, str] = {}

    def epoch(
        self,
        epoch: int,
        before: Holding,
        polled: Polled,
        states: Parts,
        queues: Parts,
        looks: Mapping[str, int],
        found: Mapping[str, frozenset[str]],
    ) -> Answer:
        """The answer to an epoch that ``polled`` this, after which these are the states of all own parts.

        ``looks`` is what is told of the ends of journals, ``found`` are parts that nobody knew.
        """
        parts, done = divided(states)
        forgotten = self._forgetting.forgotten(parts, {*polled.states, *polled.unasked})
        if forgotten:
            parts = {name: known for name, known in parts.items() if name not in forgotten}
        files, standing, absent = self._files, before.standing, self._absences.stated()
        finished, finished_parts = self._finished(epoch, before, done)
        floors = {name.source: clock for name, clock in forgotten.items()}
        standing = Standing(
            states=files.states(epoch, standing.states, (before.parts, before.queues), (parts, queues)),
            listing=files.listing(epoch, found, forgotten),
            newest=latest([standing.newest, _newest_rows(polled)]),
            finished=finished,
            report=self._report(polled, parts, epoch, standing.floors),
            session=self._session(epoch),
            low=self._low(before, parts, queues),
            watermark=standing.watermark,
            open=len(parts),
            problems=self._problems(),
            absent=files.absent(epoch, standing.absent, before.absent, absent),
            floors=latest([standing.floors, floors]),
            looked=looks,
            beside=self._beside,
        )
        brought = files.portion(epoch, polled, standing.watermark, tell=self._tells(before))
        after = replace(
            before,
            parts=parts,
            standing=standing,
            finished_parts=finished_parts,
            absent=absent,
            queues=queues,
            settled=True,
        )
        return Answer(after, brought)

    def drain(self, epoch: int, before: Holding, states: Parts) -> Answer:
        """The answer to a drain, after which these are the states of all own parts."""
        parts, done = divided(states)
        standing, held, kept = before.standing, (before.parts, before.queues), (parts, before.queues)
        pointer = self._files.states(epoch, standing.states, held, kept)
        finished, finished_parts = self._finished(epoch, before, done)
        standing = replace(standing, states=pointer, finished=finished, open=len(parts), beside=self._beside)
        return Answer(replace(before, parts=parts, standing=standing, finished_parts=finished_parts))

    @property
    def _beside(self) -> int | None:
        """The epoch in which a job of slow polls was begun that is still under way."""
        job = self._slow.pending if self._slow is not None else None
        return None if job is None else job.epoch

    def discard(self, epoch: int, kept: Holding) -> None:
        """Delete what was written for an epoch that will not be."""
        self._files.discard(epoch, kept.standing.pointers)

    def _finished(self, epoch: int, before: Holding, done: Parts) -> tuple[Pointer | None, FinishedParts]:
        """The finished parts, with the descriptions of the sources that those are of which are done now."""
        known = before.finished_parts
        new = {name.source for name in done} - known.places.keys()
        places = {name: described(self._sources[name]) for name in new}
        known = replace(known, places={**known.places, **places}) if new else known
        return self._files.finished(epoch, before.standing.finished, known, done)

    def _tells(self, before: Holding) -> bool:
        """Whether readers do not know yet how far watermarks of the sources have come that it lists."""
        watermark, known = before.standing.watermark, before.told
        return any(watermark.get(name, OPEN) > known.get(name, OPEN) for name in self._listings.known)

    def _low(self, before: Holding, parts: Parts, queues: Parts) -> dict[str, int]:
        """Before which event time no row is expected of these parts, nor of those that nobody knows."""
        unknown = self._times.unlisted(self._listings.known, self._listings.lows)
        frozen = self._slow.frozen(self._times.lateness) if self._slow is not None else {}
        return self._times.low(before, parts, queues, (unknown, frozen))

    def _report(self, polled: Polled, parts: Parts, epoch: int, floors: Mapping[str, int]) -> Pointer | None:
        """What slices of this instance did."""
        if not self._shuffle:
            return None
        report = self._shuffle.report(epoch, polled.progress, polled.runs, parts, self._owners.owns, floors)
        pointer = self._files.report(epoch, report)
        if pointer is not None:
            self._shuffle.wrote(pointer, report)
        return pointer

    def _session(self, epoch: int) -> Pointer | None:
        """Where the shuffle stands, if this instance is the one to write it down."""
        if not self._shuffle or not self._owners.writes_session:
            return None
        if self._shuffle.known is not None:
            return self._shuffle.known
        pointer = self._files.session(epoch, self._shuffle.session)
        self._shuffle.wrote(pointer, self._shuffle.session)
        return pointer

    def _problems(self) -> dict[str, str]:
        """Why sources cannot be listed, or polled; it is also told."""
        found = self._slow.problems() if self._slow is not None else {}
        found |= self._listings.problems()
        for name, said in found.items():
            if self._told.get(name) != said:
                self._tell(said)
        self._told = found
        return found


def _newest_rows(polled: Polled) -> dict[str, int]:
    return latest({name.source: value} for name, value in polled.newest.items())
