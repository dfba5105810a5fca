"""Small claims that are computed together: one Spark job for what would be many, and a task for each claim.

A job costs more than a few thousand rows. What a job of several claims has made is kept apart all the way:
each task has the rows of one claim and writes its files, and each claim has a manifest and an ack of its own.
So one that is lost, or whose rows do not fit its table, leaves the others as they are. When the job itself
fails, nobody can tell whose fault it is: the claims are then computed one by one, as large ones are.

That needs plans in which rows stay in their task. Which ones do is read off the plan that is about to run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock.batch import inputs
from penstock.batch.pipeline import Dataset, Stage
from penstock.batch.pipeline.phases import ByRows, Phase
from penstock.batch.pipeline.retry import attempt_job
from penstock.batch.pipeline.transforms import Division, Retry
from penstock.batch.runner.bench import Bench
from penstock.batch.runner.events import EventKind
from penstock.batch.runner.lease import Hold
from penstock.batch.runner.work import ClaimWork
from penstock.batch.runner.writing import PhaseFiles, write_phase
from penstock.batch.runs import checkpoints
from penstock.batch.runs.checkpoints import InputRows, SavedCheckpoint
from penstock.control.claims import Claim
from penstock.core.failpoints import reach
from penstock.errors import FencedError
from penstock.spark.flow import Flow, Scan, Splits
from penstock.spark.plans.analysed import stays_in_place

T = TypeVar("T")

MOST_CLAIMS = 64
MOST_ROWS = 1_000_000
_SHARES = 8
"""So many batches each thread of an instance finds at least: the last ones are not all one thread's."""


class RowsMove(Exception):
    """In the plan of a phase, rows do not stay in their task: its claims cannot be computed together."""


def most_together(bench: Bench, threads: int) -> int:
    """How many claims of a phase are taken at once; 1 where each is computed by itself."""
    phase = bench.phase
    if bench.factory is not None or not may_be_together(phase):
        return 1
    geometry = bench.board.geometry
    share = geometry.partitions // (_SHARES * threads)
    return max(1, min(MOST_CLAIMS, MOST_ROWS // geometry.partition_rows, share))


def may_be_together(phase: Phase) -> bool:
    """Whether a phase has row ranges of one input, and nothing else that its rows are made of."""
    if not isinstance(phase.partitioning, ByRows) or phase.whole or set(phase.entering.values()) - {None}:
        return False
    return not any(b.transform.by is Division.PARTITION for s in phase.stages for b in s.transforms)


def is_fresh(claim: Claim) -> bool:
    """Whether nobody has tried it before: what has failed, or was begun, is computed by itself."""
    return not claim.attempts and not claim.checkpoints


class WorkTogether:
    """Several fresh claims of one phase on their way through the pipeline."""

    def __init__(self, bench: Bench, holds: Sequence[Hold]) -> None:
        self.bench = bench
        self.works = [ClaimWork(bench, hold) for hold in holds]
        self._retries: list[Retry] = []

    @property
    def _claims(self) -> list[Claim]:
        return [work.claim for work in self.works]

    def do(self) -> list[str | Exception]:
        """Compute all and publish each; for each claim the digest of what was published, or what went wrong.

        An error of a job that they share is raised instead, before anything is published.
        """
        bench, phase = self.bench, self.bench.phase
        [table] = [phase.partitioning.table] if isinstance(phase.partitioning, ByRows) else []
        flows = bench.executor.flows(Dataset({table: self._input(table)}, {}, bench.spark))
        for work in self.works:
            work.rows = {table: work.claim.range.rows}
        unsaved = 0
        for stage in phase.stages:
            before = time.monotonic()
            flows = self._stage(stage, flows)
            unsaved += 1
            if bench.saves(stage):
                flows, saved = self._checkpoint(stage.index + 1, flows)
                bench.learn(stage, unsaved, time.monotonic() - before, saved)
                unsaved = 0
            self._tell_all("stage", stage=stage.index, seconds=time.monotonic() - before)
        self._tell_all("writing", stage=phase.end)
        self._check_places(flows.values())
        made = write_phase(bench, self._claims, flows, self._run)
        return [self._publish(work, each) for work, each in zip(self.works, made, strict=True)]

    def _input(self, name: str) -> Flow:
        """The rows of all claims, with a task for each."""
        bench = self.bench
        registered, schema = bench.inputs[name], bench.pipeline.tables[name].input_schema()

        def cut(columns: Sequence[str]) -> Sequence[Splits]:
            each = partial(inputs.splits, registered, bench.storage, tasks=1, columns=columns, schema=schema)
            return [Splits(tuple(each(claim.range))) for claim in self._claims]

        return Flow.scan(name, Scan(schema, cut, kept=InputRows(name)))

    def _stage(self, stage: Stage, flows: dict[str, Flow]) -> dict[str, Flow]:
        bench = self.bench
        self._check()
        made = bench.executor.run_stage(bench.phase, stage, flows, bench.resources[stage.index])
        self._retries += [b.transform.retry for b in stage.transforms if b.transform.form == "frame"]
        for work in self.works:
            work.note(stage)
        reach("stage.planned")
        return made

    def _checkpoint(self, done: int, flows: dict[str, Flow]) -> tuple[dict[str, Flow], list[SavedCheckpoint]]:
        bench = self.bench
        self._check_places(flows.values())
        printed = bench.run.fingerprint.upto(done, bench.phase.index)
        compression = bench.config.compression
        place, spark, storage = bench.place, bench.spark, bench.storage
        saved, onward = self._run(
            lambda: checkpoints.save(
                spark, storage, place, self._claims, done, flows, printed, compression, bench.hint
            )
        )
        self._retries = []
        for work, each in zip(self.works, saved, strict=True):
            try:
                work.record(each)
            except FencedError as error:
                work.hold.lose(error)
        return onward, saved

    def _check_places(self, flows: Iterable[Flow]) -> None:
        for flow in flows:
            if not isinstance(flow.origin, Scan) and not stays_in_place(flow.origin):
                raise RowsMove(flow.table)

    def _publish(self, work: ClaimWork, made: PhaseFiles) -> str | Exception:
        try:
            return work.publish(made, together=len(self.works))
        except Exception as error:
            return error

    def _run(self, job: Callable[[], T]) -> T:
        def told(pause: float) -> None:
            self._tell_all("retry", seconds=pause)
            time.sleep(pause)

        def once() -> T:
            self._check()
            return job()

        return attempt_job(once, self._retries, told)

    def _check(self) -> None:
        """Raise if none of the claims may go on. One that is lost is refused when it is published."""
        for work in self.works:
            if work.hold.lost is None or work.hold.stop is not None:
                work.hold.check()
        if all(work.hold.lost for work in self.works):
            self.works[0].hold.check()

    def _tell_all(self, kind: EventKind, **more: Any) -> None:
        for work in self.works:
            work.tell(kind, **more)
