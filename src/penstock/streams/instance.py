"""An instance of a stream.

A member of its cluster that ingests parts, runs outputs and keeps the log in order.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import penstock
from penstock.config import Config
from penstock.control.cluster.node import Node
from penstock.control.cluster.rules.model import Decision, Member
from penstock.errors import PenstockError, StoreUnavailable
from penstock.spark import session
from penstock.spark.sharing import check_shared
from penstock.store import Store
from penstock.streams import registry
from penstock.streams.ingest.jobs.epoch_job import Ingestion
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
from penstock.streams.ingest.pacing import Allowance, StreamRhythm
from penstock.streams.ingest.slow_polls import SlowPolls
from penstock.streams.ingest.worker import StreamWorker
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.log.retention import LogRetention
from penstock.streams.log.spark_source import reading
from penstock.streams.model import END, SCOPE
from penstock.streams.outputs.running_outputs import RunningOutputs, reserve
from penstock.streams.place import Place
from penstock.streams.views.epoch_events import EpochEvents
from penstock.streams.views.events import Listener, joined, logged, problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.streams.api.stream import Stream

_log = logging.getLogger(__name__)

Ending = Literal["ended", "stopped", "left"]

_STEP = 0.2
_KEEP_EVERY = 2.0
_LOOK_EVERY = 0.5
_PATIENCE = 20.0
_BESIDE = 1 / 4
"""The share of the cores that slow polls may hold, so that epochs find enough of them free."""
_POLLS = 1 / 3
"""What an epoch's polls may take of the time between ``stream.max_seconds`` and the barrier's time-out."""


class StreamInstance:
    """Takes part in a stream until it ends, is stopped by a wish, or `stop` is called."""

    def __init__(
        self,
        stream: Stream,
        place: Place,
        config: Config,
        member: str,
        spark: SparkSession | None = None,
        listener: Listener = logged,
    ) -> None:
        self._stream = stream
        self._place = place
        self._config = config
        self._member = member
        self._given = spark
        self._listener = listener
        self._wanted: registry.Wanted = "running"
        self._requests = 0
        self._outputs: RunningOutputs | None = None
        self._dropped = False
        self._asked = threading.Event()
        self._over = threading.Event()

    def stop(self) -> None:
        """Ask it to leave.

        What is committed stays, and the others go on with what it owned. From any thread.
        """
        self._asked.set()

    def run(self) -> Ending:
        """Take part; how it ended. Raises what keeps it from taking part at all."""
        if self._config.store_password:
            # The processes that Spark starts to plan reads open the store by themselves.
            os.environ.setdefault("PENSTOCK_STORE_PASSWORD", self._config.store_password)
        store, storage = self._place.open()
        with store, self._session() as spark:
            check_shared(spark, storage)
            layout = self._place.layout
            log = EpochLog(store, storage, layout)
            reserve(log, self._stream)
            ingestion = Ingestion(spark, layout.id, self._stream.sources, storage)
            slow = Ingestion(spark, layout.id, self._stream.sources, storage, "beside", _BESIDE)
            outputs = RunningOutputs(
                spark,
                store,
                storage,
                layout,
                self._member,
                self._stream.outputs,
                reading(self._place, self._stream),
                self._listener,
            )
            self._outputs = outputs
            ingestion.warm_up()
            settings = self._config.stream
            limits = PollLimits(settings.max_rows, settings.max_bytes, settings.max_seconds)
            worker = _Worker(
                self._member,
                self._stream.sources,
                ingestion,
                storage,
                layout,
                Allowance(limits, lambda: settings.queue_bytes - log.size(), settings.queue_bytes),
                settings.list_every,
                self._since,
                time.monotonic,
                lambda said: self._listener(problem(said)),
                None,
                SlowPolls(slow, storage, layout, self._polls_within),
                outputs=outputs,
            )
            epoch_events = EpochEvents(worker, lambda: self._node.control.assignment, self._listener)
            rhythm = StreamRhythm(
                settings.epoch_every,
                settings.max_rows,
                settings.max_bytes,
                self._goes_on,
                epoch_events.decided,
            )
            member = Member(self._member, "", penstock.__version__, role="stream")
            cluster = replace(self._config.cluster, name=layout.cluster)
            self._node = Node(
                store, member, cluster, {SCOPE: worker}, {SCOPE: rhythm}, kept={SCOPE: log.needed}
            )
            return self._take_part(store, log, outputs, worker)

    def _take_part(
        self, store: Store, log: EpochLog, outputs: RunningOutputs, worker: StreamWorker
    ) -> Ending:
        self._heed(store)
        # Here and not in a thread: an id that is taken is an error of this call.
        self._node.pulse()
        self._node.start()
        self._listener(joined(self._stream.name, self._member))
        settings = self._config.stream
        keeper = LogRetention(log, age=settings.retain_for, size=settings.retain_bytes)
        steps: dict[str, tuple[Callable[[], object], float]] = {
            "wishes": (lambda: self._heed(store), _LOOK_EVERY),
            "outputs": (lambda: self._run_outputs(outputs, log), _STEP),
            "keeper": (lambda: self._keep(keeper), _KEEP_EVERY),
        }
        if worker.shuffle:
            steps["hints"] = (lambda: self._check_hints(worker), _KEEP_EVERY)
            steps["lines"] = (lambda: worker.shuffle.check_lines(settings.hint_patience), _KEEP_EVERY)
        threads = [_thread(name, partial(self._repeat, *step)) for name, step in steps.items()]
        try:
            while not self._asked.wait(_STEP):
                if self._dropped:
                    raise registry.removed(self._stream.name)
                if self._wanted == "stopped":
                    return "stopped"
                if self._ended and outputs.finished:
                    return "ended"
            return "left"
        finally:
            self._over.set()
            for thread in threads:
                thread.join(_PATIENCE)
            outputs.release()
            with suppress(StoreUnavailable):
                self._node.leave()

    # what the threads do

    def _heed(self, store: Store) -> None:
        """Look at what people want of the stream."""
        record = registry.find(store, self._stream.name)
        if record is None or record.id != self._place.id:
            self._dropped = True
            raise registry.removed(self._stream.name)
        self._wanted = record.wanted
        if self._outputs is not None and record.requests != self._requests:
            self._outputs.retry()
        self._requests = record.requests

    def _run_outputs(self, outputs: RunningOutputs, log: EpochLog) -> None:
        outputs.step(self._node.control.assignment, self._node.session, log.end() if self._ended else None)

    def _keep(self, keeper: LogRetention) -> None:
        if self._node.leadership is not None:
            keeper.tidy()

    def _check_hints(self, worker: StreamWorker) -> None:
        if self._node.leadership is not None:
            worker.check_hints(self._config.stream.hint_patience)

    def _repeat(self, step: Callable[[], object], pause: float) -> None:
        told = ""
        while not self._over.is_set():
            try:
                step()
                told = ""
            except StoreUnavailable as error:
                _log.info("%s", error)
            except PenstockError as error:
                if str(error) != told:
                    self._listener(problem(error.what, code=error.code))
                told = str(error)
            except Exception as error:
                # Without this thread the instance would look alive and do only half of its work.
                if str(error) != told:
                    _log.exception("a part of the instance failed and is tried again")
                told = str(error)
            self._over.wait(pause)

    # what the parts ask

    @property
    def _ended(self) -> bool:
        return self._node.room.newest.scope(SCOPE).watermark == END

    @property
    def _polls_within(self) -> float:
        """How many seconds the polls of an epoch may take: they are ended while there is time to answer."""
        least = self._config.stream.max_seconds
        return least + max(least, self._config.cluster.barrier_timeout - least) * _POLLS

    def _goes_on(self) -> bool:
        return self._wanted == "running" and not self._ended

    def _since(self, known: int) -> Decision | None:
        """The last committed epoch, if it is later than ``known``."""
        committed = self._node.room.newest.scope(SCOPE).committed
        return self._node.records.decision(SCOPE, committed) if committed > known else None

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        if self._given is not None:
            yield self._given
            return
        name = f"penstock {self._stream.name} {self._member}"
        spark = session.start(self._config.spark, app_name=name)
        try:
            yield spark
        finally:
            spark.stop()


class _Worker(StreamWorker):
    """A worker whose outputs stop with it when the instance is fenced."""

    def __init__(self, *arguments: object, outputs: RunningOutputs) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._outputs = outputs

    def fenced(self) -> None:
        super().fenced()
        self._outputs.fence()


def _thread(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=f"penstock-{name}", daemon=True)
    thread.start()
    return thread
