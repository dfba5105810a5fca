"""Parts whose polls take long are polled beside the epochs, so that no epoch waits for them.

What an epoch polls has a fraction of the barrier's time-out. If that is over, its job is ended and the epoch
is committed without it: parts keep their states, and neighbours go on. Nobody knows then which part it was.
So all of them are polled once more in a job of their own, which may take as long as it likes. It tells how
long each took: those that were quick are polled in epochs again, and the others stay here.

What such a job brought is committed with the next epoch, from the very states that it began with. Its rows
were judged by the watermark of its begin, so the watermark stands still until then (`SlowPolls.frozen`). Its
files lie in a folder of their own, since rows belong into the folder of the epoch that commits them, and are
copied there; if that epoch is given up, they are copied again for the next. A process that dies loses them,
and the parts are polled anew. What is left is swept: each epoch tells which job is under way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.ingest.jobs.epoch_job import Ingestion
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.part_listing import Run
from penstock.streams.layout import Layout
from penstock.streams.model import OPEN, PartState, RowFile
from penstock.streams.outputs.task_threads import TaskThread

_log = logging.getLogger(__name__)

_SLOW = 0.5
"""A call that takes this share of what all polls of an epoch may take is slow."""
_TOLD_AFTER = 60.0

Parts = Mapping[PartName, PartState]


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

    # which parts

    def has(self, name: PartName) -> bool:
        """Whether a part is polled here and nowhere else: it is slow, or in a job that is not committed."""
        job = self._job
        return name in self._slow or (job is not None and name in job.parts)

    def suspect(self, names: Collection[PartName]) -> None:
        """One of these took too long, and nobody knows which."""
        self._slow.update(names)

    def learn(self, polled: Polled) -> None:
        """Take note of how long parts took."""
        limit = _SLOW * self.within
        for name, state in polled.states.items():
            if state.finished or polled.took.get(name, 0.0) < limit:
                self._slow.discard(name)
            else:
                self._slow.add(name)

    def keep(self, names: Collection[PartName]) -> None:
        """Forget other parts than these."""
        self._slow &= set(names)

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
            name: f"source {name}: a poll has not returned for more than {minutes}; the parts that it may be "
            "wait, others go on"
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

    def take(self, epoch: int, own: str, before: Parts) -> tuple[SlowJob, Polled] | None:
        """What a job brought, if it is done, with its rows in the folder of ``epoch``.

        Until that is committed, it can be taken again. An error of a source is raised once.
        """
        self._taken = None
        with self._lock:
            job, outcome = self._job, self._outcome
        if job is None or outcome is None:
            return None
        if isinstance(outcome, Exception):
            self._drop(job)
            raise outcome
        if any(before.get(name) != known for name, known in job.parts.items()):
            # It began from other states than those that are committed: what it brought means nothing.
            self._drop(job)
            return None
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
            self.learn(outcome)
            try:
                for file in outcome.files:
                    self._storage.delete(file.record.path)
            except OSError as error:
                _log.warning("rows that were copied are swept later: %s", error)

    def stop(self) -> None:
        """End the job, if there is one, and leave what it brought."""
        with self._lock:
            runs = self._job is not None and self._outcome is None
            self._job, self._outcome, self._taken = None, None, None
        if runs:
            self._ingestion.cancel()

    def _poll(self, job: SlowJob) -> None:
        outcome: Polled | Exception
        with self._lock:
            if self._job is not job:
                return  # it was stopped before it began
        try:
            outcome = self._ingestion.poll(job.prefix, job.parts, job.limits, job.thresholds, job.asked)
        except Exception as error:
            outcome = error
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
