"""``penstock plan``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.actions.planning import current
from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, Facts, Grid, amount, count, size
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.batch.runs.plan import PhasePlan, PipelinePlan, RunPlan, StagePlan


@dataclass(frozen=True, slots=True)
class Planned:
    """A pipeline as it will run, and what is there already if the run exists."""

    pipeline: PipelinePlan
    run: RunPlan | None

    def to_json(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline.to_json(), "run": self.run.to_json() if self.run else None}

    def blocks(self) -> Iterator[Block]:
        plan = self.pipeline
        yield f"pipeline {plan.pipeline}: {', '.join(plan.inputs)} → {', '.join(plan.outputs)}"
        for phase in plan.phases:
            if not plan.cut_by_rows_alone:
                yield from _phase(phase)
            for stage in phase.stages:
                yield from _stage(stage)
            yield from _leaves(phase)
        if self.run is not None:
            yield ""
            yield from _run(self.run, plan)


def _phase(phase: PhasePlan) -> Iterator[Block]:
    yield ""
    yield f"phase {phase.index}: {phase.cut}"
    for name, why in phase.why.items():
        yield f"  because {name}: {why}"
    if phase.given_whole:
        yield f"  each partition is given all of {', '.join(phase.given_whole)}"


def _stage(stage: StagePlan) -> Iterator[Block]:
    yield ""
    yield f"stage {stage.index}"
    for transform in stage.transforms:
        yield f"  {transform.name} ({transform.form})  {transform.location}"
        pairs = [("reads", transform.reads), ("writes", transform.writes), ("drops rows of", transform.drops)]
        yield Facts([(f"    {name}", ", ".join(what)) for name, what in pairs if what])
    if stage.checkpoint:
        saved = "; ".join(f"{table}({', '.join(fields)})" for table, fields in stage.saved.items())
        yield f"  └ checkpoint: {saved}"


def _leaves(phase: PhasePlan) -> Iterator[Block]:
    """What a phase hands on and what it publishes."""
    for each in phase.exchanges:
        to = ", ".join(str(reader) for reader in each.readers)
        yield f"  └ exchange to phase {to}: {each.table}({', '.join(each.fields)}) {each.how}"
    if phase.outputs:
        told = (f"{t} sorted by {by}" if (by := phase.sorted_by.get(t)) else t for t in phase.outputs)
        yield f"  └ output: {', '.join(told)}"


def _run(run: RunPlan, plan: PipelinePlan) -> Iterator[Block]:
    yield f"run {run.run}"
    for reason in run.code_changed:
        yield f"  changed since it began: {reason}"
    for each in run.exchanges:
        origin = "sorted rows" if each.is_sorted else f"{amount(each.buckets)} buckets"
        yield (
            f"  exchange to phase {each.phase}: {origin} → "
            f"{count(each.ranges, 'key range')}, {count(each.rows, 'row')}, {size(each.bytes)}, "
            f"{size(each.largest)} at most"
        )
        if each.without:
            yield f"    without the rows of poisoned {', '.join(each.without)}"
    for number in sorted({p.phase for p in run.partitions}):
        stages = plan.phases[min(number, len(plan.phases) - 1)].stages
        headers = ("partition", "state", "owner", *(f"stage {s.index}" for s in stages), "reason")
        chosen = [p for p in run.partitions if p.phase == number]
        yield Grid(headers, [(p.partition, p.state, p.owner, *p.actions, p.reason) for p in chosen])
    if run.untouched:
        yield f"{count(run.untouched, 'partition')} not begun: all stages will be computed"
    if run.not_begun:
        yield f"{count(run.not_begun, 'phase')} not begun"


@click.command()
@click.argument("source", metavar="FILE[:NAME]")
@click.option("--run", "name", metavar="NAME", help="The run to look at.  [default: the pipeline's name]")
@click.option("--checkpoint", metavar="WHEN", help="every-stage, every:N or none.")
@click.option("--limit", default=100, show_default=True, metavar="N", help="Show at most N partitions.")
@with_context
def command(
    context: CommandContext, source: str, name: str | None, checkpoint: str | None, limit: int
) -> None:
    """Show what a run will do.

    That is the stages of the pipeline, how rows are cut for them and where checkpoints fall and, for a
    run in progress, which stages of which partitions are reused or computed, and why.
    """
    from penstock.batch.runs import runs
    from penstock.batch.runs.options import checkpointing
    from penstock.batch.runs.plan import plan_pipeline, plan_run
    from penstock.project import load

    context.flags({"run.checkpoint": checkpoint})
    project = load(source)
    pipeline = project.pipeline
    run = runs.find(context.store, name or pipeline.name) if context.has_store else None
    if run is None and name is not None:
        run = context.run(name)
    if run is not None and run.pipeline != pipeline.name:
        if name is not None:
            raise UsageError(f"run {name!r} is of pipeline {run.pipeline}, not {pipeline.name}")
        run = None
    found = current(context, project, run)
    plan = plan_pipeline(pipeline, found.phases, checkpointing(context.config.run.checkpoint))
    planned = (
        plan_run(context.store, run, pipeline, found.phases, found.fingerprint, limit=limit) if run else None
    )
    context.output.show(Planned(plan, planned))
