"""Several instances of a run on one machine: child processes, each with its own Spark session."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from penstock.batch.runner.events import Event, Listener, Report, silent
from penstock.workers.children import Child, Crew, error_from_json
from penstock.workers.jobs import instance_name
from penstock.workers.run_job import RunJob


class RunChild(Child):
    """A child process that takes part in a run."""

    @property
    def report(self) -> Report | None:
        """What its runner returned."""
        return report_from_json(self.result) if self.result is not None else None


class RunSupervisor:
    """Starts instances and passes on what they tell until all have ended.

    The listener gets every event of every instance, one at a time; ``on_end`` each instance that has
    ended. One that dies is not started again: the others take over what it held when its leases run
    out, and if all die the run can be resumed.
    """

    def __init__(
        self,
        jobs: Sequence[RunJob],
        listener: Listener = silent,
        on_end: Callable[[RunChild], None] = lambda _: None,
    ) -> None:
        self._jobs = jobs
        self._crew: Crew[RunChild] = Crew(lambda _, event: listener(Event.from_json(event)), on_end)

    def __enter__(self) -> Self:
        for job in self._jobs:
            self._crew.add(RunChild(job))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.close()

    @property
    def instances(self) -> list[RunChild]:
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


def share(job: RunJob, instances: int) -> list[RunJob]:
    """A job for each of several instances, with the machine's cores, memory and batches divided.

    They are called ``a-3f2c``, ``b-3f2c``, …, alike in what tells them from those of other commands.
    """
    batches = job.settings.max_batches
    if batches is not None:
        instances = min(instances, batches)
    jobs, family = [], secrets.token_hex(2)
    for n in range(instances):
        part = None if batches is None else batches // instances + (n < batches % instances)
        one = job.shared(instance_name(n, family), instances)
        jobs.append(replace(one, settings=replace(job.settings, max_batches=part)))
    return jobs


def report_from_json(value: dict[str, Any]) -> Report:
    """A report as another process wrote it, without its events."""
    error = error_from_json(value["error"]) if value["error"] else None
    return Report(**{**value, "error": error})
