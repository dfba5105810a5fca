"""Plans: what a run will do, as data. `plan`, `run` and every other view show these same objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal

from penstock.batch.pipeline import Pipeline, Stage
from penstock.batch.pipeline.phases import Phase, Phases
from penstock.batch.runs import checkpoints, exchanges, runs
from penstock.batch.runs.manifests import Fingerprint
from penstock.batch.runs.options import Checkpointing
from penstock.batch.runs.runs import Run
from penstock.control.claims import PartitionState, PartitionView
from penstock.core.ranges import PartitionName
from penstock.storage import Storage
from penstock.store import Store
from penstock.types.order import order_text

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
class ExchangeView:
    """A table that a phase leaves for later ones: by ``keys``, or without any for one that has everything."""

    table: str
    keys: tuple[str, ...]
    fields: tuple[str, ...]
    readers: tuple[int, ...]
    how: str
    """By keys, as a whole or sorted, in words."""


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """Consecutive stages whose rows are cut in one way."""

    index: int
    cut: str
    why: dict[str, str]
    """By transform, what asks for this cut."""
    given_whole: tuple[str, ...]
    stages: tuple[StagePlan, ...]
    exchanges: tuple[ExchangeView, ...]
    outputs: tuple[str, ...]
    """What its acks publish."""
    sorted_by: dict[str, str]
    """The outputs among them whose files are sorted, and by what."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """A pipeline as it will run."""

    pipeline: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    phases: tuple[PhasePlan, ...]

    @property
    def cut_by_rows_alone(self) -> bool:
        """Whether each row range of its first input goes through all stages by itself."""
        return len(self.phases) == 1 and self.phases[0].cut.startswith("rows")

    def to_json(self) -> dict[str, Any]:
        stages = [asdict(stage) for phase in self.phases for stage in phase.stages]
        phases = [{**asdict(phase), "stages": [s.index for s in phase.stages]} for phase in self.phases]
        return {
            "pipeline": self.pipeline,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "phases": phases,
            "stages": stages,
        }


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What becomes of one partition: for each stage of its phase, what will happen."""

    partition: str
    state: str
    owner: str
    actions: tuple[Action, ...]
    reason: str
    phase: int = 0


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """How an exchange was cut for a phase, once all its rows were written."""

    phase: int
    buckets: int
    ranges: int
    rows: int
    bytes: int
    largest: int
    """Bytes of the largest range."""
    without: tuple[str, ...]
    """Partitions whose rows are missing, because the run was told to go on without them."""
    is_sorted: bool = False
    """Whether the ranges follow each other in the order of their rows; each is a bucket then."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run in progress: a view by partition and stage of what is reused and what is computed."""

    run: str
    code_changed: tuple[str, ...]
    partitions: tuple[PartitionPlan, ...]
    untouched: int
    """Partitions that nobody has begun; all their stages will be computed."""
    exchanges: tuple[KeyRanges, ...] = ()
    not_begun: int = 0
    """Phases whose partitions are not known yet."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_pipeline(pipeline: Pipeline, phases: Phases, strategy: Checkpointing) -> PipelinePlan:
    return PipelinePlan(
        pipeline.name,
        tuple(t.__table_name__ for t in pipeline.inputs),
        tuple(t.__table_name__ for t in pipeline.outputs),
        tuple(_phase(phases, phase, strategy) for phase in phases),
    )


def _phase(phases: Phases, phase: Phase, strategy: Checkpointing) -> PhasePlan:
    return PhasePlan(
        phase.index,
        str(phase.partitioning),
        dict(phase.needs),
        tuple(sorted(phase.whole)),
        tuple(_stage(phases, phase, stage, strategy) for stage in phase.stages),
        tuple(
            ExchangeView(e.table, e.keys, tuple(sorted(e.fields)), e.readers, e.how) for e in phase.leaving
        ),
        phase.outputs,
        {table: order_text(order) for table, order in phase.ordered.items()},
    )


def _stage(phases: Phases, phase: Phase, stage: Stage, strategy: Checkpointing) -> StagePlan:
    live = phases.live(phase, stage.index + 1)
    return StagePlan(
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
        strategy.after(stage.index + 1 - phase.begin, len(phase.stages)),
        {table: tuple(sorted(fields)) for table, fields in sorted(live.items())},
    )


def plan_run(
    store: Store, run: Run, pipeline: Pipeline, phases: Phases, current: Fingerprint, *, limit: int = 1000
) -> RunPlan:
    """What the next `run` would do. ``current`` is the fingerprint of the pipeline as it is now."""
    storage = Storage(run.storage)
    boards = runs.boards(store, run)
    # The code may have fewer phases now than the run: of a phase that is gone, nothing can be used.
    touched = (
        (min(number, len(phases) - 1), number, view)
        for number, board in enumerate(boards)
        for view in board.partitions(touched=True)
    )
    partitions = [
        _partition(storage, run, pipeline, phases, phases[known], number, current, view)
        for known, number, view in islice(touched, limit)
    ]
    total = sum(board.summary().total.partitions for board in boards)
    begun = sum(1 for board in boards for _ in board.partitions(touched=True))
    return RunPlan(
        run.name,
        tuple(run.fingerprint.differences(current)),
        tuple(partitions),
        total - begun,
        tuple(_key_ranges(store, run)),
        len(run.every_phase) - len(boards),
    )


def _key_ranges(store: Store, run: Run) -> Iterator[KeyRanges]:
    for phase in range(len(run.every_phase)):
        if (plan := exchanges.find_plan(store, run, phase)) is not None:
            yield KeyRanges(
                phase,
                plan.buckets,
                len(plan.ranges),
                sum(each.rows for each in plan.ranges),
                sum(each.bytes for each in plan.ranges),
                max(each.bytes for each in plan.ranges),
                plan.without,
                run.every_phase[phase].by_order,
            )


def _all(action: Action, count: int) -> tuple[Action, ...]:
    return (action,) * count


def _partition(
    storage: Storage,
    run: Run,
    pipeline: Pipeline,
    phases: Phases,
    phase: Phase,
    number: int,
    current: Fingerprint,
    view: PartitionView,
) -> PartitionPlan:
    count = len(phase.stages)
    name = str(PartitionName(number, view.range))
    owner = view.owner if view.state in (PartitionState.CLAIMED, PartitionState.COMPLETED) else ""
    if view.state is PartitionState.COMPLETED:
        return PartitionPlan(name, view.state, owner, _all("done", count), "published", number)
    if view.state is PartitionState.POISONED:
        error = view.errors[-1].error.splitlines()[0] if view.errors else ""
        return PartitionPlan(name, view.state, owner, _all("set aside", count), f"failed: {error}", number)
    judged = checkpoints.newest(
        checkpoints.judge(storage, run.place(number), view.range, ref, pipeline, phases, phase, current)
        for ref in view.checkpoints
    )
    best = next((j for j in judged if j.fits), None)
    done = best.manifest.done if best and best.manifest else phase.begin
    actions: tuple[Action, ...] = tuple("reuse" if s.index < done else "recompute" for s in phase.stages)
    reason = f"checkpoint after stage {done - 1} fits" if best else "no checkpoint"
    unfit = [f"after stage {j.ref.stage}: {'; '.join(j.reasons)}" for j in judged if not j.fits]
    if unfit:
        reason += f"; not used: {', '.join(unfit)}"
    return PartitionPlan(name, view.state, owner, actions, reason, number)
