"""The runner: one instance's part in a run."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import __version__
from penstock.batch.pipeline import DatasetFactory, Pipeline
from penstock.batch.runner.bench import Bench
from penstock.batch.runner.breaker import Breaker
from penstock.batch.runner.entering import enter
from penstock.batch.runner.events import Ending, Event, EventKind, Listener, Report, logged
from penstock.batch.runner.lease import Hold, InstanceLease
from penstock.batch.runner.membership import Membership
from penstock.batch.runner.places import trouble
from penstock.batch.runner.preparing import prepare
from penstock.batch.runner.signals import stopping_on_signals
from penstock.batch.runner.together import RowsMove, WorkTogether, is_fresh, most_together
from penstock.batch.runner.work import ClaimWork
from penstock.batch.runs import exchanges, gc, runs
from penstock.batch.runs.options import RunnerConfig
from penstock.batch.runs.pacing import Reliability
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board, Claim, PartitionState
from penstock.core.failpoints import reach
from penstock.core.ranges import Range
from penstock.errors import (
    CodeChanged,
    CorruptFile,
    DefinitionError,
    FencedError,
    HaltError,
    InputChanged,
    Interrupted,
    PenstockError,
    SessionLost,
    SparkLost,
    StaleToken,
    StoreUnavailable,
    UsageError,
)
from penstock.spark.faults import decode
from penstock.spark.session import cancel_tag, conform, is_alive, job_tag, parallelism, start
from penstock.storage import Storage
from penstock.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

# Errors that the next partition would meet as well: the run stops and waits for a person.
_HALTING = (HaltError, InputChanged, DefinitionError, CodeChanged)
_KEPT_EVENTS = 1000
# Seconds for which a store that does not answer is waited for.
_PATIENCE = 60.0
# Seconds before a partition that has failed is tried again, twice as many each time.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class Runner:
    """Claims partitions of a run and computes them until nothing is left.

    Any number of runners, in any number of processes, may work on the same run: start them with the
    same pipeline, store, storage and run name. The inputs must be registered under the names of the
    pipeline's input tables (see `penstock.batch.inputs.register`). In the main thread, SIGTERM and Ctrl-C
    stop it like `stop`, unless ``handle_signals`` is False.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        store: Store,
        storage: Storage,
        config: RunnerConfig | None = None,
        *,
        spark: SparkSession | None = None,
        listener: Listener = logged,
        source: str = "",
        handle_signals: bool = True,
    ) -> None:
        self.pipeline = pipeline
        self.store = store
        self.storage = storage
        self.config = config or RunnerConfig()
        self._spark = spark
        self._listener = listener
        self._source = source
        self._handle_signals = handle_signals
        self._ran = False
        self._stopping = threading.Event()
        self._halted: PenstockError | None = None
        self._lock = threading.Lock()
        self._counts: Counter[EventKind] = Counter()
        self._rows = 0
        self._events: deque[Event] = deque(maxlen=_KEPT_EVENTS)
        self._slots = self.config.max_batches
        self._phase_index = 0
        self._began = 0.0
        self._deaths = 0
        self._given_back: set[Range] = set()
        # The phases in which rows do not stay in their task.
        self._alone: set[int] = set()
        self._breaker = Breaker(self.config.breaker, self._run_name)

    @property
    def _run_name(self) -> str:
        return self.config.run or self.pipeline.name

    def stop(self) -> None:
        """Ask the runner to give its claims back and return. Safe to call from a signal handler."""
        self._stopping.set()

    def run(self, dataset_factory: DatasetFactory | None = None) -> Report:
        """Work until nothing is left, ``max_batches`` are acked, or `stop` is called.

        ``dataset_factory(dataset, range)`` is given each partition's tables, and returns the dataset
        to run the pipeline on: the same one, or one with tables and resources added.
        """
        if self._ran:
            raise UsageError("a Runner runs once", hint="make a new one: it joins the run where it is")
        self._ran = True
        self._began = time.monotonic()
        spark = self._spark or _session()
        conform(spark)
        bench = prepare(
            self.pipeline,
            self.store,
            self.storage,
            self.config,
            spark,
            factory=dataset_factory,
            source=self._source,
            tell=self._tell,
        )
        with (
            stopping_on_signals(self.stop, enabled=self._handle_signals),
            Membership(
                self.store, self.config.cluster, self.config.instance, self.config.claims, __version__
            ) as membership,
        ):
            ending = self._phases(spark, bench, membership)
        return self._report(bench.run, ending, time.monotonic() - self._began)

    def _phases(self, spark: SparkSession, bench: Bench, membership: Membership) -> Ending:
        """Work on one phase after the other, until one has to wait for a person."""
        incomplete: set[int] = set()
        for phase in bench.executor.phases:
            if phase.index and self._slots == 0:
                return "stopped"
            try:
                begin = partial(enter, self.store, bench, phase, incomplete, self._reliability)
                entered = self._patiently(begin)
            except PenstockError as error:
                if not phase.index:
                    raise
                self._halt(error)
                return "halted"
            if entered is None:
                break
            ending = self._phase(spark, entered, membership)
            if ending == "incomplete":
                incomplete.add(phase.index)
            elif ending != "complete":
                return ending
        return "incomplete" if incomplete or exchanges.left_out(self.store, bench.run) else "complete"

    def _patiently(self, act: Callable[[], T]) -> T:
        """Do something between two phases, again for as long as the store does not answer."""
        began = time.monotonic()
        while True:
            try:
                return act()
            except StoreUnavailable:
                if time.monotonic() - began > _PATIENCE or self._stopping.wait(self.config.renewal / 4):
                    raise

    def _phase(self, spark: SparkSession, bench: Bench, membership: Membership) -> Ending:
        """Work on the partitions of a phase, together with others, until all are done."""
        board, run = bench.board, bench.run
        self._phase_index = bench.phase.index
        with InstanceLease(
            self.store,
            board,
            self.config.lease_ttl,
            self.config.renewal,
            on_lost=lambda hold: self._cancel(spark, hold),
            on_session=membership.enter,
        ) as lease:
            self._work(spark, board, bench, lease)
        ending = self._patiently(lambda: self._ending(board))
        if ending in ("complete", "incomplete"):
            gc.sweep_completed(self.storage, run, bench.phase.index, board)
        if ending == "complete":
            with suppress(
                OSError, PenstockError
            ):  # what is left is swept at the end of a later phase, or by gc
                exchanges.sweep_read(self.store, self.storage, run)
        return ending

    def _reliability(self) -> Reliability:
        """What this instance has seen of how others live: of those that are alive, it sees itself only."""
        return Reliability(time.monotonic() - self._began, self._deaths)

    def _work(self, spark: SparkSession, board: Board, bench: Bench, lease: InstanceLease) -> None:
        threads = self._threads(bench)
        with ThreadPoolExecutor(threads, thread_name_prefix="penstock-claim") as pool:
            loops = [pool.submit(self._loop, spark, board, bench, lease) for _ in range(threads)]
            try:
                self._watch(spark, lease, loops)
            except BaseException:
                self.stop()
                self._watch(spark, lease, loops)
                raise
        for loop in loops:
            loop.result()

    def _threads(self, bench: Bench) -> int:
        """How many claims are worked on at once. One of a key range is one task, so each core has its own."""
        if bench.exchange is None or len(bench.exchange.ranges) == 1:
            return self.config.claims
        return max(self.config.claims, min(parallelism(bench.spark), len(bench.exchange.ranges)))

    def _watch(self, spark: SparkSession, lease: InstanceLease, loops: Sequence[Future[None]]) -> None:
        """Wait for the claim threads. This thread does nothing else, so that a signal finds it free."""
        while not all(loop.done() for loop in loops):
            wait(loops, timeout=0.1)
            if self._stopping.is_set():
                for hold in lease.holds():
                    hold.stop = hold.stop or self._halted or Interrupted()
                    _cancel_jobs(spark, hold)
                time.sleep(0.1)

    def _loop(self, spark: SparkSession, board: Board, bench: Bench, lease: InstanceLease) -> None:
        together = True
        try:
            while not self._stopping.is_set() and (slots := self._take_slots(bench, together)):
                claims = self._next_claims(board, bench.run, lease, slots)
                together = any(is_fresh(claim) for claim in claims)
                claims = self._kept(board, claims)
                if len(claims) > 1:
                    acked = self._attempt_together(spark, board, bench, lease, claims)
                else:
                    acked = sum(self._attempt(spark, board, bench, lease, claim) for claim in claims)
                self._give_slots(slots - acked)
                if not claims:
                    return
        except Exception as error:
            # The other threads must not wait for what this one can no longer give back.
            self._halt(decode(error))

    def _next_claims(self, board: Board, run: Run, lease: InstanceLease, most: int) -> list[Claim]:
        """Partitions to work on, waiting for one if need be; none when there is nothing more to do."""
        answered = time.monotonic()
        while not self._stopping.is_set():
            try:
                if claims := board.claim(lease.session, self.config.instance, most):
                    reach("claim.after")
                    self._check_current(board, run, claims)
                    # What was tried before, and not given back by this instance, was another's when it died.
                    self._deaths += any(c.attempts and c.range not in self._given_back for c in claims)
                    return claims
                if board.finished():
                    return []
                # What others hold may come back: on a change, or when their lease runs out.
                board.wait(min(self.config.renewal, 1.0))
                answered = time.monotonic()
            except (SessionLost, StoreUnavailable) as error:
                # A lost session is replaced by the lease thread, a silent store may come back.
                if time.monotonic() - answered > max(_PATIENCE, 5 * self.config.lease_ttl):
                    self._halt(error)
                self._stopping.wait(self.config.renewal / 4)
        return []

    def _kept(self, board: Board, claims: Sequence[Claim]) -> list[Claim]:
        """Those to work on now: all that are fresh, or one that was tried before.

        A partition that kills its process must not take others with it a second time: what is held when a
        process dies counts as failed.
        """
        kept = [claim for claim in claims if is_fresh(claim)] or list(claims[:1])
        for claim in claims:
            if claim not in kept:
                with suppress(FencedError):
                    board.release(claim)
        return kept

    def _check_current(self, board: Board, run: Run, claims: Sequence[Claim]) -> None:
        """Give claims back if the run has gone on to other code, or is another run by now."""
        try:
            runs.check_current(self.store, run)
        except PenstockError:
            for claim in claims:
                with suppress(PenstockError):
                    board.release(claim)
            raise

    def _attempt(
        self, spark: SparkSession, board: Board, bench: Bench, lease: InstanceLease, claim: Claim
    ) -> bool:
        """Work on a claim; whatever happens, it is not held afterwards. True if it was acked."""
        return self._attempt_held(spark, board, bench, lease, lease.hold(claim), told=False)

    def _attempt_held(
        self,
        spark: SparkSession,
        board: Board,
        bench: Bench,
        lease: InstanceLease,
        hold: Hold,
        *,
        told: bool,
    ) -> bool:
        claim = hold.claim
        try:
            if not told:
                self._tell_of(hold, "claimed")
            if claim.attempts:
                self._stopping.wait(min(_FIRST_PAUSE * 2 ** (claim.attempts - 1), _LONGEST_PAUSE))
                hold.check()
            with job_tag(spark, _tag(hold)):
                digest = ClaimWork(bench, hold).do()
        except Exception as raised:
            self._failed(board, bench, hold, raised)
            return False
        finally:
            lease.drop(hold)
        self._succeeded(bench, claim, digest)
        return True

    def _attempt_together(
        self,
        spark: SparkSession,
        board: Board,
        bench: Bench,
        lease: InstanceLease,
        claims: Sequence[Claim],
    ) -> int:
        """Work on small claims in one go, or one by one if that fails; how many were acked."""
        holds = [lease.hold(claim) for claim in claims]
        try:
            for hold in holds:
                hold.together = tuple(holds)
                self._tell_of(hold, "claimed")
            try:
                with job_tag(spark, _tag(holds[0])):
                    outcomes = WorkTogether(bench, holds).do()
            except Exception as raised:
                # Whose fault it is, they show when each is tried by itself.
                if isinstance(raised, RowsMove):
                    self._alone.add(bench.phase.index)
                for hold in holds:
                    hold.together = (hold,)
                return sum(self._attempt_held(spark, board, bench, lease, each, told=True) for each in holds)
            for hold, outcome in zip(holds, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    self._failed(board, bench, hold, outcome)
                else:
                    self._succeeded(bench, hold.claim, outcome)
            return sum(isinstance(outcome, str) for outcome in outcomes)
        finally:
            for hold in holds:
                lease.drop(hold)

    def _succeeded(self, bench: Bench, claim: Claim, digest: str) -> None:
        self._breaker.succeeded()
        with suppress(OSError, PenstockError):  # what is left is swept at the end of the run
            gc.sweep_partition(self.storage, bench.place, claim.range, claim.token, digest)

    def _failed(self, board: Board, bench: Bench, hold: Hold, raised: Exception) -> None:
        error = self._explained(bench, hold, raised)
        if not isinstance(error, (FencedError, *_HALTING)):
            error = self._breaker.failed(error, hold.claim.range) or error
        try:
            if isinstance(error, FencedError):
                self._tell_of(hold, "lost", message=error.what)
            elif isinstance(error, _HALTING):
                if not isinstance(error, Interrupted):
                    self._halt(error)
                hold.stop = None
                hold.patiently(lambda: board.release(hold.claim))
                self._tell_of(hold, "released", message=error.what)
            else:
                self._given_back.add(hold.claim.range)
                state = hold.patiently(lambda: board.fail(hold.claim, f"{error.code}: {error}"))
                kind: EventKind = "poisoned" if state is PartitionState.POISONED else "failed"
                self._tell_of(hold, kind, message=str(error))
        except FencedError as fenced:
            self._tell_of(hold, "lost", message=fenced.what)

    def _explained(self, bench: Bench, hold: Hold, raised: Exception) -> PenstockError:
        """What really happened: a cancelled job says no more than that it was cancelled."""
        if hold.lost is not None:
            return hold.lost
        if hold.stop is not None:
            return hold.stop
        try:
            hold.check()
        except FencedError as lost:
            return lost
        error = decode(raised)
        if isinstance(error, CorruptFile):
            if not self._is_held(bench.board, hold.claim):
                # Whoever has finished it may have swept what it reads.
                return StaleToken(f"partition {hold.claim.range} is another's by now")
            damaged = exchanges.damaged(self.storage, bench.run, bench.entering.values(), error)
            error = damaged or error
        if not isinstance(error, FencedError | HaltError):
            if not is_alive(bench.spark):
                return SparkLost(
                    "Spark's JVM does not answer any more; it was killed or ran out of memory",
                    left="complete partitions and checkpoints are kept",
                    hint="run the same command again, with more spark.memory if it happens often",
                )
            for storage in (self.storage, bench.run.output_storage):
                if (found := trouble(storage, self._stopping)) is not None:
                    return found
        return error

    def _is_held(self, board: Board, claim: Claim) -> bool:
        view = board.partition(claim.range)
        return view is not None and (view.state, view.token) == (PartitionState.CLAIMED, claim.token)

    def _halt(self, error: PenstockError) -> None:
        with self._lock:
            self._halted = self._halted or error
        self._stopping.set()

    def _cancel(self, spark: SparkSession, hold: Hold) -> None:
        """Cancel the jobs of a lost claim until its thread has let go of it.

        Jobs that others have together with it go on while one of them is held.
        """
        if not hold.over:
            return

        def until_gone() -> None:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not hold.released.wait(0.2):
                _cancel_jobs(spark, hold)

        _cancel_jobs(spark, hold)
        threading.Thread(target=until_gone, name="penstock-cancel", daemon=True).start()

    def _take_slots(self, bench: Bench, together: bool) -> int:
        """How many partitions may be claimed now; none when as many are done as were asked for."""
        alone = bench.phase.index in self._alone or not together
        wanted = 1 if alone else most_together(bench, self.config.claims)
        with self._lock:
            if self._slots is None:
                return wanted
            taken = min(wanted, self._slots)
            self._slots -= taken
            return taken

    def _give_slots(self, count: int) -> None:
        with self._lock:
            if self._slots is not None:
                self._slots += count

    def _ending(self, board: Board) -> Ending:
        if self._halted is not None:
            return "halted"
        if self._stopping.is_set():
            return "interrupted"
        if not board.finished():
            return "stopped"
        return "incomplete" if board.summary().poisoned.partitions else "complete"

    def _report(self, run: Run, ending: Ending, seconds: float) -> Report:
        return Report(
            run=run.name,
            instance=self.config.instance,
            ending=ending,
            acked=self._counts["acked"],
            rows=self._rows,
            resumed=self._counts["resumed"],
            lost=self._counts["lost"],
            failed=self._counts["failed"] + self._counts["poisoned"],
            poisoned=self._counts["poisoned"],
            seconds=seconds,
            error=self._halted,
            events=tuple(self._events),
        )

    def _tell_of(self, hold: Hold, kind: EventKind, **more: Any) -> None:
        phase = self._phase_index
        self._tell(Event(kind, self.config.instance, hold.claim.range, hold.claim.token, phase=phase, **more))

    def _tell(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            self._counts[event.kind] += 1
            self._rows += event.rows
        self._listener(event)


def _tag(hold: Hold) -> str:
    return f"penstock-{hold.claim.session}-{hold.claim.range}-{hold.claim.token}"


def _cancel_jobs(spark: SparkSession, hold: Hold) -> None:
    # A JVM that is gone has no jobs left, and must not keep anybody from giving claims back.
    if hold.over:
        with suppress(Exception):
            cancel_tag(spark, _tag(hold.together[0]))


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or start()
