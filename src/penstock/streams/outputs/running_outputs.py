"""The outputs of a stream that this instance runs: Structured Streaming queries over its committed epochs."""

from __future__ import annotations

import json
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster import rendezvous
from penstock.cluster.model import Snapshot
from penstock.errors import FencedError, PenstockError, SessionLost, StoreUnavailable
from penstock.failpoints import reach
from penstock.spark.faults import WorkerFault, decode, encode
from penstock.spark.paths import for_spark
from penstock.spark.session import is_connect, is_local
from penstock.storage import Storage
from penstock.store import Store
from penstock.streams import events
from penstock.streams.claims import Claims, OutputClaim
from penstock.streams.events import Listener
from penstock.streams.flow.query import Read
from penstock.streams.flow.settings import spark_settings
from penstock.streams.holds import Holds
from penstock.streams.layout import Layout
from penstock.streams.log import EpochLog
from penstock.streams.progress import Range, Reached
from penstock.streams.sinks.base import Batch, Target, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.streams.stream import Output

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 30.0
_STOP_WITHIN = 10.0
_IDLE = 1.0

Reading = Callable[[str, Path], Read]
"""Gives the function that reads sources for an output; ranges of batches are told in the file."""


class Outputs:
    """Claims outputs, runs them, and tries again what failed.

    `step` is called again and again by one thread.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        storage: Storage,
        layout: Layout,
        member: str,
        outputs: Mapping[str, Output],
        reading: Reading,
        listener: Listener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Settings of queries are nobody else's business.
        self._spark = spark if is_connect(spark) else spark.newSession()
        self._store = store
        self._storage = storage
        self._layout = layout
        self._member = member
        self._outputs = outputs
        self._reading = reading
        self._listener = listener
        self._clock = clock
        self.claims = Claims(store, layout)
        self._holds = Holds(EpochLog(store, storage, layout))
        self._running: dict[str, RunningOutput] = {}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._finished: set[str] = set()
        self._lock = threading.Lock()

    @property
    def finished(self) -> bool:
        """Whether every output has taken in all there is, of a stream that has ended."""
        return len(self._finished) == len(self._outputs)

    def step(self, snapshot: Snapshot, session: str | None, end: int | None) -> None:
        """See after all outputs. ``session`` None: this instance is no member at the moment and runs none.

        ``end`` is the last epoch, once the stream has ended.
        """
        for name in self._outputs:
            if name in self._finished:
                continue
            try:
                self._see_after(name, snapshot, session, end)
            except StoreUnavailable as error:
                _log.info("output %s: %s", name, error)
            except FencedError as error:
                _log.info("output %s: %s", name, error)
                self._drop(name)
            except PenstockError as error:
                self._failed(name, error)

    def _see_after(self, name: str, snapshot: Snapshot, session: str | None, end: int | None) -> None:
        running = self._running.get(name)
        if running is None:
            if session is not None:
                self._begin(name, snapshot, session)
        elif running.session != session:
            self._drop(name)
        elif (error := running.failure()) is not None:
            # Also one of the store's: the query has ended, whatever of.
            self._failed(name, error)
        else:
            self._look_after(name, running, end)

    def fence(self) -> None:
        """Stop everything at once, and keep nothing. From any thread."""
        stopping = [_thread(partial(self._drop, name)) for name in list(self._running)]
        for thread in stopping:
            thread.join()

    def release(self) -> None:
        """Stop everything, and let others go on with it at once."""
        were = dict(self._running)
        self.fence()
        for name, running in were.items():
            with suppress(PenstockError):
                self.claims.release(name, running.claim.token)

    def _begin(self, name: str, snapshot: Snapshot, session: str) -> None:
        if self._clock() < self._not_before.get(name, 0.0):
            return
        claim = self.claims.read(name)
        if claim.finished:
            self._finished.add(name)
            return
        mine = (claim.member, claim.session) == (self._member, session)
        if not mine and not self._may_take(name, snapshot):
            return
        taken = self.claims.take(name, self._member, session)
        if taken is None:
            return
        running = RunningOutput(self, self._outputs[name], taken, session)
        with self._lock:
            self._running[name] = running
        running.start(self._spark, self._reading)

    def _may_take(self, name: str, snapshot: Snapshot) -> bool:
        """One of the instances takes what is free: so they do not run after each other's."""
        return bool(snapshot.seats) and rendezvous.owner(snapshot.seats, f"output/{name}") == self._member

    def _look_after(self, name: str, running: RunningOutput, end: int | None) -> None:
        if not running.told and running.is_up():
            self._tell_start(name, running)
        if running.works:
            self._failures.pop(name, None)
        running.let_go(self._holds)
        if end is not None and running.epoch >= end and running.drained():
            self._tell_start(name, running)
            self.claims.update(name, running.claim.token, finished=True)
            self._finished.add(name)
            self._drop(name)

    def _tell_start(self, name: str, running: RunningOutput) -> None:
        if not running.told:
            running.told = True
            claim = running.claim
            self._listener(events.output_started(name, batch=claim.batch, epoch=claim.epoch))

    def _failed(self, name: str, error: PenstockError) -> None:
        running = self._running.get(name)
        self._drop(name)
        count = self._failures[name] = self._failures.get(name, 0) + 1
        pause = min(_LONGEST_PAUSE, 2.0 ** (count - 1))
        self._not_before[name] = self._clock() + pause
        self._listener(events.problem(f"output {name}: {error.what}; again in {pause:g} s", code=error.code))
        if running is not None:
            with suppress(PenstockError):
                self.claims.update(name, running.claim.token, problem=error.what[:500])

    def _drop(self, name: str) -> None:
        with self._lock:
            running = self._running.pop(name, None)
        if running is not None:
            running.stop()

    # what a running output needs of its surroundings

    def target(self, output: Output, claim: OutputClaim) -> Target:
        return Target(
            stream=self._layout.stream,
            id=self._layout.id,
            output=output.name,
            token=claim.token,
            table=output.table,
            mode=output.mode,
            keys=output.keys,
            store=self._store,
            storage=self._storage,
            spark=self._spark,
        )

    def set_up(self, output: Output) -> None:
        """Give the session the settings that a query takes with it when it starts."""
        local = self._storage.local is not None and is_local(self._spark)
        for key, value in spark_settings(expires=output.shape.expires, local_disk=local).items():
            self._spark.conf.set(key, value)

    def checkpoint(self, name: str) -> str:
        return for_spark(self._storage.location(f"{self._layout.output(name)}/checkpoint"))

    def took(self, name: str, token: int, batch: Batch, reached: Reached, seconds: float) -> None:
        """A batch is in its sink: say so, unless somebody else runs the output by now."""
        ends, final = dict(reached.ends), tuple(sorted(reached.final))
        self.claims.update(
            name, token, batch=batch.number, epoch=batch.epoch, ends=ends, final=final, problem=""
        )
        self._listener(events.batch_taken(name, batch=batch.number, epoch=batch.epoch, seconds=seconds))


class RunningOutput:
    """One query and its sink, under one claim."""

    def __init__(self, outputs: Outputs, output: Output, claim: OutputClaim, session: str) -> None:
        self._outputs = outputs
        self._output = output
        self.claim = claim
        self.session = session
        self.epoch = claim.epoch
        self._reached = claim.reached
        self.told = False
        self.works = False
        self._took_at = 0.0
        self._needless = claim.epoch
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-output-")
        self._ranges = Path(self._folder.name)
        self._writer: Writer | None = None
        self._query: StreamingQuery | None = None
        self._stopped = threading.Event()

    def start(self, spark: SparkSession, reading: Reading) -> None:
        """Open the sink, which fences whoever had it before, and let the query go on from its checkpoint."""
        name = self._output.name
        self._writer = self._output.sink.open(self._outputs.target(self._output, self.claim))
        try:
            self._outputs.set_up(self._output)
            frame = self._output.frame(spark, reading(name, self._ranges))
            self._query = (
                frame.writeStream.outputMode(self._output.mode)
                .option("checkpointLocation", self._outputs.checkpoint(name))
                .foreachBatch(self._take)
                .start()
            )
        except PenstockError:
            raise
        except Exception as error:
            raise decode(error) from error
        if self._stopped.is_set():
            # It was fenced while the query was on its way.
            self.stop()
            raise SessionLost(f"output {name} was let go while it started")

    def failure(self) -> PenstockError | None:
        """What ended the query, if it has ended."""
        query = self._query
        if query is None or query.isActive or self._stopped.is_set():
            return None
        error = query.exception()
        return decode(error) if error is not None else PenstockError("the query ended by itself")

    def is_up(self) -> bool:
        """Whether the query has its sources, and takes in what comes: that is seconds after its start."""
        if self._query is None:
            return False
        message: str = self._query.status["message"]
        return not message.startswith(("Initializing", "Terminated")) and self._query.isActive

    def let_go(self, holds: Holds) -> None:
        """Let the epochs of the last batch go, once Spark has noted that it is done.

        Spark itself does so with the next batch, which never comes while a queue that is full of these very
        epochs waits for room.
        """
        if self._query is None or self._needless >= self.epoch or time.monotonic() < self._took_at + _IDLE:
            return
        ends = _ends(self._query.lastProgress)
        if not ends:
            return
        for file in self._ranges.glob("*.json"):
            holds.advance(f"{self._output.name}.{file.stem}", min(ends))
        self._needless = min(ends)

    def drained(self) -> bool:
        """Wait until the query has nothing more to do.

        Closing the last windows takes batches without rows. False if it was stopped, or failed, before it was
        done: waiting ends then as well.
        """
        if self._query is None:
            return False
        try:
            self._query.processAllAvailable()
        except Exception as error:
            raise decode(error) from error
        return self._query.isActive and not self._stopped.is_set()

    def stop(self) -> None:
        """End the query and close the sink. Harmless when repeated."""
        self._stopped.set()
        if self._query is not None:
            _thread(self._stop_query).join(_STOP_WITHIN)
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
        with suppress(OSError):
            self._folder.cleanup()

    def _stop_query(self) -> None:
        with suppress(Exception):
            if self._query is not None:
                self._query.stop()

    def _take(self, frame: DataFrame, number: int) -> None:
        """What Spark calls with each batch, in a thread of its own.

        Spark searches the text of an error by a pattern that overflows its stack where the text is long, and
        so would a traceback with all of Java's: what leaves here is short.
        """
        fault = None
        try:
            self._write(frame, number)
        except Exception as error:
            fault = PenstockError("the output was stopped") if self._stopped.is_set() else decode(error)
        if fault is not None:
            raise WorkerFault(f"{fault.what}\n{encode(fault)}")

    def _write(self, frame: DataFrame, number: int) -> None:
        if self._stopped.is_set() or self._writer is None:
            raise PenstockError("the output was stopped")
        began = time.monotonic()
        sources = self._output.reads
        reached = self._reached.after(number, self._ranges_of_batch(), self._output.name)
        batch = Batch(number, reached.epoch(sources), reached.is_final(sources))
        reach("output.batch")
        self._writer.write(frame, batch)
        reach("output.written")
        self._outputs.took(self._output.name, self.claim.token, batch, reached, time.monotonic() - began)
        self._reached, self.epoch, self.works = reached, batch.epoch, True
        self._took_at = time.monotonic()

    def _ranges_of_batch(self) -> dict[str, Range]:
        """What the reader of each source planned last."""
        return {file.stem: Range(**json.loads(file.read_text())) for file in self._ranges.glob("*.json")}


def _thread(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, name="penstock-output-stop", daemon=True)
    thread.start()
    return thread


def _ends(progress: StreamingQueryProgress | None) -> list[int]:
    """Up to where the last batch that is done took in each source."""
    offsets = [json.loads(source.endOffset or "null") for source in progress.sources] if progress else []
    return [offset["epoch"] for offset in offsets if offset]
