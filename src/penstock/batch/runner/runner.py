"""The runner: one instance's part in a run."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import __version__
from penstock.batch import inputs
from penstock.batch.exchange.packing import ExchangePlan
from penstock.batch.inputs import Input
from penstock.batch.pipeline import DatasetFactory, Pipeline
from penstock.batch.pipeline.check import check_pipeline
from penstock.batch.pipeline.execute import Executor, resources_by_stage
from penstock.batch.pipeline.needs import cut_pipeline
from penstock.batch.pipeline.phases import AsOne, ByKeys, ByOrder, ByRows, Phase, Phases
from penstock.batch.runner.breaker import Breaker
from penstock.batch.runner.events import Ending, Event, EventKind, Listener, Report, logged
from penstock.batch.runner.lease import Hold, InstanceLease
from penstock.batch.runner.membership import Membership
from penstock.batch.runner.places import check_places, trouble
from penstock.batch.runner.signals import stopping_on_signals
from penstock.batch.runner.together import RowsMove, WorkTogether, is_fresh, most_together
from penstock.batch.runner.work import Bench, ClaimWork, fingerprint
from penstock.batch.runs import exchanges, gc, runs
from penstock.batch.runs.exchange_disk import ExchangeDisk
from penstock.batch.runs.exchanges import Entering, Left, Sizes
from penstock.batch.runs.options import Auto, RunnerConfig
from penstock.batch.runs.pacing import Pace, Reliability
from penstock.batch.runs.runs import PhaseRecord, Run
from penstock.control.claims import Board, Claim, PartitionState
from penstock.core.clocks import wall_clock
from penstock.core.codec import schema_to_text
from penstock.core.failpoints import reach
from penstock.core.ranges import Range
from penstock.errors import (
    CodeChanged,
    CorruptFile,
    DefinitionError,
    DiskLimit,
    FencedError,
    HaltError,
    InputChanged,
    Interrupted,
    PenstockError,
    SessionLost,
    SparkLost,
    StoreUnavailable,
    UsageError,
)
from penstock.spark.faults import decode
from penstock.spark.session import cancel_tag, conform, is_alive, job_tag, parallelism, start
from penstock.spark.sharing import check_shared
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
        run, bench = self._prepare(spark, dataset_factory)
        with (
            stopping_on_signals(self.stop, enabled=self._handle_signals),
            Membership(
                self.store, self.config.cluster, self.config.instance, self.config.claims, __version__
            ) as membership,
        ):
            ending = self._phases(spark, bench, membership)
        return self._report(run, ending, time.monotonic() - self._began)

    def _phases(self, spark: SparkSession, bench: Bench, membership: Membership) -> Ending:
        """Work on one phase after the other, until one has to wait for a person."""
        incomplete: set[int] = set()
        for phase in bench.executor.phases:
            if phase.index and self._slots == 0:
                return "stopped"
            try:
                entered = self._patiently(partial(self._entered, bench, phase, incomplete))
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

    def _entered(self, bench: Bench, phase: Phase, incomplete: Set[int]) -> Bench | None:
        """What is needed to work on a phase: what earlier ones left for it, its plan and its board.

        None if it has to wait for partitions that were set aside before it.
        """
        run = bench.run
        origins = sorted({origin for origin in phase.entering.values() if origin is not None})
        if phase.index:
            runs.check_current(self.store, run)
        plan = exchanges.find_plan(self.store, run, phase.index) if origins else None
        # Once the plan is there it has been decided what to do without.
        if plan is None and not self.config.without_poisoned and incomplete & set(origins):
            return None
        without = plan.without if plan else ()
        left = {origin: exchanges.left(self.store, self.storage, run, origin, without) for origin in origins}
        if origins:
            tables = self._entering(bench, phase, left)
            plan = plan or exchanges.agree(
                self.store, run, phase, left.values(), tables.values(), self._sizes(bench.spark)
            )
            left = {origin: each.agreed(plan) for origin, each in left.items()}
            exchanges.check_plan(run, phase.index, plan, left.values())
        board = exchanges.board(self.store, run, phase.index, self.config.max_failures, plan)
        # A factory is given partitions of the first input, as ever.
        first = phase.partitioning == ByRows(run.primary)
        pace = None
        if isinstance(self.config.strategy, Auto):
            stages = [stage.index for stage in phase.stages[:-1]]
            pace = Pace(self.store, run.place(phase.index), stages, self._reliability)
        return replace(
            bench,
            phase=phase,
            board=board,
            entering=self._entering(bench, phase, left, plan),
            exchange=plan if isinstance(phase.partitioning, ByKeys | ByOrder) else None,
            factory=self._factory if first or len(bench.executor.phases) == 1 else None,
            pace=pace,
        )

    def _reliability(self) -> Reliability:
        """What this instance has seen of how others live: of those that are alive, it sees itself only."""
        return Reliability(time.monotonic() - self._began, self._deaths)

    def _entering(
        self, bench: Bench, phase: Phase, left: Mapping[int, Left], plan: ExchangePlan | None = None
    ) -> dict[str, Entering]:
        """The tables that a phase reads out of exchanges."""
        found = {}
        for table, origin in phase.entering.items():
            if origin is not None:
                exchange = bench.executor.phases[origin].exchange(table, phase.index)
                fields = exchange.fields or list(self.pipeline.tables[table].__fields__)[:1]
                schema = self.pipeline.tables[table].arrow_schema(fields)
                found[table] = exchanges.entering(left[origin], exchange, schema, plan)
        return found

    def _sizes(self, spark: SparkSession) -> Sizes:
        return Sizes(self.config.range_bytes, self.config.small_bytes, 2 * parallelism(spark))

    def _prepare(self, spark: SparkSession, factory: DatasetFactory | None) -> tuple[Run, Bench]:
        self._factory = factory
        registered = self._inputs(factory)
        output = Storage(self.config.output) if self.config.output else None
        check_places(self.storage, output, begun=runs.find(self.store, self._run_name) is not None)
        check_shared(spark, self.storage)
        if output is not None:
            check_shared(spark, output)
        digests = {name: found.digest for name, found in registered.items()}
        pipeline, known = self.pipeline, self.pipeline.resources
        resources = resources_by_stage(pipeline.stages, known, {})
        checked = check_pipeline(spark, pipeline, resources)
        sizes = {name: found.size for name, found in registered.items()}
        one = self.config.small_bytes
        phases = cut_pipeline(pipeline, checked, sizes, small=self.config.whole_bytes, as_one=one)
        self._check_size(phases, sizes)
        self._check_disk(phases, sizes)
        if phases.stages != pipeline.stages:
            resources = resources_by_stage(phases.stages, known, {}, resources[:1])
        executor = Executor(spark, pipeline, phases, checked.checked, checked.without_views)
        primary_table, primary = next(iter(registered.items()))
        wanted = Run(
            name=self._run_name,
            id=runs.new_id(),
            pipeline=self.pipeline.name,
            inputs=digests,
            registered={table: found.name for table, found in registered.items()},
            total_rows=primary.total_rows,
            partition_rows=primary.partition_rows,
            outputs=tuple(t.__table_name__ for t in self.pipeline.outputs),
            output=output.root if output is not None else self.storage.location("output"),
            output_format=self.config.output_format,
            fingerprint=fingerprint(
                pipeline, phases.stages, phases.texts(), digests, resources, factory, spark.version
            ),
            storage=self.storage.root,
            created=wall_clock("seconds"),
            keeps_rows=_keeps_rows(phases, primary_table),
            schemas=_output_schemas(self.pipeline),
            source=self._source,
            registrations={table: found.id for table, found in registered.items()},
            phases=phase_records(phases, registered),
        )
        run, board = runs.start(
            self.store,
            wanted,
            max_failures=self.config.max_failures,
            accept_changed_code=self.config.accept_changed_code,
        )
        if run.id == wanted.id:
            for found in registered.values():
                inputs.take(self.store, found)
        bench = Bench(
            spark,
            self.pipeline,
            run,
            board,
            self.storage,
            self.config,
            registered,
            executor,
            resources,
            factory,
            self._tell,
            phases[0],
            disk=ExchangeDisk(self.storage, run, self.config.exchange_bytes),
        )
        return run, bench

    def _check_size(self, phases: Phases, sizes: Mapping[str, int]) -> None:
        """Refuse to begin where one claim would have to take more rows than is allowed."""
        for phase in phases:
            if isinstance(phase.partitioning, AsOne) and len(phases) + len(phase.entering) > 1:
                size = sum(sizes.get(table, 0) for table in phase.entering)
                if size > self.config.everything_bytes:
                    name, why = next(iter(phase.needs.items()), ("it", phase.partitioning.why))
                    raise DefinitionError(
                        f"{name} needs all rows at once ({why}), and its input has {size >> 20} MiB",
                        left="nothing was begun",
                        hint="group or join by unchanged fields, say by=…, or allow it: "
                        f"run.everything_bytes is {self.config.everything_bytes >> 20} MiB",
                    )

    def _check_disk(self, phases: Phases, sizes: Mapping[str, int]) -> None:
        """Refuse to begin where the inputs that are exchanged are larger than run files may be."""
        limit = self.config.exchange_bytes
        if limit is None or runs.find(self.store, self._run_name) is not None:
            return
        size = sum(sizes.get(each.table, 0) for phase in phases for each in phase.leaving)
        if size > limit:
            exchanged = ", ".join(sorted({e.table for phase in phases for e in phase.leaving} & sizes.keys()))
            raise DiskLimit(
                f"the exchanges of {exchanged} have about {size} bytes to write, and run.exchange_bytes "
                f"allows {limit} on disk",
                left="nothing was begun",
                hint="allow more with run.exchange_bytes, or give the run less",
            )

    def _inputs(self, factory: DatasetFactory | None) -> dict[str, Input]:
        """The registered inputs, unchanged and of fitting types. Further ones may be the factory's."""
        known = inputs.names(self.store) if factory else []
        begun = runs.find(self.store, self._run_name)
        names = {**(begun.registered if begun else {}), **self.config.inputs}
        found = {}
        for number, table in enumerate(self.pipeline.inputs):
            name = names.get(table.__table_name__, table.__table_name__)
            if number and factory and name not in known:
                continue
            registered = inputs.load(self.store, self.storage, name)
            inputs.check_schema(registered.schema, table.input_schema(), file=f"input {name!r}")
            inputs.check_unchanged(registered)
            found[table.__table_name__] = registered
        return found

    def _work(self, spark: SparkSession, board: Board, bench: Bench, lease: InstanceLease) -> None:
        with ThreadPoolExecutor(self.config.claims, thread_name_prefix="penstock-claim") as pool:
            loops = [pool.submit(self._loop, spark, board, bench, lease) for _ in range(self.config.claims)]
            try:
                self._watch(spark, lease, loops)
            except BaseException:
                self.stop()
                self._watch(spark, lease, loops)
                raise
        for loop in loops:
            loop.result()

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
        try:
            while not self._stopping.is_set() and (slots := self._take_slots(bench)):
                claims = self._next_claims(board, bench.run, lease, slots)
                fresh = [claim for claim in claims if is_fresh(claim)]
                acked = self._attempt_together(spark, board, bench, lease, fresh) if len(fresh) > 1 else 0
                alone = [claim for claim in claims if len(fresh) == 1 or not is_fresh(claim)]
                acked += sum(self._attempt(spark, board, bench, lease, claim) for claim in alone)
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
        error = decode(raised)
        if isinstance(error, CorruptFile):
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

    def _take_slots(self, bench: Bench) -> int:
        """How many partitions may be claimed now; none when as many are done as were asked for."""
        wanted = 1 if bench.phase.index in self._alone else most_together(bench, self.config.claims)
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


def _output_schemas(pipeline: Pipeline) -> dict[str, str]:
    return {t.__table_name__: schema_to_text(t.arrow_schema(t.__fields__)) for t in pipeline.outputs}


def _keeps_rows(phases: Phases, primary: str) -> tuple[str, ...]:
    """The primary input, if it is published by its row ranges and nothing drops any of its rows."""
    for phase in phases:
        if phase.partitioning == ByRows(primary) and primary in phase.outputs:
            dropped = {t for s in phase.stages for b in s.transforms for t in b.transform.drops}
            return () if primary in dropped else (primary,)
    return ()


def phase_records(phases: Phases, registered: Mapping[str, Input]) -> tuple[PhaseRecord, ...]:
    """What a run's record tells about its phases."""
    if not phases.texts():
        return ()
    found = []
    for phase in phases:
        rows: int | None = 1
        size: int | None = 1
        if isinstance(cut := phase.partitioning, ByRows):
            rows, size = registered[cut.table].total_rows, registered[cut.table].partition_rows
        elif isinstance(cut, ByKeys | ByOrder):
            rows = size = None
        reads = {
            table: (origin, phases[origin].exchange(table, phase.index).name)
            for table, origin in phase.entering.items()
            if origin is not None
        }
        names = tuple(each.name for each in phase.leaving)
        stages = (phase.begin, phase.end)
        record = PhaseRecord(str(cut), stages, phase.outputs, rows, size, names, reads, phase.ordered)
        found.append(record)
    return tuple(found)


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or start()
