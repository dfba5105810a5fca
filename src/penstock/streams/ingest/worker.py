"""An instance's part in a stream's epochs: it polls the parts it owns and says where they stand.

What it knows comes from the committed epoch alone: the list of all parts, which one instance makes and
everybody follows one epoch later, and the states of its own parts. So every instance agrees on who reads
what, and the end of the stream is said only when nobody has anything left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from penstock.control.cluster.participant import EpochWork, Participant
from penstock.control.cluster.rules.model import Barrier, BarrierKind, Decision, Snapshot
from penstock.core.failpoints import reach
from penstock.errors import SessionLost
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.ingest.absent_journals import Absences, Forgetting
from penstock.streams.ingest.epoch_answers import EpochAnswers
from penstock.streams.ingest.epoch_files import EpochFiles
from penstock.streams.ingest.epoch_polls import EpochPolls
from penstock.streams.ingest.event_times import EventTimes
from penstock.streams.ingest.holding import Holding
from penstock.streams.ingest.jobs.epoch_job import Ingestion
from penstock.streams.ingest.journal_shuffle import JournalShuffle, journal_sources
from penstock.streams.ingest.pacing import Allowance
from penstock.streams.ingest.part_listing import Listings, Run
from penstock.streams.ingest.part_owners import Former, PartOwners
from penstock.streams.ingest.slow_polls import SlowPolls
from penstock.streams.ingest.takeover import Takeover
from penstock.streams.layout import Layout
from penstock.streams.model import END, OPEN

if TYPE_CHECKING:
    from penstock.streams.api.stream import SourceSpec

_log = logging.getLogger(__name__)


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
        files, owners = EpochFiles(storage, layout, member), PartOwners(member, clock)
        shuffle = JournalShuffle(sources, storage)
        times = EventTimes(sources, shuffle, owners.owns, clock)
        forgetting = Forgetting(journal_sources(sources), shuffle, clock)
        absences = Absences(forgetting.sources, clock)
        listings = Listings(sources, absences, list_every, clock, run)
        self._owners = owners
        self._shuffle = shuffle
        self._times = times
        self._listings = listings
        self._slow = beside
        self._polls = EpochPolls(ingestion, beside, allowance, owners, shuffle, times, layout, files.own)
        self._takeover = Takeover(
            storage, sources, owners, shuffle, times, listings, absences, forgetting, since, tell
        )
        self._answers = EpochAnswers(
            sources, files, owners, shuffle, times, listings, absences, forgetting, beside, tell
        )
        self._ordinary = 0
        self._holding = Holding()
        self._next: Holding | None = None
        self._fence = threading.Event()

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
        return self._takeover.names

    @property
    def former(self) -> Former | None:
        """What was before the owners changed last, if this instance took part in it."""
        return self._owners.former

    def check_hints(self, patience: float) -> None:
        """Raise `HintNotReached` if documents wait for what was not read for that many seconds."""
        self._shuffle.check_hints(patience, self.names)

    # the control plane's calls

    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        self._fence.clear()
        self._next, self._holding = None, Holding()
        try:
            if self._owners.follow(snapshot):
                self._holding = self._takeover.assigned(committed)
        finally:
            # Also without a seat, and after an error: nobody would ask it to let go of a part later.
            self._polls.begin(self._holding.parts.keys())

    def prepare(self, barrier: Barrier) -> EpochWork:
        try:
            if barrier.kind is BarrierKind.DRAIN:
                return self._drain(barrier)
            self._holding = self._takeover.caught_up(self._holding)
            return self._epoch(barrier)
        except Exception:
            # The answer is a refusal, so nothing will ever refer to what was written.
            self._discard(barrier.epoch)
            raise

    def patience(self) -> float:
        return self._shuffle.patience

    def committed(self, epoch: int) -> None:
        if self._next is not None:
            self._polls.forget(self._holding.parts.keys() - self._next.parts.keys())
            self._holding, self._next = self._next, None
        if epoch == self._ordinary:
            self._owners.committed()
        if self._slow is not None:
            self._slow.committed(epoch)

    def aborted(self, epoch: int) -> None:
        self._next = None
        self._times.aborted()
        if self._slow is not None:
            self._slow.aborted()
        self._discard(epoch)

    def fenced(self) -> None:
        self._fence.set()
        self._polls.cancel()
        self._next = None
        self._holding = Holding()
        self._owners.fenced()

    # an epoch

    def _epoch(self, barrier: Barrier) -> EpochWork:
        before, epoch, self._ordinary = self._holding, barrier.epoch, barrier.epoch
        newest, times = before.standing.newest, self._times
        self._listings.begin(self._owners.version, newest, before.finished)
        polled, to_read = self._polls.poll(before, barrier)
        queues = times.moved_queues(before, to_read, polled.newest)
        looks = times.looked(before, to_read)
        found, complete = self._listings.found(before.finished, settled=before.settled)
        late, came = self._polls.came(before, epoch)
        moved = times.moved(before.parts, polled.states, polled.newest, newest)
        states = {**before.parts, **moved, **late}
        answer = self._answers.epoch(epoch, before, polled.joined(came), states, queues, looks, found)
        self._check_fence()
        self._next = answer.holding
        reach("stream.prepared")
        return EpochWork(
            frontier=answer.holding.standing.encode(),
            files=(answer.brought.encode(),) if answer.brought else (),
            watermark=self._watermark(before, complete),
        )

    def _watermark(self, before: Holding, complete: bool | None) -> int | None:
        """What this instance has to say about the end. None: it has no part in it.

        ``complete``: whether the sources that it lists have no parts that nobody knows yet; None: it lists
        none. Parts must have finished *before* this epoch: of one that finishes while another instance lists
        the source, nobody knows whether it left others behind.
        """
        if complete is None and not before.parts:
            return None
        return END if complete is not False and not before.parts else OPEN

    def _discard(self, epoch: int) -> None:
        self._answers.discard(epoch, self._holding)

    # moving

    def _drain(self, barrier: Barrier) -> EpochWork:
        """Collect the parts that will leave, and stand still."""
        before = self._holding
        if not before.settled:
            # What was committed under the owners before still says where every part stands, also those of
            # members that died since. An answer of ours would replace a piece of that.
            self._polls.release(before, barrier)
            self._check_fence()
            return EpochWork()
        states = {**before.parts, **self._polls.collect(before, barrier)}
        answer = self._answers.drain(barrier.epoch, before, states)
        self._check_fence()
        self._next = answer.holding
        reach("stream.drained")
        return EpochWork(frontier=answer.holding.standing.encode())

    def _check_fence(self) -> None:
        if self._fence.is_set():
            raise SessionLost("the instance was given up by the others while it worked on an epoch")
