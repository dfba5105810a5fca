"""The tasks of an epoch's job: they build parts, poll them and write the rows, inside Spark's workers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.journals.shuffle.slices.slices import SliceLimits
from penstock.sources.base import PartName
from penstock.spark.faults import carried
from penstock.spark.flow import Batches
from penstock.storage import Storage
from penstock.streams.ingest.jobs.intake import Intake
from penstock.streams.ingest.jobs.journal_task import JournalTask, Sliced
from penstock.streams.ingest.jobs.open_parts import HOST, OpenParts, Ticket
from penstock.streams.ingest.jobs.poll_watch import PollWatch
from penstock.streams.ingest.jobs.task_results import TaskResult
from penstock.streams.model import PartState

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.streams.api.stream import SourceSpec

_CHUNK = 1 << 16
_LEAST = 1 << 10
_FIRST = 1 << 10


@dataclass(frozen=True, slots=True)
class PollLimits:
    """What one instance may poll in one epoch."""

    rows: int
    bytes: int
    seconds: float
    sizes: Mapping[str, float] = field(default_factory=dict)
    """By source, how many bytes its rows took in memory, as far as that is known."""

    def share(self, tasks: int) -> PollLimits:
        """What one of several tasks may poll."""
        return replace(self, rows=max(1, self.rows // tasks), bytes=max(1, self.bytes // tasks))


@dataclass(frozen=True, slots=True)
class PollTask:
    """A task that polls its share of the parts."""

    stream: str
    sources: Mapping[str, SourceSpec]
    shares: tuple[tuple[Ticket, ...], ...]
    limits: PollLimits
    thresholds: Mapping[str, int]
    storage: Storage
    prefix: str
    codec: str | None
    journals: tuple[JournalTask, ...] = ()
    mark_after: float | None = None
    """After how many seconds of a call its part is marked (see `jobs.poll_watch`)."""

    def __call__(self, seeds: Batches) -> Batches:
        with carried("ingestion"):
            for seed in seeds:
                for number in seed.column(0).to_pylist():
                    yield self._run(number)

    def _run(self, number: int) -> pa.RecordBatch:
        from pyspark import TaskContext

        HOST.sweep()
        HOST.make_room(len(self.shares[number]))
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        prefix = f"{self.prefix}-{number}-{attempt}"
        intake = Intake(self.storage, prefix, self.codec, self.thresholds)
        journals = self.journals[number] if number < len(self.journals) else None
        with self._watch(prefix) as watch, OpenParts(self.stream, self.sources) as open_parts:
            with intake:
                brought = self._fill(open_parts, intake, self.shares[number], watch)
                states = open_parts.snapshots(watch)
                if journals is not None:
                    journals.show(self.sources, self.storage, intake)
                # They share the files: nobody can tell whose rows the storage takes long for.
                with watch.call(*brought):
                    intake.complete()
            open_parts.suspend(states, watch)
        if journals is None:
            return _result(states, intake, took=watch.took).batch()
        # Documents take their room twice: in runs, and in the queue before these are deleted.
        limits = SliceLimits(max(1, self.limits.bytes // 2), self.limits.rows, self.limits.seconds)
        sliced = journals.read(self.sources, self.storage, limits, f"{number}-{attempt}", self.codec)
        return _result({**states, **sliced.states}, intake, sliced, watch.took).batch()

    def _watch(self, prefix: str) -> PollWatch:
        return PollWatch() if self.mark_after is None else PollWatch(self.storage, prefix, self.mark_after)

    def _fill(
        self, open_parts: OpenParts, intake: Intake, tickets: Sequence[Ticket], watch: PollWatch
    ) -> set[PartName]:
        """Go round the parts until all have nothing more, or the limits are reached; who brought rows.

        A part is opened when its turn comes, and those whose turn does not come stay as they are: thousands
        of them need not be open at once.
        """
        deadline = time.monotonic() + self.limits.seconds
        waiting, measure = deque(tickets), _Measure(self.limits)
        brought: set[PartName] = set()
        while waiting and intake.rows < self.limits.rows and intake.bytes < self.limits.bytes:
            ticket = waiting.popleft()
            name, before = ticket.name, intake.bytes
            with watch.call(name):
                limit = measure.rows(name.source, intake, len(waiting) + 1)
                came = self._poll(open_parts, intake, ticket, limit)
            measure.learn(name.source, came, intake.bytes - before)
            if came:
                brought.add(name)
                if name in open_parts.parts:
                    waiting.append(ticket)
            if time.monotonic() >= deadline:
                break
        return brought

    def _poll(self, open_parts: OpenParts, intake: Intake, ticket: Ticket, limit: int) -> int:
        """Take in what a poll brings, and how many rows that were; a part that has finished is closed."""
        name = ticket.name
        open_parts.open(ticket)
        came = intake.take(self.sources[name.source], name.part, open_parts.poll(name, limit))
        if open_parts.is_finished(name):
            open_parts.finish(name)
        return came


class _Measure:
    """How many rows a poll is asked for.

    Rows can be of any size, and how large they were is known only afterwards. So a source that nobody has
    read yet is asked for few, and then for as many as still fit if they are like those of its last poll.
    """

    def __init__(self, limits: PollLimits) -> None:
        self._limits = limits
        self._sizes = dict(limits.sizes)

    def rows(self, source: str, taken: Intake, waiting: int) -> int:
        """The rows for the next of ``waiting`` parts."""
        left = self._limits.rows - taken.rows
        fair = min(left, _CHUNK, max(_LEAST, left // waiting))
        size = self._sizes.get(source)
        fitting = _FIRST if size is None else int((self._limits.bytes - taken.bytes) / max(1.0, size))
        return max(1, min(fair, fitting))

    def learn(self, source: str, rows: int, size: int) -> None:
        if rows:
            self._sizes[source] = size / rows


@dataclass(frozen=True, slots=True)
class CollectTask:
    """A task that shuts parts down for their move."""

    stream: str
    sources: Mapping[str, SourceSpec]
    shares: tuple[tuple[Ticket, ...], ...]

    def __call__(self, seeds: Batches) -> Batches:
        with carried("the move of parts"):
            for seed in seeds:
                for number in seed.column(0).to_pylist():
                    with OpenParts(self.stream, self.sources) as open_parts:
                        for ticket in self.shares[number]:
                            open_parts.open(ticket)
                        states = open_parts.collected()
                    yield TaskResult(states).batch()


def _result(
    states: Mapping[PartName, PartState],
    intake: Intake,
    sliced: Sliced | None = None,
    took: Mapping[PartName, float] | None = None,
) -> TaskResult:
    """What a task took in, and what it read of journals."""
    result = TaskResult(
        states, tuple(intake.written), dict(intake.newest), dict(intake.taken), took=took or {}
    )
    if sliced is None:
        return result
    return replace(
        result,
        runs=sliced.files,
        progress=sliced.progress,
        read=sliced.read,
        unasked=sliced.unasked,
        unfinished=sliced.unfinished,
        behind=sliced.behind,
    )
