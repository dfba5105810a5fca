"""A query at work on Spark: one thread of the engine plans and runs it, the client's thread pulls the rows.

::

    QUEUED ──admitted──▶ PLANNING ──analysed──▶ RUNNING ──all rows pulled──▶ FINISHED
       └───────────────────────┴─────────────────────┴───▶ CANCELED, FAILED

Two threads, because a client must be told at once that its query is cancelled, also while Spark lists
files and listens to nobody. The place among the running is given back when both are done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.gateway.base import Client, Column, Execution, Prepared, State
from penstock.gateway.engine import shaping
from penstock.gateway.engine.faults import CANCELED, too_large, translated
from penstock.gateway.engine.plans import SparkPlan
from penstock.gateway.engine.registry import Query, Registry
from penstock.gateway.engine.spool import PIECE, Spool
from penstock.spark.session import cancel_tag, estimated_bytes, is_connect, job_tag

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TIMEOUT = "canceling statement due to statement timeout"
USER_REQUEST = "canceling statement due to user request"
_SMALL = 64 << 20
_ROWS = 65_536
_AGAIN = 0.1
"""Seconds between two tries to cancel jobs: the query's thread may start another one after each."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What all queries of an engine share."""

    registry: Registry
    spool: str
    enter: Callable[[SparkExecution], None]
    """Ask for a place; `SparkExecution.work` is called in a thread when there is one."""
    leave: Callable[[SparkExecution], None]
    small: int = _SMALL
    """Results that Spark estimates to be at most so large are collected, larger ones are spooled."""
    piece: int = PIECE


class SparkExecution(Execution):
    """A query. Subclasses say in `_produce` what it gives."""

    def __init__(
        self,
        place: Workplace,
        client: Client,
        prepared: Prepared,
        plan: SparkPlan,
        renew: Callable[[SparkPlan], SparkPlan],
        spark: SparkSession,
        values: Sequence[object] = (),
        timeout: float | None = None,
        query: Query | None = None,
    ) -> None:
        """``query`` is given by who has it in the registry already."""
        self.tag = prepared.tag
        self.columns = prepared.columns
        self.client = client
        self._place = place
        self._plan = plan
        self._renew = renew
        self._spark = spark
        self._values = tuple(values)
        self._lock = threading.Lock()
        self._why: str | None = None
        self._error: SqlError | None = None
        self._news = threading.Event()
        """Set when there is something for the client's thread: rows, an error, a cancellation."""
        self._ended = threading.Event()
        """Set when the engine's thread has ended, or will never begin."""
        self._begun = self._pulled = self._left = False
        self._fit: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
        self._collected: list[pa.RecordBatch] = []
        self._spool: Spool | None = None
        self._query = query or place.registry.open(client, prepared.sql, self.cancel)
        self.id = self._query.id
        self._timer = threading.Timer(timeout, self.cancel, [TIMEOUT]) if timeout else None
        try:
            place.enter(self)
        except SqlError as error:
            self._ended.set()
            self._finish(State.FAILED, error)
            raise
        if self._timer:
            self._timer.daemon = True
            self._timer.start()

    @property
    def job(self) -> str:
        """The tag of its jobs on Spark."""
        return f"penstock-query-{self.id}"

    # The engine's thread.

    def work(self) -> None:
        """Plan and run it. Called once, in a thread of the engine, when the query is admitted."""
        with self._lock:
            if self._why is not None:
                return
            self._begun = True
        try:
            with job_tag(self._spark, self.job):
                self._query.move(State.PLANNING)
                self._set_properties()
                self._plan = self._renew(self._plan)
                self._produce()
        except BaseException as error:
            self._error = self._plan.placed(translated(error, self._plan.sql))
            self._plan.failed(self._error)
        finally:
            with suppress(Exception):
                self._plan.release(self._spark, self.id)
            self._ended.set()
            self._news.set()
            self._leave_when_done()

    def _set_properties(self) -> None:
        if is_connect(self._spark):
            return
        context = self._spark.sparkContext
        # Where Spark schedules fairly, it does so between pools: there are as many as there are places.
        context.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
        # A task that looks at nothing but its rows would run on after it was cancelled.
        context.setLocalProperty("spark.job.interruptOnCancel", "true")

    def _produce(self) -> None:
        shape = shaping.shaped(self._plan.frame(self._spark, self.id, self._values), self._plan.columns)
        self._check()
        direct = self._plan.small or self._estimated_small(shape)
        self._check()
        self._query.move(State.RUNNING)
        if direct:
            try:
                self._hand_over(shape.columns, shape.fit, shape.frame.toArrow())
                return
            except Exception as error:
                if not too_large(error):
                    raise
        self._check()
        self._spool = spool = Spool(self._place.spool, self.id, self._place.piece)
        self.columns, self._fit = shape.columns, shape.fit
        self._news.set()
        spool.fill(shape.frame)

    def _estimated_small(self, shape: shaping.Shape) -> bool:
        size = estimated_bytes(shape.frame)
        return size is not None and size <= self._place.small

    def _hand_over(
        self,
        columns: tuple[Column, ...],
        fit: Callable[[pa.RecordBatch], pa.RecordBatch],
        table: pa.Table,
    ) -> None:
        self._collected = table.to_batches(max_chunksize=_ROWS)
        self.columns, self._fit = columns, fit

    def _check(self) -> None:
        if self._why is not None:
            raise SqlError(self._why, sqlstate=CANCELED)

    # The client's thread.

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
            self._finish(State.FINISHED)
        except GeneratorExit:
            self.cancel("the client has gone")
            raise
        except BaseException as error:
            told = self._told(error)
            self._finish(State.CANCELED if told.sqlstate == CANCELED else State.FAILED, told)
            self._stop_jobs()
            if told is error:
                raise
            raise told from error
        finally:
            self._pulled = True
            self._leave_when_done()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self._news.wait()
        self._check()
        rows = self._spool.batches(self._filled) if self._spool else self._taken()
        size = 0
        for batch in rows:
            self._check()
            if batch.num_rows:
                assert self._fit is not None
                fitted = self._fit(batch)
                self._query.sent(fitted.num_rows, fitted.nbytes)
                size += fitted.nbytes
                yield fitted
        self._check()
        self._plan.gave(size)

    def _taken(self) -> Iterator[pa.RecordBatch]:
        if self._error is not None:
            raise self._error
        batches, self._collected = self._collected[::-1], []
        while batches:
            yield batches.pop()

    def _filled(self, seconds: float) -> bool:
        ended = self._ended.wait(seconds)
        self._check()
        if ended and self._error is not None:
            raise self._error
        return ended

    def _told(self, error: BaseException) -> SqlError:
        """Whatever went wrong while a query was being cancelled is the cancellation."""
        if self._why is not None:
            return SqlError(self._why, sqlstate=CANCELED)
        return translated(error)

    # Any thread.

    def cancel(self, why: str = USER_REQUEST) -> None:
        with self._lock:
            if self._why is not None or self._pulled:
                return
            self._why = why
            if not self._begun:
                self._ended.set()
        self._news.set()
        self._finish(State.CANCELED, SqlError(why, sqlstate=CANCELED))
        self._stop_jobs()
        self._leave_when_done()

    def _stop_jobs(self) -> None:
        if not self._ended.is_set():
            threading.Thread(target=self._stop, name=f"cancel-{self.id}", daemon=True).start()

    def _stop(self) -> None:
        while True:
            try:
                cancel_tag(self._spark, self.job)
            except Exception:
                # Spark is gone, and its jobs with it.
                return
            if self._ended.wait(_AGAIN):
                return

    def close(self) -> None:
        self.cancel()
        with self._lock:
            self._pulled = True
        self._collected = []
        self._leave_when_done()

    def _finish(self, state: State, error: SqlError | None = None) -> None:
        if self._timer:
            self._timer.cancel()
        self._query.move(state, error)

    def _leave_when_done(self) -> None:
        """Give back files and place, once, when neither thread needs them any more."""
        with self._lock:
            done = self._ended.is_set() and (self._pulled or self._why is not None)
            if not done or self._left:
                return
            self._left = True
        if self._spool is not None:
            self._spool.delete()
        self._place.leave(self)
