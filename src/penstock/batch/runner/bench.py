"""What the work on all claims shares: the run, the phase and the settings; and the fingerprint of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.batch.exchange.packing import ExchangePlan
from penstock.batch.inputs import Input
from penstock.batch.pipeline import DatasetFactory, Pipeline, Stage
from penstock.batch.pipeline.execute import Executor
from penstock.batch.pipeline.fingerprint.digests import code_digest, resources_digest, stage_digest
from penstock.batch.pipeline.phases import AsOne, Phase, Phases
from penstock.batch.pipeline.resources import Named
from penstock.batch.runner.events import Listener
from penstock.batch.runs.checkpoints import SavedCheckpoint
from penstock.batch.runs.exchange_disk import ExchangeDisk
from penstock.batch.runs.exchanges import Entering
from penstock.batch.runs.manifests import Fingerprint, StagePrint
from penstock.batch.runs.options import RunnerConfig
from penstock.batch.runs.pacing import Pace, StageCost
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board
from penstock.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Grows when a release computes other results from the same code and input.
_RULES = "1"


def fingerprint(
    pipeline: Pipeline,
    stages: Sequence[Stage],
    cuts: tuple[str, ...],
    inputs: Mapping[str, str],
    resources: Sequence[Mapping[str, Any]],
    factory: DatasetFactory | None,
    spark: str | None = None,
) -> Fingerprint:
    """What the results of a pipeline over these inputs depend on.

    ``cuts`` say how rows are cut in each phase, and ``spark`` is its version, if known.
    """
    printed = tuple(
        StagePrint("+".join(s.names), stage_digest(s), resources_digest(s, resources[s.index]))
        for s in stages
    )
    outputs = {t.__table_name__: t.schema_id() for t in pipeline.outputs}
    engine = {"Penstock's way of computing": _RULES}
    if spark is not None:
        # Bugs are mended between patches; what functions mean changes with minor versions.
        engine["Spark"] = ".".join(spark.split(".")[:2])
    made = code_digest(factory) if factory else ""
    return Fingerprint(dict(inputs), printed, made, outputs, engine, cuts)


def with_resources(
    shared: Fingerprint, phases: Phases, resources: Sequence[Mapping[str, Any]], own: Sequence[Named]
) -> Fingerprint:
    """The fingerprint of a claim for which a dataset factory provided resources of its ``own``."""
    names = {name for name, _ in own}
    stages = tuple(
        printed._replace(resources=resources_digest(stage, resources[stage.index]))
        if any(r.name in names for bound in stage.transforms for r in bound.reads_resources)
        else printed
        for stage, printed in zip(phases.stages, shared.stages, strict=True)
    )
    return replace(shared, stages=stages)


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that the work on a claim needs, shared by all claims of an instance."""

    spark: SparkSession
    pipeline: Pipeline
    run: Run
    board: Board
    storage: Storage
    config: RunnerConfig
    inputs: Mapping[str, Input]
    executor: Executor
    resources: Sequence[Mapping[str, Any]]
    factory: DatasetFactory | None
    tell: Listener
    phase: Phase
    entering: Mapping[str, Entering] = field(default_factory=dict)
    """The tables that the phase reads out of exchanges."""
    exchange: ExchangePlan | None = None
    """Its key ranges, if it has such."""
    disk: ExchangeDisk | None = None
    """The disk that run files take."""
    pace: Pace | None = None
    """What decides about checkpoints, if that depends on what they cost."""

    @property
    def place(self) -> str:
        """What the files of this phase stand under."""
        return self.run.place(self.phase.index)

    def hint(self, name: str, size: int) -> str | None:
        """How Spark shall join a table of so many bytes. It takes what a Python worker reads for a few."""
        if name in self.phase.whole:
            # Else it may be the partition that is collected, and sent to all tasks.
            return "broadcast"
        if isinstance(self.phase.partitioning, AsOne):
            return "merge" if size > self.config.small_bytes else None
        several = self.exchange is not None and len(self.exchange.ranges) > 1
        return "shuffle_hash" if several and len(self.entering) > 1 else None

    def saves(self, stage: Stage) -> bool:
        """Whether a checkpoint follows a stage."""
        done = stage.index + 1 - self.phase.begin
        if not self.config.strategy.after(done, len(self.phase.stages)):
            return False
        return self.pace is None or self.pace.saves(stage.index)

    def learn(self, stage: Stage, unsaved: int, seconds: float, saved: Sequence[SavedCheckpoint]) -> None:
        """Take note of what a stage cost with its checkpoint, if no other one was computed with it."""
        if self.pace is not None and unsaved == 1:
            files = [file for each in saved for table in each.tables.values() for file in table.files]
            self.pace.learn(StageCost(stage.index, seconds, sum(file.bytes for file in files)))
