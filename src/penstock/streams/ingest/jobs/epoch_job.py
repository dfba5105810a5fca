"""The Spark job of an epoch: tasks build parts, poll them, write the rows, and hand back files and states.

Rows and states come back in the result of the same job. Whatever attempt of a task wins brings both, so that
a retry or a speculative attempt cannot tear them apart; what other attempts wrote is never referred to.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, TransientError
from penstock.sources.base import PartName
from penstock.spark.faults import decode as decode_fault
from penstock.spark.session import cancel_tag, is_local, job_tag, parallelism
from penstock.storage import Storage
from penstock.streams.ingest.jobs.epoch_tasks import CollectTask, PollLimits, PollTask
from penstock.streams.ingest.jobs.journal_task import journal_tasks
from penstock.streams.ingest.jobs.open_parts import Ticket
from penstock.streams.ingest.jobs.poll_watch import delete_marks, marked
from penstock.streams.ingest.jobs.task_results import SCHEMA, Polled, TaskResult, polled
from penstock.streams.ingest.journal_shuffle import NOTHING, ShuffleWork
from penstock.streams.model import PartState
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.streams.api.stream import SourceSpec

_log = logging.getLogger(__name__)

_CANCEL_EVERY = 0.2


_MARKED = 0.25
"""After this share of the time that polls may take, one that is under way is marked."""


class PollsTooSlow(TransientError):
    """Polls took longer than they may, and were ended."""

    code = "polls-too-slow"
    slow: frozenset[PartName] = frozenset()
    """Those that were at work then, as far as is known."""


class Ingestion:
    """Runs the jobs of one instance of a stream, one at a time.

    Where there are several for one stream, each has a ``tag`` of its own. ``share`` is how much of the cores
    it may hold.
    """

    def __init__(
        self,
        spark: SparkSession,
        stream: str,
        sources: Mapping[str, SourceSpec],
        storage: Storage,
        tag: str = "ingest",
        share: float = 1.0,
    ) -> None:
        self._spark = spark
        self._stream = stream
        self._sources = sources
        self._storage = storage
        self._codec = None if storage.local and is_local(spark) else "lz4"
        self._tag = f"penstock-{stream}-{tag}"
        self._share = share
        self._running = threading.Event()

    def poll(
        self,
        prefix: str,
        parts: Mapping[PartName, PartState],
        limits: PollLimits,
        thresholds: Mapping[str, int],
        asked: Mapping[PartName, int],
        shuffle: ShuffleWork = NOTHING,
        within: float | None = None,
    ) -> Polled:
        """Poll parts that are not finished; the rows go to files whose paths begin with ``prefix``.

        In the same job, ``shuffle`` is done for journals.

        ``asked`` says in which epoch a part was asked last. Those that have waited longest come first: where
        a limit is reached before all were asked, it is not always the same that go without.

        If it takes longer than ``within`` seconds, it is ended, and `PollsTooSlow` is raised, which says
        which parts were at work then.
        """
        most = self._tasks
        shares = tuple(_by_waiting(share, asked) for share in self._shares(parts))
        journals = tuple(journal_tasks(shuffle, most))
        tasks = max(len(shares), len(journals))
        task = PollTask(
            self._stream,
            self._sources,
            (*shares, *((),) * (tasks - len(shares))),
            limits.share(tasks),
            thresholds,
            self._storage,
            prefix,
            self._codec,
            journals,
            None if within is None else _MARKED * within,
        )
        return self._run(task, tasks, within, prefix)

    def collect(self, parts: Mapping[PartName, PartState], within: float | None = None) -> Polled:
        """Ask parts that move elsewhere for their states, and shut them down here."""
        shares = self._shares(parts)
        return self._run(CollectTask(self._stream, self._sources, shares), len(shares), within)

    def warm_up(self) -> None:
        """Let Spark start its Python workers, so that the first epoch need not wait for them."""
        count = parallelism(self._spark)
        self._run(CollectTask(self._stream, self._sources, ((),) * count), count)

    def cancel(self) -> None:
        """End the job that runs, if one does, and wait until it has ended. From any thread."""
        while self._running.is_set():
            with suppress(Exception):
                cancel_tag(self._spark, self._tag)
            time.sleep(_CANCEL_EVERY)

    def _shares(self, parts: Mapping[PartName, PartState]) -> tuple[tuple[Ticket, ...], ...]:
        """The parts in as many heaps as tasks can run at once.

        A part stays in its heap while the parts stay.
        """
        tickets = [Ticket(name, parts[name].state) for name in sorted(parts)]
        count = max(1, min(len(tickets), self._tasks))
        return tuple(tuple(tickets[n::count]) for n in range(count))

    @property
    def _tasks(self) -> int:
        """How many tasks may run at once."""
        return max(1, int(parallelism(self._spark) * self._share))

    def _run(self, task: Any, tasks: int, within: float | None = None, prefix: str = "") -> Polled:
        self._running.set()
        over = threading.Event()

        def give_up() -> None:
            over.set()
            self.cancel()

        with _after(within, give_up):
            try:
                return self._until_over(task, tasks)
            except Exception as error:
                if over.is_set():
                    raise self._too_slow(within, prefix) from error
                raise
            finally:
                if over.is_set() and prefix:
                    self._delete_marks(prefix)

    def _until_over(self, task: Any, tasks: int) -> Polled:
        try:
            return self._job(task, tasks)
        finally:
            self._running.clear()

    def _too_slow(self, within: float | None, prefix: str) -> PollsTooSlow:
        """The error about a job that was just ended. Its tasks are killed in the calls that they are in."""
        error = PollsTooSlow(f"polls took longer than {within or 0:g} s")
        # Not before: a storage that takes long would keep the job running, and the epoch waits for it.
        with suppress(Exception):
            error.slow = marked(self._storage, prefix) if prefix else frozenset()
        return error

    def _delete_marks(self, prefix: str) -> None:
        try:
            delete_marks(self._storage, prefix)
        except Exception as error:
            _log.warning("marks of parts that take long are swept later: %s", error)

    def _job(self, task: Any, tasks: int) -> Polled:
        try:
            with job_tag(self._spark, self._tag):
                seeds = self._spark.range(0, tasks, 1, tasks)
                answers = seeds.mapInArrow(task, spark_schema(SCHEMA)).collect()
                return polled(TaskResult.decode(row["result"]) for row in answers)
        except PenstockError:
            raise
        except Exception as error:
            raise decode_fault(error) from error


@contextmanager
def _after(seconds: float | None, do: Callable[[], object]) -> Iterator[None]:
    """Do something unless the block ends within so many seconds; it is done when the block is left."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # It must not end the next job.
        timer.join()


def _by_waiting(share: tuple[Ticket, ...], asked: Mapping[PartName, int]) -> tuple[Ticket, ...]:
    """Those that were never asked first, then those that were asked longest ago."""
    return tuple(sorted(share, key=lambda ticket: asked.get(ticket.name, -1)))
