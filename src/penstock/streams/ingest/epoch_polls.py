"""What an instance polls in an epoch: how much, which parts and journals, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from penstock.control.cluster.rules.model import Barrier
from penstock.core.failpoints import reach
from penstock.sources.base import PartName
from penstock.streams.ingest.event_times import EventTimes
from penstock.streams.ingest.holding import Holding, Parts
from penstock.streams.ingest.jobs.epoch_job import Ingestion, PollsTooSlow
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.journal_shuffle import NOTHING, JournalShuffle, JournalsToRead, ShuffleWork
from penstock.streams.ingest.pacing import Allowance
from penstock.streams.ingest.part_owners import PartOwners
from penstock.streams.ingest.slow_polls import SlowPolls
from penstock.streams.layout import Layout


class EpochPolls:
    """The polls of one instance, whose files have names that begin with ``own``.

    Parts that take long hold up nothing, if there are ``slow`` polls.
    """

    def __init__(
        self,
        ingestion: Ingestion,
        slow: SlowPolls | None,
        allowance: Allowance,
        owners: PartOwners,
        shuffle: JournalShuffle,
        times: EventTimes,
        layout: Layout,
        own: str,
    ) -> None:
        self._ingestion = ingestion
        self._slow = slow
        self._allowance = allowance
        self._owners = owners
        self._shuffle = shuffle
        self._times = times
        self._layout = layout
        self._own = own
        self._asked: dict[PartName, int] = {}
        """In which epoch a part was asked last."""

    def begin(self, names: Collection[PartName]) -> None:
        """Begin anew, with these parts."""
        self._asked = {name: epoch for name, epoch in self._asked.items() if name in names}
        if self._slow is not None:
            self._slow.keep(names)

    def forget(self, names: Collection[PartName]) -> None:
        for name in names:
            self._asked.pop(name, None)

    def cancel(self) -> None:
        """End what runs. From any thread."""
        self._ingestion.cancel()
        if self._slow is not None:
            self._slow.stop()

    # an epoch

    def poll(self, holding: Holding, barrier: Barrier) -> tuple[Polled, JournalsToRead]:
        """What jobs brought, and which journals could be read."""
        limits = self._allowance.limits(len(barrier.required), self._shuffle.bytes)
        to_read = self._to_read(limits)
        parts, work = self._divided(holding, barrier, to_read)
        if limits is None:
            parts = {}
        if not parts and not work:
            return Polled({}), to_read
        polled = self._run(holding, barrier.epoch, parts, limits or self._allowance.least, work)
        self._shuffle.heard(work, polled.states, polled.unfinished, polled.unasked)
        self._times.read(work.reads, polled.behind, holding.standing.newest)
        reach("stream.polled")
        self._learn(polled, barrier.epoch)
        return polled, to_read

    def came(self, holding: Holding, epoch: int) -> tuple[Parts, Polled]:
        """What came of polls beside the epochs: the states of their parts, and the rest."""
        found = self._slow.take(epoch, self._own, holding) if self._slow is not None else None
        if found is None:
            return {}, Polled({})
        job, polled = found
        self._learn(polled, epoch)
        # They were asked when the job began: what others have brought since says nothing of them.
        return self._times.moved(holding.parts, polled.states, polled.newest, job.newest), polled

    def _learn(self, polled: Polled, epoch: int) -> None:
        self._asked.update(dict.fromkeys(polled.states, epoch))
        self._allowance.learn(polled)

    def _to_read(self, limits: PollLimits | None) -> JournalsToRead:
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
        journals = {name: known for name, known in holding.parts.items() if self._shuffle.is_journal(name)}
        parts = {name: known for name, known in holding.parts.items() if name not in journals}
        prefix = f"{self._layout.epoch_runs(barrier.epoch)}/{self._own}"
        self._shuffle.forget()
        return parts, self._shuffle.work(barrier.epoch, prefix, journals, self._owners.owns, to_read)

    def _run(
        self, holding: Holding, epoch: int, parts: Parts, limits: PollLimits, work: ShuffleWork
    ) -> Polled:
        """Poll parts, and do the work for journals.

        Journals cannot be left out, since what becomes visible must do so in this epoch everywhere; so they
        have a job of their own.
        """
        slow, standing = self._slow, holding.standing
        prefix = f"{self._layout.epoch_rows(epoch)}/{self._own}"
        late = standing.watermark
        if slow is None:
            return self._ingestion.poll(prefix, parts, limits, late, self._asked, work)
        quick = {name: known for name, known in parts.items() if not slow.has(name)}
        share = limits.share(2) if work and quick else limits
        polled = Polled({})
        if work:
            polled = self._ingestion.poll(prefix, {}, share, late, {}, work)
        if quick:
            polled = polled.joined(self._poll_quick(slow, prefix, quick, share, late))
        # One that has just brought something goes on from the state that this epoch commits.
        left = {name: known for name, known in parts.items() if name not in polled.states}
        slow.begin(epoch, self._own, left, limits, late, self._asked, standing.newest)
        return polled

    def _poll_quick(
        self, slow: SlowPolls, prefix: str, parts: Parts, limits: PollLimits, late: Mapping[str, int]
    ) -> Polled:
        try:
            polled = self._ingestion.poll(prefix, parts, limits, late, self._asked, within=slow.within)
            slow.in_time(polled)
            return polled
        except PollsTooSlow as error:
            slow.overrun(parts.keys(), error.slow)
            return Polled({})

    # a drain

    def release(self, holding: Holding, barrier: Barrier) -> list[PartName]:
        """End polls of parts that leave; which these are."""
        gone = [name for name in holding.parts if self._owners.leaves(name, barrier.target)]
        if self._slow is not None:
            self._slow.release(gone)
        return gone

    def collect(self, holding: Holding, barrier: Barrier) -> Parts:
        """The states of the parts that leave; those that take too long leave with what is committed."""
        gone = self.release(holding, barrier)
        leaving = {
            name: holding.parts[name]
            for name in gone
            # The state of a journal is all there is of it.
            if not self._shuffle.is_journal(name)
            # One that takes long moves with the state that is committed, as it would from a dead instance.
            and not (self._slow is not None and self._slow.has(name))
        }
        # Nobody has asked these for rows: what is known of their time stays.
        return {
            name: replace(state, newest=leaving[name].newest, idle=leaving[name].idle)
            for name, state in self._collected(leaving).states.items()
        }

    def _collected(self, leaving: Parts) -> Polled:
        if not leaving:
            return Polled({})
        try:
            return self._ingestion.collect(leaving, self._slow.within if self._slow is not None else None)
        except PollsTooSlow:
            return Polled({})
