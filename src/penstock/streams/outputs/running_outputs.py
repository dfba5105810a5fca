"""The outputs of a stream that this instance runs: Structured Streaming queries over its committed epochs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from penstock.control.cluster.rules.assignment import owner
from penstock.control.cluster.rules.model import Snapshot
from penstock.errors import (
    CorruptFile,
    FencedError,
    PenstockError,
    StoreUnavailable,
    TerminalError,
    TransformFailed,
)
from penstock.sinks.base import Batch, Target
from penstock.spark.paths import for_spark
from penstock.spark.session import is_connect, is_local
from penstock.storage import Storage
from penstock.store import Store
from penstock.streams import registry
from penstock.streams.layout import Layout
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.log.progress import OutputProgress
from penstock.streams.log.readers import ReaderPositions, reader_name
from penstock.streams.operators.query import spark_settings
from penstock.streams.operators.stateless import FromSource
from penstock.streams.outputs.claims import OutputClaim, OutputClaims
from penstock.streams.outputs.output_query import Reading, RunningOutput
from penstock.streams.outputs.spark_checkpoints import SparkCheckpoint
from penstock.streams.outputs.task_threads import TaskThread, background
from penstock.streams.views import events
from penstock.streams.views.events import Listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.streams.api.stream import Output, Stream

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 30.0
_PATIENCE = 0.2
_GOODBYE = 20.0
_LONGEST = 800


class RunningOutputs:
    """Claims outputs, runs them, and tries again what failed, unless that cannot help.

    `step` is called again and again by one thread. Each output is seen after by a thread of its own: a sink
    that does not answer holds up no other.
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
        self.claims = OutputClaims(store, layout)
        self._running: dict[str, RunningOutput] = {}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._given_up: set[str] = set()
        self._finished: set[str] = set()
        self._lock = threading.Lock()
        self._threads = {name: TaskThread(f"penstock-output-{name}") for name in outputs}
        # Queries take the settings of the session with them when they start.
        self.starting = threading.Lock()
        self._over = threading.Event()

    @property
    def finished(self) -> bool:
        """Whether every output has taken in all there is, of a stream that has ended."""
        return len(self._finished) == len(self._outputs)

    def step(self, snapshot: Snapshot, session: str | None, end: int | None) -> None:
        """See after all outputs. ``session`` None: this instance is no member at the moment and runs none.

        ``end`` is the last epoch, once the stream has ended.
        """
        for name, thread in self._threads.items():
            if name not in self._finished:
                thread.offer(partial(self._attend, name, snapshot, session, end))
        self._wait(_PATIENCE)

    def retry(self) -> None:
        """Try again also what was given up: somebody says that it was mended."""
        self._given_up.clear()
        self._failures.clear()
        self._not_before.clear()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for thread in self._threads.values():
            thread.wait(max(0.0, deadline - time.monotonic()))

    def _attend(self, name: str, snapshot: Snapshot, session: str | None, end: int | None) -> None:
        try:
            self._see_after(name, snapshot, session, end)
        except StoreUnavailable as error:
            _log.info("output %s: %s", name, error)
        except FencedError as error:
            _log.info("output %s: %s", name, error)
            self._drop(name)
        except PenstockError as error:
            if not self._over.is_set():  # otherwise it began while Spark was being stopped
                self._failed(name, error)
        except Exception as error:
            if not self._over.is_set():
                _log.exception("output %s", name)
                self._failed(name, PenstockError(f"{type(error).__name__}: {error}"))

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
        stopping = [background(partial(self._drop, name)) for name in list(self._running)]
        for thread in stopping:
            thread.join()

    def release(self) -> None:
        """Stop everything for good, and let others go on with it at once."""
        self._over.set()
        for thread in self._threads.values():
            thread.close()
        self._wait(_GOODBYE)
        were = dict(self._running)
        self.fence()
        for name, running in were.items():
            with suppress(PenstockError, OSError):
                running.settle()
            with suppress(PenstockError):
                self.claims.release(name, running.claim.token)

    def _begin(self, name: str, snapshot: Snapshot, session: str) -> None:
        if self._over.is_set() or name in self._given_up or self._clock() < self._not_before.get(name, 0.0):
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
        return bool(snapshot.seats) and owner(snapshot.seats, f"output/{name}") == self._member

    def _look_after(self, name: str, running: RunningOutput, end: int | None) -> None:
        if not running.told and running.is_up():
            self._tell_start(name, running)
        if running.works:
            self._failures.pop(name, None)
        running.let_go()
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
        if is_final(error):
            self._given_up.add(name)
            then = f"it is not tried again until: penstock stream resume {self._layout.stream}"
        else:
            count = self._failures[name] = self._failures.get(name, 0) + 1
            pause = min(_LONGEST_PAUSE, 2.0 ** (count - 1))
            self._not_before[name] = self._clock() + pause
            then = f"again in {pause:g} s"
        self._listener(events.problem(f"output {name}: {_told(error)}; {then}", code=error.code))
        if running is not None:
            with suppress(PenstockError):
                self.claims.update(name, running.claim.token, problem=f"{_told(error)}; {then}"[:_LONGEST])

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

    def checkpoint(self, name: str, token: int) -> SparkCheckpoint:
        return SparkCheckpoint(self._storage, self._layout.output(name), token)

    def located(self, folder: str) -> str:
        """Where Spark finds a folder of the storage."""
        return for_spark(self._storage.location(folder))

    def readers(self) -> ReaderPositions:
        """The positions of the outputs' readers, for the use of one thread."""
        return ReaderPositions(EpochLog(self._store, self._storage, self._layout))

    def took(self, name: str, token: int, batch: Batch, reached: OutputProgress, seconds: float) -> None:
        """A batch is in its sink: say so, unless somebody else runs the output by now."""
        ends, final = dict(reached.ends), tuple(sorted(reached.final))
        self.claims.update(
            name,
            token,
            batch=batch.number,
            epoch=batch.epoch,
            ends=ends,
            final=final,
            problem="",
        )
        self._listener(events.batch_taken(name, batch=batch.number, epoch=batch.epoch, seconds=seconds))


def is_final(error: PenstockError) -> bool:
    """Whether the same would go wrong again until a person mends it.

    Not what a transform or Spark raised, nor what cannot be read: that may be the fault of a machine.
    """
    return isinstance(error, TerminalError) and not isinstance(error, TransformFailed | CorruptFile)


def _told(error: PenstockError) -> str:
    return f"{error.what} ({error.hint})" if error.hint else error.what


def readers_of(stream: Stream) -> dict[str, str]:
    """The readers that the outputs of a stream are, and the output of each."""
    return {
        reader_name(name, node.source, node.late): name
        for name, output in stream.outputs.items()
        for node in output.node.walk()
        if isinstance(node, FromSource)
    }


def reserve(log: EpochLog, stream: Stream) -> None:
    """Give every output a position that has none, and drop those of outputs that are gone.

    An output may begin long after the stream: its sink may not be there yet. Its position is, so that nothing
    is let go meanwhile.

    An instance calls this before it takes part. Raises `StreamMismatch` if the stream runs with another
    definition, whose outputs would lose their positions.
    """
    registry.check_current(log.store, stream.name, log.layout.id, stream.describe())
    ReaderPositions(log).reserve(readers_of(stream))
