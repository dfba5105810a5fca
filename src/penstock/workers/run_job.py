"""Jobs: everything an instance is told, as one value that can travel to another process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from penstock.config import ClusterConfig, RunConfig, SparkConfig
from penstock.errors import Interrupted
from penstock.tls import Tls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.project import Project
    from penstock.runner import Report
    from penstock.runner.events import Listener


@dataclass(frozen=True, slots=True)
class Job:
    """One instance's part in a run of a pipeline file. The inputs are registered in the store."""

    source: str
    """``FILE:name``, as `penstock.project.load` takes it."""
    run: str
    instance: str
    store: str
    storage: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The names under which inputs are registered, by table."""
    output: str | None = None
    output_format: str = "parquet"
    accept_changed_code: bool = False
    settings: RunConfig = field(default_factory=RunConfig)
    spark: SparkConfig = field(default_factory=SparkConfig)
    cluster: str = ClusterConfig().name
    """The cluster among whose members the instance is shown."""
    tls: Tls | None = None
    store_password: str | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        value = asdict(replace(self, inputs={}, spark=replace(self.spark, conf={})))
        value["inputs"] = dict(self.inputs)
        value["spark"]["conf"] = dict(self.spark.conf)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Job:
        settings, spark = RunConfig(**value["settings"]), SparkConfig(**value["spark"])
        tls = Tls(**value["tls"]) if value.get("tls") else None
        return cls(**{**value, "settings": settings, "spark": spark, "tls": tls})


class Stoppable(Protocol):
    """What a wish to stop is for."""

    def stop(self) -> None: ...


class Stop:
    """A wish to stop, which may be uttered before there is a runner to hear it."""

    def __init__(self) -> None:
        self._wanted = False
        self._runner: Stoppable | None = None

    @property
    def wanted(self) -> bool:
        return self._wanted

    @property
    def idle(self) -> bool:
        """Whether no runner is there yet that could hold claims."""
        return self._runner is None

    def request(self) -> None:
        """Ask for it; safe in a signal handler."""
        self._wanted = True
        if self._runner is not None:
            # In a thread of its own: the handler may have interrupted the very lock that it needs.
            threading.Thread(target=self._runner.stop, name="penstock-stop", daemon=True).start()

    def attach(self, runner: Stoppable) -> None:
        self._runner = runner
        if self._wanted:
            runner.stop()

    def check_idle(self) -> None:
        """Raise `Interrupted` if it was asked for and no runner is there that could heed it."""
        if self._wanted and self.idle:
            raise Interrupted(
                "stopped before any partition was claimed", left="nothing", hint="run the same command again"
            )


def perform(
    job: Job,
    project: Project,
    listener: Listener,
    stop: Stop,
    *,
    started: Callable[[SparkSession], None] = lambda _: None,
) -> Report:
    """Start Spark, work on the run until it ends or ``stop`` says so, and stop Spark.

    ``started`` is called with the session before any work is done.
    """
    from penstock.runner import Runner, RunnerConfig
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
