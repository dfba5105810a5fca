"""``penstock plan``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, Facts, Grid, count
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.batch.runs.manifests import Fingerprint
    from penstock.batch.runs.plan import PipelinePlan, RunPlan, StagePlan
    from penstock.batch.runs.runs import Run
    from penstock.project import Project


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
@with_context
def command(
    context: CommandContext, source: str, name: str | None, checkpoint: str | None, limit: int
) -> None:
    """Show what a run will do.

    That is the stages of the pipeline and where checkpoints fall and, for a run in progress, which
    stages of which partitions are reused or computed, and why.
    """
    from penstock.batch.runs import runs
    from penstock.batch.runs.options import checkpointing
    from penstock.batch.runs.plan import plan_pipeline, plan_run
    from penstock.project import load

    context.flags({"run.checkpoint": checkpoint})
    project = load(source)
    pipeline = project.pipeline
    plan = plan_pipeline(pipeline, checkpointing(context.config.run.checkpoint))
    run = runs.find(context.store, name or pipeline.name) if context.has_store else None
    if run is None and name is not None:
        run = context.run(name)
    if run is not None and run.pipeline != pipeline.name:
        if name is not None:
            raise UsageError(f"run {name!r} is of pipeline {run.pipeline}, not {pipeline.name}")
        run = None
    planned = (
        plan_run(context.store, run, pipeline, current_fingerprint(context, run, project), limit=limit)
        if run
        else None
    )
    context.output.show(Planned(plan, planned))


def current_fingerprint(
    context: CommandContext, run: Run, project: Project, *, may_start_spark: bool = True
) -> Fingerprint:
    """The fingerprint of the pipeline as it is now, over the inputs as they are registered now."""
    from pyspark import __version__ as spark_version

    from penstock.batch import inputs
    from penstock.batch.pipeline.execute import resources_by_stage
    from penstock.batch.runner.work import fingerprint
    from penstock.errors import InputError
    from penstock.spark import session
    from penstock.storage import Storage

    digests = {}
    for name in run.registered:
        try:
            digests[name] = inputs.load(context.store, Storage(run.storage), run.registered[name]).digest
        except InputError:
            digests[name] = "not registered"
    try:
        resources = resources_by_stage(project.pipeline, {})
    except Exception:
        if not may_start_spark:
            raise
        # A resource that is loaded by Spark needs a session; whatever else is wrong shows up again.
        spark = session.start(context.config.spark, app_name="penstock plan")
        try:
            resources = resources_by_stage(project.pipeline, {})
        finally:
            spark.stop()
    # A server's version is known to a session only.
    version = None if context.config.spark.master.startswith("sc://") else spark_version
    return fingerprint(project.pipeline, digests, resources, project.factory, version)
