"""An instance in a process of its own: ``python -m bench.exchange.child JOB``, where JOB is JSON.

It is killed before its end, or tells the peak memory of its processes as JSON on stdout.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import penstock as ps
from bench import procfs
from bench.lab import MASTER, Lab, Place
from penstock.batch.runs import exchanges, runs
from penstock.core.failpoints import armed

ROOT = Path(__file__).parents[2]
_EVERY = 0.05


@dataclass(frozen=True, slots=True)
class Job:
    """A run of a step over ``rows`` trades, after one over ``warm_up``.

    With ``killed_at``, it is killed when that share of the key ranges is acked.
    """

    place: str
    work: str
    step: str
    rows: int
    options: Mapping[str, Any] = field(default_factory=dict)
    memory: str = "1g"
    warm_up: int = 0
    killed_at: float = 0.0


def run(job: Job) -> subprocess.CompletedProcess[str]:
    """Do a job in a process of its own, and wait for the end of it and of its JVM."""
    command = [sys.executable, "-m", "bench.exchange.child", json.dumps(asdict(job))]
    # The JVM and its workers keep the pipes open, so that they are gone as well when this returns.
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def main(text: str) -> None:
    from bench.exchange import running

    job = Job(**json.loads(text))
    config = ps.SparkConfig(master=MASTER, memory=job.memory)
    spark = ps.start_spark(config, app_name="penstock-bench-child")
    step: Callable[[Lab], running.Step] = getattr(running, job.step)
    if job.warm_up:
        warm = Place(Path(job.place, "warm-up"))
        warm.path.mkdir()
        running.penstock(spark, warm, step(_lab(job, job.warm_up)), **job.options)
    place, made = Place(Path(job.place)), step(_lab(job, job.rows))
    with Watch() as watch, killed(place, made.name, job.killed_at):
        running.penstock(spark, place, made, **job.options)
    print(json.dumps(watch.peaks), flush=True)


def _lab(job: Job, rows: int) -> Lab:
    return Lab(Path(job.work), rows=rows, repeat=1)


@contextmanager
def killed(place: Place, run: str, share: float) -> Iterator[None]:
    """In the block, this process is killed when so many key ranges of the run's last phase are acked."""
    acks: list[int] = []

    def count_from_here() -> None:
        with ps.open_store(place.store) as store:
            record = runs.load(store, run)
            plan = exchanges.find_plan(store, record, len(record.phases) - 1)
            acks.append(round(share * len(plan.ranges)) if plan else 0)

    def count() -> None:
        if acks and share:
            acks[0] -= 1
            if acks[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    with armed({"exchange.plan.after": count_from_here, "ack.before": count}):
        yield


class Watch:
    """The most memory that the processes of this instance had at once, looked at again and again."""

    def __init__(self) -> None:
        self.peaks = {"python": 0, "java": 0, "workers": 0}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        own = os.getpid()
        java = procfs.descendants(own, "java")
        while not self._done.wait(_EVERY):
            workers = [pid for jvm in java for pid in procfs.descendants(jvm, "python3")]
            found = {"python": [own], "java": java, "workers": workers}
            for kind, pids in found.items():
                self.peaks[kind] = max(self.peaks[kind], sum(map(procfs.resident, pids)))


if __name__ == "__main__":
    main(sys.argv[1])
