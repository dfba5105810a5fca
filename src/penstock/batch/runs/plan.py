"""Plans: what a run will do, as data. `plan`, `run` and every other view show these same objects."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from penstock.batch.pipeline import Pipeline
from penstock.batch.runs import checkpoints
from penstock.batch.runs.manifests import Fingerprint
from penstock.batch.runs.options import Checkpointing
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board, PartitionState, PartitionView
from penstock.storage import Storage
from penstock.store import Store

Action = Literal["done", "reuse", "recompute", "set aside"]


@dataclass(frozen=True, slots=True)
class TransformPlan:
    name: str
    form: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    drops: tuple[str, ...]
    location: str


@dataclass(frozen=True, slots=True)
class StagePlan:
    index: int
    transforms: tuple[TransformPlan, ...]
    checkpoint: bool
    """Whether a checkpoint follows this stage."""
    saved: dict[str, tuple[str, ...]]
    """The fields, by table, that later stages and outputs still need."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """A pipeline as it will run."""

    pipeline: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stages: tuple[StagePlan, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What becomes of one partition: for each stage, what will happen."""

    partition: str
    state: str
    owner: str
    actions: tuple[Action, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run in progress: a view by partition and stage of what is reused and what is computed."""

    run: str
    code_changed: tuple[str, ...]
    partitions: tuple[PartitionPlan, ...]
    untouched: int
    """Partitions that nobody has begun; all their stages will be computed."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_pipeline(pipeline: Pipeline, strategy: Checkpointing) -> PipelinePlan:
    count = len(pipeline.stages)
    stages = []
    for stage in pipeline.stages:
        live = pipeline.live(stage.index + 1)
        stages.append(
            StagePlan(
                stage.index,
                tuple(
                    TransformPlan(
                        b.name,
                        b.transform.form,
                        tuple(sorted({str(f) for f in b.reads} | {r.name for r in b.reads_resources})),
                        tuple(sorted({str(f) for f in b.writes} | {r.name for r in b.writes_resources})),
                        tuple(sorted(b.transform.drops)),
                        b.transform.location,
                    )
                    for b in stage.transforms
                ),
                strategy.after(stage.index + 1, count),
                {table: tuple(sorted(fields)) for table, fields in sorted(live.items())},
            )
        )
    return PipelinePlan(
        pipeline.name,
        tuple(t.__table_name__ for t in pipeline.inputs),
        tuple(t.__table_name__ for t in pipeline.outputs),
        tuple(stages),
    )


def plan_run(
    store: Store, run: Run, pipeline: Pipeline, current: Fingerprint, *, limit: int = 1000
) -> RunPlan:
    """What the next `run` would do. ``current`` is the fingerprint of the pipeline as it is now."""
    storage = Storage(run.storage)
    board = Board.open(store, run.key)
    partitions: list[PartitionPlan] = []
    for view in board.partitions(touched=True):
        if len(partitions) == limit:
            break
        partitions.append(_partition(storage, run, pipeline, current, view))
    touched = sum(1 for _ in board.partitions(touched=True))
    untouched = board.summary().total.partitions - touched
    return RunPlan(run.name, tuple(run.fingerprint.differences(current)), tuple(partitions), untouched)


def _all(action: Action, count: int) -> tuple[Action, ...]:
    return (action,) * count


def _partition(
    storage: Storage, run: Run, pipeline: Pipeline, current: Fingerprint, view: PartitionView
) -> PartitionPlan:
    count = len(pipeline.stages)
    owner = view.owner if view.state in (PartitionState.CLAIMED, PartitionState.COMPLETED) else ""
    if view.state is PartitionState.COMPLETED:
        return PartitionPlan(str(view.range), view.state, owner, _all("done", count), "published")
    if view.state is PartitionState.POISONED:
        error = view.errors[-1].error.splitlines()[0] if view.errors else ""
        return PartitionPlan(str(view.range), view.state, owner, _all("set aside", count), f"failed: {error}")
    judged = checkpoints.newest(
        checkpoints.judge(storage, run.key, view.range, ref, pipeline, current) for ref in view.checkpoints
    )
    best = next((j for j in judged if j.fits), None)
    done = best.manifest.done if best and best.manifest else 0
    actions: tuple[Action, ...] = tuple("reuse" if n < done else "recompute" for n in range(count))
    reason = f"checkpoint after stage {done - 1} fits" if best else "no checkpoint"
    unfit = [f"after stage {j.ref.stage}: {'; '.join(j.reasons)}" for j in judged if not j.fits]
    if unfit:
        reason += f"; not used: {', '.join(unfit)}"
    return PartitionPlan(str(view.range), view.state, owner, actions, reason)
