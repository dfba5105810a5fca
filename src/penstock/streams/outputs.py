"""The outputs of a stream that this instance runs: Structured Streaming queries over its committed epochs."""

from __future__ import annotations

import json
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster import rendezvous
from penstock.cluster.model import Snapshot
from penstock.errors import FencedError, PenstockError, StoreUnavailable
from penstock.failpoints import reach
from penstock.spark.faults import carried, decode
from penstock.spark.paths import for_spark
from penstock.spark.session import is_local
from penstock.storage import Storage
from penstock.store import Store
from penstock.streams import events
from penstock.streams.claims import Claims, OutputClaim
from penstock.streams.events import Listener
from penstock.streams.flow.settings import spark_settings
from penstock.streams.layout import Layout
from penstock.streams.sinks.base import Batch, Target, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.streams.stream import Output

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 30.0
_STOP_WITHIN = 10.0

Read = Callable[[str, bool], "DataFrame"]
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
        self._spark = spark
        self._store = store
        self._storage = storage
        self._layout = layout
        self._member = member
        self._outputs = outputs
        self._reading = reading
        self._listener = listener
        self._clock = clock
        self.claims = Claims(store, layout)
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
            running = self._running.get(name)
            try:
                if running is not None and running.session != session:
                    self._drop(name)
                elif running is not None:
                    self._look_after(name, running, end)
                elif session is not None:
                    self._begin(name, snapshot, session)
            except StoreUnavailable:
                raise
            except FencedError as error:
                _log.info("output %s: %s", name, error)
                self._drop(name)
            except PenstockError as error:
                self._failed(name, error)

    def fence(self) -> None:
        """Stop everything at once, and keep nothing. From any thread."""
        for name in list(self._running):
            self._drop(name)

    def release(self) -> None:
        """Stop everything, and let others go on with it at once."""
        for name, running in list(self._running.items()):
            self._drop(name)
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
        self._listener(events.output_started(name, batch=taken.batch, epoch=taken.epoch))

    def _may_take(self, name: str, snapshot: Snapshot) -> bool:
        """One of the instances takes what is free: so they do not run after each other's."""
        return bool(snapshot.seats) and rendezvous.owner(snapshot.seats, f"output/{name}") == self._member

    def _look_after(self, name: str, running: RunningOutput, end: int | None) -> None:
        running.check()
        if running.works:
            self._failures.pop(name, None)
        if end is not None and running.epoch >= end and running.drained():
            self.claims.update(name, running.claim.token, finished=True)
            self._finished.add(name)
            self._drop(name)

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

    def took(self, name: str, token: int, batch: Batch, seconds: float) -> None:
        """A batch is in its sink: say so, unless somebody else runs the output by now."""
        self.claims.update(name, token, batch=batch.number, epoch=batch.epoch, problem="")
        self._listener(events.batch_taken(name, batch=batch.number, epoch=batch.epoch, seconds=seconds))


class RunningOutput:
    """One query and its sink, under one claim."""

    def __init__(self, outputs: Outputs, output: Output, claim: OutputClaim, session: str) -> None:
        self._outputs = outputs
        self._output = output
        self.claim = claim
        self.session = session
        self.epoch = claim.epoch
        self.works = False
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

    def check(self) -> None:
        """Raise what ended the query, if it has ended."""
        query = self._query
        if query is None or query.isActive or self._stopped.is_set():
            return
        error = query.exception()
        raise decode(error) if error is not None else PenstockError("the query ended by itself")

    def drained(self) -> bool:
        """Wait until the query has nothing more to do.

        Closing the last windows takes batches without rows.
        """
        if self._query is None:
            return False
        try:
            self._query.processAllAvailable()
        except Exception as error:
            raise decode(error) from error
        return True

    def stop(self) -> None:
        """End the query and close the sink. Harmless when repeated."""
        self._stopped.set()
        if self._query is not None:
            stopping = threading.Thread(target=self._stop_query, name="penstock-output-stop", daemon=True)
            stopping.start()
            stopping.join(_STOP_WITHIN)
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
        """What Spark calls with each batch, in a thread of its own."""
        with carried(f"output {self._output.name}"):
            if self._stopped.is_set() or self._writer is None:
                raise PenstockError("the output was stopped")
            began = time.monotonic()
            epoch, final = self._range()
            batch = Batch(number, max(epoch, self.epoch), final)
            reach("output.batch")
            self._writer.write(frame, batch)
            reach("output.written")
            self._outputs.took(self._output.name, self.claim.token, batch, time.monotonic() - began)
            self.epoch, self.works = batch.epoch, True

    def _range(self) -> tuple[int, bool]:
        """The newest epoch of all sources that the batch takes in, and whether the stream ends with it."""
        found = [json.loads(file.read_text()) for file in self._ranges.glob("*.json")]
        return max((each["end"] for each in found), default=0), any(each["final"] for each in found)
