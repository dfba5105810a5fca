"""Several instances of a run on one machine: child processes, each with its own Spark session."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from string import ascii_lowercase
from types import TracebackType
from typing import Any, Self

from penstock.children import Child, Crew, error_from_json
from penstock.config import SparkConfig
from penstock.job import Job
from penstock.runner.events import Event, Listener, Report, silent
from penstock.spark.session import local_cores

_LEAST_MEMORY_MB = 512
_SPARE_MB = 400  # what a driver takes beside its heap, with its Python workers


class Instance(Child):
    """A child process that takes part in a run."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.instance, {"run": job.to_json()})
        self.job = job

    @property
    def report(self) -> Report | None:
        """What its runner returned."""
        return report_from_json(self.result) if self.result is not None else None


class Supervisor:
    """Starts instances and passes on what they tell until all have ended.

    The listener gets every event of every instance, one at a time; ``on_end`` each instance that has
    ended. One that dies is not started again: the others take over what it held when its leases run
    out, and if all die the run can be resumed.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        listener: Listener = silent,
        on_end: Callable[[Instance], None] = lambda _: None,
    ) -> None:
        self._jobs = jobs
        self._crew: Crew[Instance] = Crew(lambda _, event: listener(Event.from_json(event)), on_end)

    def __enter__(self) -> Self:
        for job in self._jobs:
            self._crew.add(Instance(job))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.close()

    @property
    def instances(self) -> list[Instance]:
        return self._crew.children

    def stop(self) -> None:
        """Ask all instances to give their claims back and leave. Safe in a signal handler."""
        self._crew.terminate()

    def kill(self) -> None:
        """End all instances at once."""
        self._crew.kill()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all instances have ended; False if some still run after ``timeout`` seconds."""
        return self._crew.wait(timeout)

    @property
    def reports(self) -> list[Report]:
        return [i.report for i in self.instances if i.report is not None]


def share(job: Job, instances: int) -> list[Job]:
    """A job for each of several instances, with the machine's cores, memory and batches divided.

    They are called ``a-3f2c``, ``b-3f2c``, …, alike in what tells them from those of other commands.
    """
    batches = job.settings.max_batches
    if batches is not None:
        instances = min(instances, batches)
    spark = divided(job.spark, instances)
    jobs, family = [], secrets.token_hex(2)
    for n in range(instances):
        part = None if batches is None else batches // instances + (n < batches % instances)
        settings = replace(job.settings, max_batches=part)
        letter = ascii_lowercase[n] if instances <= len(ascii_lowercase) else f"i{n}"
        jobs.append(replace(job, instance=f"{letter}-{family}", settings=settings, spark=spark))
    return jobs


def divided(spark: SparkConfig, instances: int) -> SparkConfig:
    """What one of several sessions on this machine gets of it.

    A master that names its cores means them for each session; ``local[*]`` means the machine's.
    """
    cores = local_cores(spark.master)
    if cores is None or instances == 1:
        return spark
    master = f"local[{max(1, cores // instances)}]" if spark.master == "local[*]" else spark.master
    memory = min(_megabytes(spark.memory), max(_LEAST_MEMORY_MB, _machine_mb() // instances - _SPARE_MB))
    kept = memory == _megabytes(spark.memory)
    return replace(spark, master=master, memory=spark.memory if kept else f"{memory}m")


def report_from_json(value: dict[str, Any]) -> Report:
    """A report as another process wrote it, without its events."""
    error = error_from_json(value["error"]) if value["error"] else None
    return Report(**{**value, "error": error})


def _megabytes(text: str) -> int:
    return int(text[:-1]) * (1024 if text[-1] in "gG" else 1)


def _machine_mb() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
    except (ValueError, OSError):
        return 1 << 20
