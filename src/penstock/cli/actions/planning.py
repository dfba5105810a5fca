"""A pipeline as it is now: how its rows would be cut, and its fingerprint to compare with a run's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.cli.context import CommandContext
from penstock.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.batch.inputs import Input
    from penstock.batch.pipeline import Stage
    from penstock.batch.pipeline.phases import Phases
    from penstock.batch.runs.manifests import Fingerprint
    from penstock.batch.runs.runs import Run
    from penstock.project import Project


@dataclass(frozen=True, slots=True)
class CurrentPipeline:
    """A pipeline over the inputs as they are registered now."""

    phases: Phases
    fingerprint: Fingerprint


def current(context: CommandContext, project: Project, run: Run | None) -> CurrentPipeline:
    """What the code of a project makes now, of a run's inputs or of those with the names of its tables.

    Starts Spark: only its plans tell how rows have to be cut.
    """
    from penstock.batch.pipeline.check import check_pipeline
    from penstock.batch.pipeline.execute import resources_by_stage
    from penstock.batch.pipeline.needs import cut_pipeline
    from penstock.batch.runner.bench import fingerprint

    pipeline = project.pipeline
    registered = _inputs(context, project, run)
    sizes = {table: found.size for table, found in registered.items() if found is not None}
    settings = context.config.run
    with planning_session(context, "penstock plan") as spark:
        resources = resources_by_stage(pipeline.stages, pipeline.resources, {})
        checked = check_pipeline(spark, pipeline, resources)
        phases = cut_pipeline(
            pipeline, checked, sizes, small=settings.whole_bytes, as_one=settings.small_bytes
        )
        values = resources_by_stage(phases.stages, pipeline.resources, {}, resources[:1])
        digests = _digests(registered)
        made = fingerprint(
            pipeline, phases.stages, phases.texts(), digests, values, project.factory, spark.version
        )
    return CurrentPipeline(phases, made)


def fingerprint_without_spark(context: CommandContext, project: Project, run: Run) -> Fingerprint:
    """The fingerprint of the code as it is now, with the rows cut as the run has cut them.

    Whoever changes what has to be cut otherwise changes code as well, which shows.
    """
    from pyspark import __version__ as spark_version

    from penstock.batch.pipeline.execute import resources_by_stage
    from penstock.batch.runner.bench import fingerprint

    pipeline = project.pipeline
    stages = _stages_like(project, run) if run.phases else pipeline.stages
    resources = resources_by_stage(stages, pipeline.resources, {})
    # A server's version is known to a session only.
    version = None if context.config.spark.master.startswith("sc://") else spark_version
    digests = _digests(_inputs(context, project, run))
    return fingerprint(pipeline, stages, run.fingerprint.phases, digests, resources, project.factory, version)


def _stages_like(project: Project, run: Run) -> tuple[Stage, ...]:
    """The transforms as they are now, in the stages of a run; what the run does not have comes last."""
    from penstock.batch.pipeline import Stage

    known = {bound.name: bound for bound in project.pipeline.bound}
    stages: list[Stage] = []
    for printed in run.fingerprint.stages:
        found = tuple(known.pop(name) for name in printed.names.split("+") if name in known)
        stages.append(Stage(len(stages), found))
    return (*stages, Stage(len(stages), tuple(known.values()))) if known else tuple(stages)


def _inputs(context: CommandContext, project: Project, run: Run | None) -> Mapping[str, Input | None]:
    from penstock.batch import inputs
    from penstock.storage import Storage

    tables = [t.__table_name__ for t in project.pipeline.inputs]
    names = run.registered if run else {table: table for table in tables}
    storage = Storage(run.storage) if run else context.storage
    found: dict[str, Input | None] = {}
    for table, name in names.items() if context.has_store else ():
        try:
            found[table] = inputs.load(context.store, storage, name)
        except InputError:
            found[table] = None
    return found


def _digests(registered: Mapping[str, Input | None]) -> dict[str, str]:
    return {table: found.digest if found else "not registered" for table, found in registered.items()}


@contextmanager
def planning_session(context: CommandContext, app_name: str) -> Iterator[SparkSession]:
    """A session for a short look at plans. One that the process had before stays open."""
    from pyspark.sql import SparkSession

    from penstock.spark import session

    had = SparkSession.getActiveSession() is not None
    spark = session.start(replace(context.config.spark, fast_start=True), app_name=app_name)
    try:
        yield spark
    finally:
        if not had:
            spark.stop()
