"""Parts whose polls take long are polled beside the epochs, so that no epoch waits for them.

What an epoch polls has a fraction of the barrier's time-out. If that is over, its job is ended and the epoch
is committed without it: parts keep their states. Tasks leave marks of the parts that they were at (see
`jobs.poll_watch`). Those are polled once more in a job of their own, which may take as long as it likes, and
the others go on in the epochs. The job tells how long each took: those that were quick are polled in epochs
again, and the others stay here.

Where epochs run out of time again and again, each time at another part, it is rather the source that is slow:
then all its parts are polled here. Where there is no mark at all, the machine was rather too busy to begin
the job, and it is tried again. Only if that happens many times in a row, all parts are polled here, where
they may take the time they need.

A longer time-out for all parts would not do: the quick ones would starve while an epoch waits for a slow one.

What such a job brought is committed with the next epoch, from the very states that it began with. Its rows
were judged by the watermark of its begin, so the watermark stands still until then (`SlowPolls.frozen`). Its
files lie in a folder of their own, since rows belong into the folder of the epoch that commits them, and are
copied there; if that epoch is given up, they are copied again for the next. A process that dies loses them,
and the parts are polled anew; so it is if one of them moves to another instance. What is left is swept: each
epoch tells which job is under way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.ingest.holding import Holding, Parts
from penstock.streams.ingest.jobs.epoch_job import Ingestion
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.part_listing import Run
from penstock.streams.layout import Layout
from penstock.streams.model import OPEN, RowFile
from penstock.streams.outputs.task_threads import TaskThread

_log = logging.getLogger(__name__)

_SLOW = 0.5
"""A call that takes this share of what all polls of an epoch may take is slow."""
_TOLD_AFTER = 60.0
_OVERRUNS = 3
"""After so many epochs in a row that ran out of time, all parts of a source are slow that was marked."""
_UNMARKED = 10
"""After so many, all parts are slow where none was marked."""
_LOOK_EVERY = 0.05


@dataclass(frozen=True, slots=True)
class SlowJob:
    """A job beside the epochs, which was begun in ``epoch``, and what was known then."""

    epoch: int
    parts: Parts
    limits: PollLimits
    thresholds: Mapping[str, int]
    asked: Mapping[PartName, int]
    newest: Mapping[str, int]
    """What each source had brought."""
    prefix: str
    at: float

    @property
    def sources(self) -> set[str]:
        return {name.source for name in self.parts}

    def fits(self, now: Holding) -> bool:
        """Whether it began from the states that are committed, and by their watermarks.

        They can be others if owners have changed meanwhile. What it brought means nothing then.
        """
        late = now.standing.watermark
        return all(now.parts.get(name) == known for name, known in self.parts.items()) and all(
            late.get(source) == self.thresholds.get(source) for source in self.sources
        )


class SlowPolls:
    """The parts of one instance that take long, and the job that polls them, one at a time.

    ``within`` are the seconds that polls of an epoch may take. `stop` may come from any thread.
    """

    def __init__(
        self,
        ingestion: Ingestion,
        storage: Storage,
        layout: Layout,
        within: float,
        clock: Callable[[], float] = time.monotonic,
        run: Run | None = None,
    ) -> None:
        self.within = within
        self._ingestion = ingestion
        self._storage = storage
        self._layout = layout
        self._clock = clock
        self._run = run or TaskThread("penstock-slow-parts").offer
        self._lock = threading.Lock()
        self._slow: set[PartName] = set()
        self._job: SlowJob | None = None
        self._outcome: Polled | Exception | None = None
        self._taken: int | None = None
        self._polled: SlowJob | None = None
        """The job that a thread works on, also if it was stopped."""
        self._overruns = 0

    # which parts

    def has(self, name: PartName) -> bool:
        """Whether a part is polled here and nowhere else: it is slow, or in a job that is not committed."""
        job = self._job
        return name in self._slow or (job is not None and name in job.parts)

    def overrun(self, names: Collection[PartName], marked: Collection[PartName]) -> None:
        """Polls of these took too long, and those that are ``marked`` were at it."""
        self._overruns += 1
        slow = {name for name in names if name in marked}
        # With a job under way, parts that are moved would wait for it, however long it takes.
        if self._job is None and self._overruns >= (_OVERRUNS if slow else _UNMARKED):
            self._overruns = 0
            sources = {name.source for name in slow or names}
            slow = {name for name in names if name.source in sources}
        self._slow |= slow

    def in_time(self, polled: Polled) -> None:
        """Polls of an epoch brought this."""
        self._overruns = 0
        self._learn(polled)

    def _learn(self, polled: Polled) -> None:
        """Take note of how long parts took."""
        limit = _SLOW * self.within
        for name, state in polled.states.items():
            if state.finished or polled.took.get(name, 0.0) < limit:
                self._slow.discard(name)
            else:
                self._slow.add(name)

    def keep(self, names: Collection[PartName]) -> None:
        """Forget other parts than these, and end a job that has one of the others."""
        self._slow &= set(names)
        job = self._job
        if job is not None:
            self.release(job.parts.keys() - set(names))

    def release(self, names: Collection[PartName]) -> None:
        """End a job that has one of these parts: they may move elsewhere."""
        job = self._job
        if job is not None and not job.parts.keys().isdisjoint(names):
            self.stop()

    # the job

    @property
    def pending(self) -> SlowJob | None:
        """The job whose rows are in no epoch yet, nor in the one that is being prepared."""
        with self._lock:
            return self._job if self._taken is None else None

    def frozen(self, lateness: Mapping[str, int]) -> dict[str, int]:
        """Before which event times no row is expected, by source, so that no watermark moves meanwhile."""
        job = self.pending
        sources = job.sources & lateness.keys() if job is not None else ()
        return {
            name: job.thresholds[name] + lateness[name] if name in job.thresholds else OPEN
            for name in sources
            if job is not None
        }

    def problems(self) -> dict[str, str]:
        """The sources whose parts take very long."""
        job = self.pending
        if job is None or (took := self._clock() - job.at) < _TOLD_AFTER:
            return {}
        minutes = f"{took // 60:.0f} min"
        return {
            name: f"source {name}: a poll has not returned for more than {minutes}; the parts that are "
            "polled with it wait, others go on"
            for name in job.sources
        }

    def begin(
        self,
        epoch: int,
        own: str,
        parts: Parts,
        limits: PollLimits,
        thresholds: Mapping[str, int],
        asked: Mapping[PartName, int],
        newest: Mapping[str, int],
    ) -> None:
        """Poll those of ``parts`` that are slow, unless a job is under way."""
        slow = {name: known for name, known in parts.items() if name in self._slow}
        with self._lock:
            if self._job is not None or not slow:
                return
            prefix = f"{self._layout.polled}/{epoch:016}-{own}"
            asked = {name: asked[name] for name in slow if name in asked}
            job = SlowJob(epoch, slow, limits, dict(thresholds), asked, newest, prefix, self._clock())
            self._job = job
        try:
            taken = self._run(lambda: self._poll(job))
        except BaseException:
            self._drop(job)
            raise
        if taken is False:
            # The one before was ended, and has not heard of it yet.
            self._drop(job)

    def take(self, epoch: int, own: str, before: Holding) -> tuple[SlowJob, Polled] | None:
        """What a job brought, if it is done, with its rows in the folder of ``epoch``.

        Until that is committed, it can be taken again. An error of a source is raised once. Of a job that
        does not fit what is committed by now, neither rows nor an error mean anything.
        """
        self._taken = None
        with self._lock:
            job, outcome = self._job, self._outcome
        if job is None or outcome is None:
            return None
        if not job.fits(before):
            if isinstance(outcome, Exception):
                _log.info("a poll failed of parts that have gone on since, and is passed over: %s", outcome)
            self._drop(job)
            return None
        if isinstance(outcome, Exception):
            self._drop(job)
            raise outcome
        try:
            files = tuple(self._copied(file, epoch, own, n) for n, file in enumerate(outcome.files))
        except FileNotFoundError:
            _log.warning(
                "rows of parts that take long are gone before they were committed, and are read again"
            )
            self._drop(job)
            return None
        self._taken = epoch
        return job, replace(outcome, files=files)

    def committed(self, epoch: int) -> None:
        """What was taken for this epoch is part of it."""
        if self._taken != epoch:
            return
        self._taken = None
        with self._lock:
            job, outcome = self._job, self._outcome
        if job is not None:
            self._drop(job)
        if isinstance(outcome, Polled):
            self._learn(outcome)
            try:
                for file in outcome.files:
                    self._storage.delete(file.record.path)
            except OSError as error:
                _log.warning("rows that were copied are swept later: %s", error)

    def aborted(self) -> None:
        """What was taken for an epoch is part of none: it is under way again."""
        self._taken = None

    def stop(self) -> None:
        """End the job, if there is one, and leave what it brought."""
        with self._lock:
            job, runs = self._job, self._job is not None and self._outcome is None
            self._job, self._outcome, self._taken = None, None, None
        if runs:
            self._ingestion.cancel()
        # It may have been about to begin, when there was nothing to cancel yet.
        while job is not None and self._polled is job:
            time.sleep(_LOOK_EVERY)
            self._ingestion.cancel()

    def _poll(self, job: SlowJob) -> None:
        outcome: Polled | Exception
        with self._lock:
            if self._job is not job:
                return  # it was stopped before it began
            self._polled = job
        try:
            outcome = self._ingestion.poll(job.prefix, job.parts, job.limits, job.thresholds, job.asked)
        except Exception as error:
            outcome = error
        finally:
            self._polled = None
        with self._lock:
            if self._job is job:
                self._outcome = outcome

    def _drop(self, job: SlowJob) -> None:
        with self._lock:
            if self._job is job:
                self._job, self._outcome = None, None

    def _copied(self, file: RowFile, epoch: int, own: str, number: int) -> RowFile:
        path = f"{self._layout.epoch_rows(epoch)}/{own}-beside-{number}.arrow"
        self._storage.copy(file.record.path, path)
        return replace(file, record=replace(file.record, path=path))
