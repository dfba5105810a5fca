"""An instance's part in a stream's epochs: it polls the parts it owns and says where they stand.

What it knows comes from the committed epoch alone: the list of all parts, which one instance makes and
everybody follows one epoch later, and the states of its own parts. So every instance agrees on who reads
what, and the end of the stream is said only when nobody has anything left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.control.cluster.participant import EpochWork, Participant
from penstock.control.cluster.rules.assignment import check_hash, part_owner
from penstock.control.cluster.rules.model import Barrier, BarrierKind, Decision, Seat, Snapshot
from penstock.core.failpoints import reach
from penstock.errors import SessionLost, StreamError
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.ingest.absent_journals import Absences, Absent, Forgetting, absent_of
from penstock.streams.ingest.epoch_files import EpochFiles
from penstock.streams.ingest.epoch_job import Ingestion
from penstock.streams.ingest.epoch_tasks import PollLimits
from penstock.streams.ingest.finished_parts import FinishedParts
from penstock.streams.ingest.journal_shuffle import (
    NOTHING,
    JournalShuffle,
    JournalsToRead,
    ShuffleWork,
    journal_sources,
)
from penstock.streams.ingest.pacing import Allowance
from penstock.streams.ingest.part_listing import Listings, Run
from penstock.streams.ingest.part_lists import PartLists, announced, described
from penstock.streams.ingest.slow_polls import PollJobs, SlowPolls
from penstock.streams.ingest.task_results import Polled
from penstock.streams.ingest.watermarks import (
    JournalEnds,
    Lows,
    advanced,
    brought_by,
    lateness_of,
    latest,
    least,
    looked,
    told,
)
from penstock.streams.layout import Layout
from penstock.streams.model import END, OPEN, PartState, Pointer, Standing

if TYPE_CHECKING:
    from penstock.streams.api.stream import SourceSpec

_log = logging.getLogger(__name__)

Parts = Mapping[PartName, PartState]


@dataclass(frozen=True, slots=True)
class Holding:
    """What an instance owns as of an epoch."""

    parts: Parts = field(default_factory=dict)
    """Those that go on."""
    standing: Standing = field(default_factory=Standing)
    finished_parts: FinishedParts = field(default_factory=FinishedParts)
    absent: Absent = field(default_factory=dict)
    """For how long journals of the sources that it lists were missing."""
    queues: Parts = field(default_factory=dict)
    """Its queues of journals that have event time, for that alone."""
    looked: Mapping[str, int] = field(default_factory=dict)
    """By source, what it had brought when all its journals were last read to their ends."""
    told: Mapping[str, int] = field(default_factory=dict)
    """The watermarks that readers know of."""
    finished: int | None = None
    """Since which epoch all parts that anybody knows have finished."""
    settled: bool = False
    """Whether an epoch was committed since it was assigned."""


@dataclass(frozen=True, slots=True)
class Former:
    """Who owned parts before the owners changed, and when they committed their last epoch."""

    seats: tuple[Seat, ...]
    at: float


class StreamWorker(Participant):
    """The participant of a stream.

    ``since`` reads from the store what was committed last, if that is a later epoch than the one it is given.
    """

    def __init__(
        self,
        member: str,
        sources: Mapping[str, SourceSpec],
        ingestion: Ingestion,
        storage: Storage,
        layout: Layout,
        allowance: Allowance,
        list_every: float,
        since: Callable[[int], Decision | None],
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], object] = _log.warning,
        run: Run | None = None,
        beside: SlowPolls | None = None,
    ) -> None:
        self._member = member
        self._sources = sources
        self._jobs = PollJobs(ingestion, beside)
        self._storage = storage
        self._layout = layout
        self._allowance = allowance
        self._since = since
        self._clock = clock
        self._beside = beside
        self._files = EpochFiles(storage, layout, member)
        self._version = 0
        self._seats: tuple[Seat, ...] = ()
        self._former: Former | None = None
        self._committed_at: float | None = None
        self._ordinary = 0
        self._asked: dict[PartName, int] = {}
        self._holding = Holding()
        self._next: Holding | None = None
        self._known = 0
        self._lateness = lateness_of(sources)
        self._lows = Lows(sources, clock)
        self._looks = JournalEnds()
        self._tell = tell
        self._told: Mapping[str, str] = {}
        self._names: set[PartName] = set()
        self._fence = threading.Event()
        self._shuffle = JournalShuffle(sources, storage)
        self._forgetting = Forgetting(journal_sources(sources), self._shuffle, clock)
        self._absences = Absences(self._forgetting.sources, clock)
        self._listings = Listings(sources, self._absences, list_every, clock, run)

    @property
    def shuffle(self) -> JournalShuffle:
        return self._shuffle

    @property
    def holding(self) -> Holding:
        """What this instance owned as of the last committed epoch that it took part in."""
        return self._holding

    @property
    def names(self) -> Collection[PartName]:
        """The parts of all instances that went on when owners changed last, or came since."""
        return self._names

    @property
    def former(self) -> Former | None:
        """What was before the owners changed last, if this instance took part in it."""
        return self._former

    # the control plane's calls

    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        self._fence.clear()
        self._next, self._holding = None, Holding()
        check_hash(snapshot)
        self._remember(snapshot)
        if not self._seats or snapshot.seat(self._member) is None:
            return
        standings = _standings(committed)
        before = PartLists.read(self._storage, standings, self._sources)
        self._check_sources(before.sources)
        lists = [name for name in self._sources if self._is_lister(name)]
        listed, parts = before.listed(self._storage, lists), before.open(self._storage)
        floors = latest(each.floors for each in standings)
        begun = {name: self._shuffle.begin_of(name, floors) for name in before.found & parts.keys()}
        mine = {name: begun.get(name, known) for name, known in parts.items() if self._is_mine(name)}
        known = committed.epoch if committed else 0
        self._shuffle.follow(standings, known)
        self._listings.known, self._names = listed, set(parts)
        # Whatever states these are, they go into a file of this instance's own with its next answer.
        standing = Standing(
            newest=latest(each.newest for each in standings),
            watermark=advanced(standings, self._lateness),
            floors=floors,
        )
        self._absences.resume(absent_of(self._storage, standings, lists))
        self._forgetting.follow(self._storage, standings)
        is_keeper = part_owner(self._seats, "", "finished") == self._member
        finished_parts = before.kept(self._storage) if is_keeper else FinishedParts()
        # All from the start: one that nobody has asked yet must hold the watermark back.
        queues = self._queues(before.queues)
        now_told = told(standings, self._lateness)
        looks = looked(standings, {name.source: [name.part] for name in before.found})
        self._holding = Holding(mine, standing, finished_parts, queues=queues, looked=looks, told=now_told)
        self._looks.clear()
        self._known = known
        self._asked = {name: epoch for name, epoch in self._asked.items() if name in mine}
        self._lows.forget({*mine, *queues})
        if self._beside is not None:
            self._beside.stop()
            self._beside.keep(mine)
        if is_keeper:
            for text in before.passed_over():
                self._tell(text)

    def prepare(self, barrier: Barrier) -> EpochWork:
        try:
            if barrier.kind is BarrierKind.DRAIN:
                return self._drain(barrier)
            self._catch_up()
            return self._epoch(barrier)
        except Exception:
            # The answer is a refusal, so nothing will ever refer to what was written.
            self._discard(barrier.epoch)
            raise

    def patience(self) -> float:
        return self._shuffle.patience

    def committed(self, epoch: int) -> None:
        if self._next is not None:
            self._holding, self._next = self._next, None
        if epoch == self._ordinary:
            self._committed_at = self._clock()
        if self._beside is not None:
            self._beside.committed(epoch)

    def aborted(self, epoch: int) -> None:
        self._next = None
        self._looks.clear()
        self._discard(epoch)

    def fenced(self) -> None:
        self._fence.set()
        self._jobs.cancel()
        self._next = None
        self._holding = Holding()
        self._committed_at = None

    def _remember(self, snapshot: Snapshot) -> None:
        if snapshot.version != self._version:
            at = self._committed_at
            self._former = Former(self._seats, at) if at is not None else None
        self._version, self._seats = snapshot.version, snapshot.seats

    # an epoch

    def _epoch(self, barrier: Barrier) -> EpochWork:
        before, self._ordinary = self._holding, barrier.epoch
        self._begin_listings(before)
        polled, queues, looks = self._poll(before, barrier)
        found, complete = self._list(before)
        epoch, files, standing = barrier.epoch, self._files, before.standing
        late, came = self._came(before, epoch)
        moved = self._lows.moved(before.parts, polled.states, polled.newest, standing.newest)
        polled = polled.joined(came)
        parts, finished = _divided({**before.parts, **moved, **late})
        forgotten = self._forgetting.forgotten(parts, {*polled.states, *polled.unasked})
        parts = (
            {name: known for name, known in parts.items() if name not in forgotten} if forgotten else parts
        )
        absent = self._absences.stated()
        watermark = standing.watermark
        index, finished_parts = files.finished(
            epoch, standing.finished, self._placed(before.finished_parts, finished), finished
        )
        standing = Standing(
            files.states(epoch, standing.states, (before.parts, before.queues), (parts, queues)),
            files.listing(epoch, found, forgotten),
            latest([standing.newest, _newest_rows(polled)]),
            index,
            self._report(polled, parts, epoch),
            self._write_session(epoch),
            self._low(before, parts, queues),
            watermark,
            len(parts),
            self._problems(),
            files.absent(epoch, standing.absent, before.absent, absent),
            latest([standing.floors, *({name.source: clock} for name, clock in forgotten.items())]),
            looks,
            None if self._beside is None or (job := self._beside.pending) is None else job.epoch,
        )
        tell = any(watermark.get(name, OPEN) > before.told.get(name, OPEN) for name in self._listings.known)
        brought = files.portion(epoch, polled, watermark, tell=tell)
        self._check_fence()
        self._next = replace(
            before,
            parts=parts,
            standing=standing,
            finished_parts=finished_parts,
            absent=absent,
            queues=queues,
            settled=True,
        )
        reach("stream.prepared")
        return EpochWork(
            frontier=standing.encode(),
            files=(brought.encode(),) if brought else (),
            watermark=self._watermark(before, complete),
        )

    def _low(self, before: Holding, parts: Parts, queues: Parts) -> dict[str, int]:
        """Before which event time no row is expected of these parts, nor of those that nobody knows."""
        read = {name: known for name, known in parts.items() if not self._shuffle.is_journal(name)}
        known_lows = self._listings.lows
        unknown = {n: known_lows.get(n, OPEN) for n in self._listings.known if n in self._lateness}
        frozen = self._beside.frozen(self._lateness) if self._beside is not None else {}
        lows = self._lows.of(read), self._lows.of(queues, self._awaited(before, queues))
        return least([*lows, unknown, frozen])

    def _placed(self, finished_parts: FinishedParts, finished: Parts) -> FinishedParts:
        """The finished parts, with the descriptions of the sources that these parts are of."""
        new = {name.source for name in finished} - finished_parts.places.keys()
        places = {name: described(self._sources[name]) for name in new}
        return replace(finished_parts, places={**finished_parts.places, **places}) if new else finished_parts

    def _poll(self, holding: Holding, barrier: Barrier) -> tuple[Polled, Parts, Mapping[str, int]]:
        """What a job brought, what is known of the queues of journals after it, and of their ends."""
        limits = self._allowance.limits(len(barrier.required), self._shuffle.bytes)
        to_read = self._hunger(limits)
        parts, work = self._divided(holding, barrier, to_read)
        if limits is None:
            parts = {}
        if not parts and not work:
            return Polled({}), self._moved_queues(holding, to_read, {}), self._looked(holding, to_read)
        polled = self._run_jobs(holding, barrier.epoch, parts, limits or self._allowance.least, work)
        self._shuffle.heard(work, polled.states, polled.unfinished, polled.unasked)
        self._looks.heard(work.reads, polled.behind, holding.standing.newest)
        reach("stream.polled")
        self._asked.update(dict.fromkeys(polled.states, barrier.epoch))
        self._allowance.learn(polled)
        return polled, self._moved_queues(holding, to_read, polled.newest), self._looked(holding, to_read)

    def _run_jobs(
        self, holding: Holding, epoch: int, parts: Parts, limits: PollLimits, work: ShuffleWork
    ) -> Polled:
        prefix, standing = f"{self._layout.epoch_rows(epoch)}/{self._files.own}", holding.standing
        return self._jobs.poll(
            prefix,
            epoch,
            self._files.own,
            parts,
            limits,
            standing.watermark,
            self._asked,
            standing.newest,
            work,
        )

    def _came(self, holding: Holding, epoch: int) -> tuple[Parts, Polled]:
        """What came of polls beside the epochs: the states of their parts, and the rest."""
        found = self._beside.take(epoch, self._files.own, holding.parts) if self._beside is not None else None
        if found is None:
            return {}, Polled({})
        job, polled = found
        self._asked.update(dict.fromkeys(polled.states, epoch))
        self._allowance.learn(polled)
        # They were asked when the job began: what others have brought since says nothing of them.
        return self._lows.moved(holding.parts, polled.states, polled.newest, job.newest), polled

    def _queues(self, known: Parts) -> Parts:
        """The queues of journals that this instance owns, of sources with event time."""
        found = self._shuffle.queues(self._owns, known)
        return {name: each for name, each in found.items() if name.source in self._lateness}

    def _moved_queues(
        self, holding: Holding, to_read: JournalsToRead, brought: Mapping[PartName, int]
    ) -> Parts:
        """What is known of the queues of journals after an epoch.

        While there may be something for it that was not read, a queue without rows was not asked, and cannot
        become idle. Otherwise it was, whoever owns the journals.
        """
        queues = self._queues(holding.queues)
        silent = self._awaited(holding, queues) if to_read == "all" else queues.keys()
        asked = {
            name: PartState(each.state)
            for name, each in queues.items()
            if name in brought or name not in silent
        }
        self._lows.paused(queues.keys() - asked.keys())
        heard = brought_by(holding.looked, holding.standing.newest)
        return {**queues, **self._lows.moved(queues, asked, brought, heard)}

    def _awaited(self, holding: Holding, queues: Parts) -> Collection[PartName]:
        """The queues for which there is something, or may be, that is not visible yet."""
        return {
            name
            for name in queues
            if holding.looked.get(name.source) == OPEN or name in self._shuffle.on_their_way
        }

    def _looked(self, holding: Holding, to_read: JournalsToRead) -> Mapping[str, int]:
        """What to tell of the ends of this instance's journals."""
        journals = [n for n in holding.parts if self._shuffle.is_journal(n) and n.source in self._lateness]
        return self._looks.of(set(journals), free=to_read == "all")

    def _hunger(self, limits: PollLimits | None) -> JournalsToRead:
        """Which journals may be read.

        Where there is no room because of documents that wait for others, these are read; where it is because
        nobody took out what is visible, nothing is.
        """
        if limits is not None:
            return "awaited" if self._shuffle.is_crowded else "all"
        return "awaited" if self._allowance.is_filled_by(self._shuffle.bytes) else "none"

    def _divided(
        self, holding: Holding, barrier: Barrier, to_read: JournalsToRead
    ) -> tuple[Parts, ShuffleWork]:
        """The parts that are polled, and what is done for journals."""
        if not self._shuffle:
            return holding.parts, NOTHING
        if self._shuffle.epoch != self._known:
            raise StreamError(f"the shuffle stands at epoch {self._shuffle.epoch}, not {self._known}")
        journals = {name: known for name, known in holding.parts.items() if self._shuffle.is_journal(name)}
        parts = {name: known for name, known in holding.parts.items() if name not in journals}
        prefix = f"{self._layout.epoch_runs(barrier.epoch)}/{self._files.own}"
        self._shuffle.forget()
        return parts, self._shuffle.work(barrier.epoch, prefix, journals, self._owns, to_read)

    def _report(self, polled: Polled, parts: Parts, epoch: int) -> Pointer | None:
        """What slices of this instance did."""
        if not self._shuffle:
            return None
        report = self._shuffle.report(epoch, polled.progress, polled.runs, parts)
        pointer = self._files.report(epoch, report)
        if pointer is not None:
            self._shuffle.wrote(pointer, report)
        return pointer

    def _write_session(self, epoch: int) -> Pointer | None:
        """Where the shuffle stands, if this instance is the one to write it down."""
        if not self._shuffle or part_owner(self._seats, "", "session") != self._member:
            return None
        if self._shuffle.known is not None:
            return self._shuffle.known
        pointer = self._files.session(epoch, self._shuffle.session)
        self._shuffle.wrote(pointer, self._shuffle.session)
        return pointer

    def _discard(self, epoch: int) -> None:
        self._files.discard(epoch, self._holding.standing.pointers)

    def _watermark(self, before: Holding, complete: bool | None) -> int | None:
        """What this instance has to say about the end. None: it has no part in it.

        ``complete``: whether the sources that it lists have no parts that nobody knows yet; None: it lists
        none. Parts must have finished *before* this epoch: of one that finishes while another instance lists
        the source, nobody knows whether it left others behind.
        """
        if complete is None and not before.parts:
            return None
        return END if complete is not False and not before.parts else OPEN

    # the list of parts

    def _begin_listings(self, holding: Holding) -> None:
        self._listings.begin(self._version, holding.standing.newest, holding.finished)

    def _list(self, holding: Holding) -> tuple[Mapping[str, frozenset[str]], bool | None]:
        """The new parts of the sources that this instance lists, and whether there can be no others."""
        return self._listings.found(holding.finished, settled=holding.settled)

    def _problems(self) -> dict[str, str]:
        """Why sources cannot be listed, or polled; it is also told."""
        found = self._beside.problems() if self._beside is not None else {}
        found |= self._listings.problems()
        for name, said in found.items():
            if self._told.get(name) != said:
                self._tell(said)
        self._told = found
        return found

    def _is_lister(self, source: str) -> bool:
        return part_owner(self._seats, source, "") == self._member

    def _is_mine(self, name: PartName) -> bool:
        return self._owns(name.source, name.part)

    def _owns(self, source: str, part: str) -> bool:
        return part_owner(self._seats, source, part) == self._member

    def _check_sources(self, names: Iterable[str]) -> None:
        unknown = sorted(set(names) - self._sources.keys())
        if unknown:
            raise StreamError(
                f"the stream has parts of {', '.join(unknown)}, which this instance does not know",
                hint="run the same definition of the stream on all instances",
            )

    # what others did meanwhile

    def _catch_up(self) -> None:
        """Take over what the last committed epoch brought: new parts, and the newest event time of all."""
        decision = self._since(self._known)
        if decision is None:
            return
        standings, before = _standings(decision), self._holding
        found, forgotten = announced(self._storage, standings)
        self._check_sources(source for source, parts in found.items() if parts)
        names = [PartName(source, part) for source, parts in found.items() for part in sorted(parts)]
        floors = latest([before.standing.floors, *(each.floors for each in standings)])
        mine = [name for name in names if name not in before.parts and self._is_mine(name)]
        fresh = {name: self._shuffle.begin_of(name, floors) for name in mine}
        standing = replace(
            before.standing,
            # They are told of once: from now on they stand in a file of this instance's.
            states=None if fresh else before.standing.states,
            newest=latest([before.standing.newest, *(each.newest for each in standings)]),
            watermark=latest([before.standing.watermark, advanced(standings, self._lateness)]),
            floors=floors,
        )
        finished = before.finished or decision.epoch
        at_rest = not names and all(each.open == 0 for each in standings)
        # What can fail comes first: an epoch that was taken over by half would never be looked at again.
        self._forgetting.follow(self._storage, standings)
        self._shuffle.follow(standings, decision.epoch)
        self._holding = replace(
            before,
            parts={**before.parts, **fresh} if fresh else before.parts,
            standing=standing,
            looked=looked(standings, found),
            told=told(standings, self._lateness),
            finished=finished if at_rest else None,
        )
        self._names.update(names)
        self._names -= forgotten
        for gone in forgotten:
            self._asked.pop(gone, None)
        self._listings.committed(found, forgotten)
        self._known = decision.epoch

    # moving

    def _drain(self, barrier: Barrier) -> EpochWork:
        """Collect the parts that will leave, and stand still."""
        before = self._holding
        if not before.settled:
            # What was committed under the owners before still says where every part stands, also those of
            # members that died since. An answer of ours would replace a piece of that.
            self._check_fence()
            return EpochWork()
        leaving = {
            name: known
            for name, known in before.parts.items()
            if barrier.target
            and part_owner(barrier.target, name.source, name.part) != self._member
            # The state of a journal is all there is of it.
            and not self._shuffle.is_journal(name)
            # One that takes long moves with the state that is committed, as it would from a dead instance.
            and not (self._beside is not None and self._beside.has(name))
        }
        polled = self._jobs.collect(leaving)
        # Nobody has asked these for rows: what is known of their time stays.
        moved = {
            name: replace(state, newest=before.parts[name].newest, idle=before.parts[name].idle)
            for name, state in polled.states.items()
        }
        parts, done = _divided({**before.parts, **moved})
        standing = before.standing
        held, kept = (before.parts, before.queues), (parts, before.queues)
        states = self._files.states(barrier.epoch, standing.states, held, kept)
        finished_parts = self._placed(before.finished_parts, done)
        finished, finished_parts = self._files.finished(
            barrier.epoch, standing.finished, finished_parts, done
        )
        standing = replace(standing, states=states, finished=finished, open=len(parts), beside=None)
        self._check_fence()
        self._next = replace(before, parts=parts, standing=standing, finished_parts=finished_parts)
        reach("stream.drained")
        return EpochWork(frontier=standing.encode())

    def _check_fence(self) -> None:
        if self._fence.is_set():
            raise SessionLost("the instance was given up by the others while it worked on an epoch")


def _standings(decision: Decision | None) -> list[Standing]:
    return [Standing.decode(text) for text in decision.frontiers.values()] if decision else []


def _divided(parts: Parts) -> tuple[Parts, Parts]:
    """Those that go on, and those that have finished."""
    done = {name: PartState(known.state, True) for name, known in parts.items() if known.finished}
    return {name: known for name, known in parts.items() if name not in done} if done else parts, done


def _newest_rows(polled: Polled) -> dict[str, int]:
    return latest({name.source: value} for name, value in polled.newest.items())
