"""An instance's part in a run: what it is told, and how it does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.config import ClusterConfig, RunConfig, SparkConfig
from penstock.config.tls import Tls
from penstock.core.json_values import plain
from penstock.workers.jobs import Job, Stop, divided, revived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.batch.runner import Report
    from penstock.batch.runner.events import Listener
    from penstock.project import Project


@dataclass(frozen=True, slots=True)
class RunJob(Job):
    """One instance's part in a run of a pipeline file. The inputs are registered in the store."""

    kind: ClassVar[str] = "run"
    source: str
    run: str
    instance: str
    store: str
    storage: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The names under which inputs are registered, by table."""
    output: str | None = None
    output_format: str = "parquet"
    accept_changed_code: bool = False
    without_poisoned: bool = False
    settings: RunConfig = field(default_factory=RunConfig)
    spark: SparkConfig = field(default_factory=SparkConfig)
    cluster: str = ClusterConfig().name
    """The cluster among whose members the instance is shown."""
    tls: Tls | None = None
    store_password: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.instance

    def shared(self, name: str, instances: int) -> RunJob:
        return replace(self, instance=name, spark=divided(self.spark, instances))

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunJob:
        return cls(**revived(value, {"settings": RunConfig, "spark": SparkConfig, "tls": Tls}))


def perform(
    job: RunJob,
    project: Project,
    listener: Listener,
    stop: Stop,
    *,
    started: Callable[[SparkSession], None] = lambda _: None,
) -> Report:
    """Start Spark, work on the run until it ends or ``stop`` says so, and stop Spark.

    ``started`` is called with the session before any work is done.
    """
    from penstock.batch.runner import Runner, RunnerConfig
    from penstock.spark import session
    from penstock.storage import Storage
    from penstock.store import open_store

    config = RunnerConfig.from_settings(
        job.settings,
        run=job.run,
        instance=job.instance,
        inputs=job.inputs,
        output=job.output,
        output_format=job.output_format,
        accept_changed_code=job.accept_changed_code,
        without_poisoned=job.without_poisoned,
        cluster=job.cluster,
    )
    with open_store(job.store, tls=job.tls, password=job.store_password) as store:
        spark = session.start(job.spark, app_name=f"penstock {job.run} {job.instance}")
        try:
            stop.check_idle()
            started(spark)
            stop.check_idle()
            runner = Runner(
                project.pipeline,
                store,
                Storage(job.storage),
                config,
                spark=spark,
                listener=listener,
                source=project.source,
                handle_signals=False,
            )
            stop.attach(runner)
            return runner.run(project.factory)
        finally:
            spark.stop()
