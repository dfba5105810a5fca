"""A query at work on Spark: one thread of the engine plans and runs it, the client's thread pulls the rows.

::

    QUEUED ──admitted──▶ PLANNING ──analysed──▶ RUNNING ──all rows pulled──▶ FINISHED
       └───────────────────────┴─────────────────────┴───▶ CANCELED, FAILED

Two threads, because a client must be told at once that its query is cancelled, also while Spark lists
files and listens to nobody. The place among the running is given back when both are done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.server.base import Client, Execution, Prepared, QueryState, User
from penstock.server.engine.faults import CANCELED, CRASHED, INTERNAL, TIMEOUT, lost, too_large, translated
from penstock.server.engine.planning.plans import SparkPlan
from penstock.server.engine.registry import Registry, TrackedQuery
from penstock.server.engine.results import shaping
from penstock.server.engine.results.backpressure import Quotas, ResultWatch
from penstock.server.engine.results.spool import PIECE, ROW, ResultSpool, check_rows
from penstock.server.network.budgets import Budget
from penstock.spark.session import cancel_tag, estimated_bytes, is_connect, job_tag, waits_for_cores
from penstock.types.postgres import Column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

USER_REQUEST = "canceling statement due to user request"
_SMALL = 64 << 20
_ROWS = 65_536
_RESULTS = 1 << 30
_MOMENT = 0.5
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
    begin: Callable[[SparkExecution], None] = lambda _: None
    """Wait until it may begin on Spark; raises for one that may not."""
    end: Callable[[SparkExecution, SqlError | None], None] = lambda *_: None
    """It has ended on Spark, well or with an error."""
    gone: Callable[[], bool] = lambda: False
    """Whether Spark is gone."""
    small: int = _SMALL
    """Results that Spark estimates to be at most so large are collected, larger ones are spooled."""
    piece: int = PIECE
    row: int = ROW
    keeper: ResultWatch = field(default_factory=lambda: ResultWatch(Quotas()))
    """Bounds what results take on disk."""
    results: Budget = field(default_factory=lambda: Budget(_RESULTS, _RESULTS // 2))
    """Bounds what results take in memory while they wait to be read: of one user half of all."""


@dataclass(frozen=True, slots=True)
class BegunQuery:
    """A query that has begun, for what answers in its place: the plan of a query, instead of its rows."""

    id: str
    job: str
    spark: SparkSession
    plan: SparkPlan
    values: tuple[object, ...]
    user: User
    run: Callable[[], None]
    """To be called once it is planned; raises if it was cancelled."""


class SparkExecution(Execution):
    """A query. ``answer`` gives its rows, if that is not what the plan says."""

    def __init__(
        self,
        place: Workplace,
        client: Client,
        prepared: Prepared,
        plan: SparkPlan,
        renew: Callable[[SparkPlan], SparkPlan],
        session: Callable[[Callable[[], None]], SparkSession],
        values: Sequence[object] = (),
        timeout: float | None = None,
        query: TrackedQuery | None = None,
        answer: Callable[[BegunQuery], pa.Table] | None = None,
    ) -> None:
        """``session`` gives Spark's session, and may wait for it as long as what it is given does not raise.

        ``query`` is given by who has it in the registry already.
        """
        self.tag = prepared.tag
        self.columns = prepared.columns
        self.client = client
        self._place = place
        self._plan = plan
        self._renew = renew
        self._session = session
        self._begun_on: SparkSession | None = None
        self._values = tuple(values)
        self._answer = answer
        self._lock = threading.Lock()
        self._why: str | None = None
        self._error: SqlError | None = None
        self._refused: SqlError | None = None
        self._held = 0
        self._news = threading.Event()
        """Set when there is something for the client's thread: rows, an error, a cancellation."""
        self._ended = threading.Event()
        """Set when the engine's thread has ended, or will never begin."""
        self._begun = self._pulled = self._left = False
        self._fit: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
        self._collected: list[pa.RecordBatch] = []
        self._spool: ResultSpool | None = None
        self._query = query or place.registry.open(client, prepared.sql, self.cancel)
        self.id = self._query.id
        self._timer = threading.Timer(timeout, self.cancel, [TIMEOUT]) if timeout else None
        try:
            place.enter(self)
        except SqlError as error:
            self._ended.set()
            self._finish(QueryState.FAILED, error)
            raise
        if self._timer:
            self._timer.daemon = True
            self._timer.start()

    @property
    def plan(self) -> SparkPlan:
        return self._plan

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
            self._place.begin(self)
            self._begun_on = spark = self._session(self.check)
            with job_tag(spark, self.job):
                self._query.move(QueryState.PLANNING)
                self._set_properties()
                self._plan = self._renew(self._plan)
                self._produce()
        except BaseException as error:
            self._error = self._plan.placed(self._explained_end(error))
            self._plan.failed(self._error)
        finally:
            self._release()
            self._place.end(self, self._error)
            self._ended.set()
            self._news.set()
            self._leave_when_done()

    @property
    def _spark(self) -> SparkSession:
        assert self._begun_on is not None
        return self._begun_on

    def _explained_end(self, error: BaseException) -> SqlError:
        told = translated(error, self._plan.sql)
        if told.sqlstate != INTERNAL:
            return told
        # What breaks off when Java ends breaks off in many ways, a moment before it has ended.
        deadline = time.monotonic() + _MOMENT
        while not (gone := self._place.gone()) and time.monotonic() < deadline:
            time.sleep(_MOMENT / 10)
        return lost() if gone else told

    def _release(self) -> None:
        if self._begun_on is None or (self._error is not None and self._error.sqlstate == CRASHED):
            return
        with suppress(Exception):
            self._plan.release(self._begun_on, self.id)

    def _set_properties(self) -> None:
        if is_connect(self._spark):
            return
        context = self._spark.sparkContext
        # Where Spark schedules fairly, it does so between pools: there are as many as there are places.
        context.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
        # A task that looks at nothing but its rows would run on after it was cancelled.
        context.setLocalProperty("spark.job.interruptOnCancel", "true")

    def _produce(self) -> None:
        if self._answer is not None:
            user = self.client.user
            begun = BegunQuery(self.id, self.job, self._spark, self._plan, self._values, user, self._run)
            self._hand_over(self.columns or (), lambda batch: batch, self._answer(begun))
            return
        shape = shaping.shaped(self._plan.frame(self._spark, self.id, self._values), self._plan.columns)
        self.check()
        direct = self._plan.small or self._estimated_small(shape)
        self._run()
        if direct:
            try:
                table = shape.frame.toArrow()
                if self._holds(table.nbytes):
                    self._hand_over(shape.columns, shape.fit, table)
                    return
                del table
            except Exception as error:
                if not too_large(error):
                    raise
        self.check()
        self._spool = spool = ResultSpool(self._place.spool, self.id, self._place.piece, self._place.row)
        self._place.keeper.add(spool, self.client.user.name, self._fail)
        self.columns, self._fit = shape.columns, shape.fit
        self._news.set()
        spool.fill(shape.frame, self.check)

    def _run(self) -> None:
        self.check()
        self._query.move(QueryState.RUNNING)

    def _holds(self, size: int) -> bool:
        """Whether a result can be held in memory until it is read; else it goes through files."""
        if not self._place.results.take(self.client.user.name, size):
            return False
        self._held = size
        return True

    def _estimated_small(self, shape: shaping.ResultShape) -> bool:
        size = estimated_bytes(shape.frame)
        return size is not None and size <= self._place.small

    def _hand_over(
        self,
        columns: tuple[Column, ...],
        fit: Callable[[pa.RecordBatch], pa.RecordBatch],
        table: pa.Table,
    ) -> None:
        batches = table.to_batches(max_chunksize=_ROWS)
        for batch in batches:
            check_rows(batch, self._place.row)
        self._collected = batches
        self.columns, self._fit = columns, fit

    def waits_for_cores(self) -> bool:
        """Whether it could do something now if there were a free core."""
        spark = self._begun_on
        if spark is None or self._ended.is_set():
            return False
        try:
            return waits_for_cores(spark, self.job)
        except Exception:
            # Spark is gone.
            return False

    def check(self) -> None:
        if self._why is not None:
            raise self._refused or SqlError(self._why, sqlstate=CANCELED)

    # The client's thread.

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
            self._finish(QueryState.FINISHED)
        except GeneratorExit:
            self.cancel("the client has gone")
            raise
        except BaseException as error:
            told = self._told(error)
            self._finish(QueryState.CANCELED if told.sqlstate == CANCELED else QueryState.FAILED, told)
            self._stop_jobs()
            if told is error:
                raise
            raise told from error
        finally:
            self._pulled = True
            self._leave_when_done()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self._news.wait()
        self.check()
        rows = self._spool.batches(self._filled) if self._spool else self._taken()
        size = 0
        for batch in rows:
            self.check()
            if batch.num_rows:
                assert self._fit is not None
                fitted = self._fit(batch)
                self._query.sent(fitted.num_rows, fitted.nbytes)
                size += fitted.nbytes
                yield fitted
        self.check()
        self._plan.gave(size)

    def _taken(self) -> Iterator[pa.RecordBatch]:
        if self._error is not None:
            raise self._error
        batches, self._collected = self._collected[::-1], []
        while batches:
            yield batches.pop()

    def _filled(self, seconds: float) -> bool:
        ended = self._ended.wait(seconds)
        self.check()
        if ended and self._error is not None:
            raise self._error
        return ended

    def _told(self, error: BaseException) -> SqlError:
        """Whatever went wrong while a query was being cancelled is the cancellation."""
        if self._why is not None:
            return self._refused or SqlError(self._why, sqlstate=CANCELED)
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
        self._finish(QueryState.CANCELED, SqlError(why, sqlstate=CANCELED))
        self._stop_jobs()
        self._leave_when_done()

    def _fail(self, error: SqlError) -> None:
        """End it for a reason that is not the client's wish."""
        with self._lock:
            if self._why is not None or self._pulled:
                return
            self._refused = error
        self.cancel(error.what)

    def _stop_jobs(self) -> None:
        if not self._ended.is_set():
            threading.Thread(target=self._stop, name=f"cancel-{self.id}", daemon=True).start()

    def _stop(self) -> None:
        while not self._ended.is_set():
            if (spark := self._begun_on) is not None:
                try:
                    cancel_tag(spark, self.job)
                except Exception:
                    # Spark is gone, and its jobs with it.
                    return
            self._ended.wait(_AGAIN)

    def close(self) -> None:
        self.cancel()
        with self._lock:
            self._pulled = True
        self._collected = []
        self._leave_when_done()

    def _finish(self, state: QueryState, error: SqlError | None = None) -> None:
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
        self._place.results.give(self.client.user.name, self._held)
        if self._spool is not None:
            self._place.keeper.remove(self._spool)
            self._spool.delete()
        self._place.leave(self)
