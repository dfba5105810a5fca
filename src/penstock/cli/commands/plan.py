"""``penstock plan``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.desk import Desk, with_desk
from penstock.cli.output import Block, Facts, Grid, count
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.project import Project
    from penstock.runner.manifests import Fingerprint
    from penstock.runner.plan import PipelinePlan, RunPlan, StagePlan
    from penstock.runner.runs import Run


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
        for stage in plan.stages:
            yield from _stage(stage, last=stage is plan.stages[-1])
        if self.run is not None:
            yield ""
            yield from _run(self.run, len(plan.stages))


def _stage(stage: StagePlan, *, last: bool) -> Iterator[Block]:
    yield ""
    yield f"stage {stage.index}"
    for transform in stage.transforms:
        yield f"  {transform.name} ({transform.form})  {transform.location}"
        pairs = [("reads", transform.reads), ("writes", transform.writes), ("drops rows of", transform.drops)]
        yield Facts([(f"    {name}", ", ".join(what)) for name, what in pairs if what])
    if stage.checkpoint:
        saved = "; ".join(f"{table}({', '.join(fields)})" for table, fields in stage.saved.items())
        yield f"  └ checkpoint: {saved}"
    elif last:
        yield "  └ output"


def _run(run: RunPlan, stages: int) -> Iterator[Block]:
    yield f"run {run.run}"
    for reason in run.code_changed:
        yield f"  changed since it began: {reason}"
    if run.partitions:
        headers = ("partition", "state", "owner", *(f"stage {n}" for n in range(stages)), "reason")
        rows = [(p.partition, p.state, p.owner, *p.actions, p.reason) for p in run.partitions]
        yield Grid(headers, rows)
    if run.untouched:
        yield f"{count(run.untouched, 'partition')} not begun: all stages will be computed"


@click.command()
@click.argument("source", metavar="FILE[:NAME]")
@click.option("--run", "name", metavar="NAME", help="The run to look at.  [default: the pipeline's name]")
@click.option("--checkpoint", metavar="WHEN", help="every-stage, every:N or none.")
@click.option("--limit", default=100, show_default=True, metavar="N", help="Show at most N partitions.")
@with_desk
def command(desk: Desk, source: str, name: str | None, checkpoint: str | None, limit: int) -> None:
    """Show what a run will do.

    That is the stages of the pipeline and where checkpoints fall and, for a run in progress, which
    stages of which partitions are reused or computed, and why.
    """
    from penstock.project import load
    from penstock.runner import runs
    from penstock.runner.options import checkpointing
    from penstock.runner.plan import plan_pipeline, plan_run

    desk.flags({"run.checkpoint": checkpoint})
    project = load(source)
    pipeline = project.pipeline
    plan = plan_pipeline(pipeline, checkpointing(desk.config.run.checkpoint))
    run = runs.find(desk.store, name or pipeline.name) if desk.has_store else None
    if run is None and name is not None:
        run = desk.run(name)
    if run is not None and run.pipeline != pipeline.name:
        if name is not None:
            raise UsageError(f"run {name!r} is of pipeline {run.pipeline}, not {pipeline.name}")
        run = None
    planned = plan_run(desk.store, run, pipeline, _current(desk, run, project), limit=limit) if run else None
    desk.output.show(Planned(plan, planned))


def _current(desk: Desk, run: Run, project: Project) -> Fingerprint:
    """The fingerprint of the pipeline as it is now, over the inputs as they are registered now."""
    from penstock import inputs
    from penstock.errors import InputError
    from penstock.pipeline.execute import resources_by_stage
    from penstock.runner.work import fingerprint
    from penstock.spark import session
    from penstock.storage import Storage

    digests = {}
    for name in run.registered:
        try:
            digests[name] = inputs.load(desk.store, Storage(run.storage), run.registered[name]).digest
        except InputError:
            digests[name] = "not registered"
    try:
        resources = resources_by_stage(project.pipeline, {})
    except Exception:
        # A resource that is loaded by Spark needs a session; whatever else is wrong shows up again.
        spark = session.start(desk.config.spark, app_name="penstock plan")
        try:
            resources = resources_by_stage(project.pipeline, {})
        finally:
            spark.stop()
    return fingerprint(project.pipeline, digests, resources, project.factory)
