"""An instance in a process of its own: ``python -m bench.batch.child JOB``, where JOB is JSON.

One that is to be killed finds where in PENSTOCK_FAILPOINTS; one that is watched tells the peak memory
of its driver as JSON on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import procfs
from bench.lab import MASTER, Place

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Job:
    """A run of the DataFrame pipeline. ``warm_up`` is a folder with an input to run before."""

    place: str
    source: str
    rows: int
    checkpoints: bool
    lease_ttl: float = 10.0
    memory: str = "1g"
    warm_up: str = ""


def run(job: Job, failpoints: str = "") -> subprocess.CompletedProcess[str]:
    """Do a job in a process of its own, and wait for the end of it and of its JVM."""
    command = [sys.executable, "-m", "bench.batch.child", json.dumps(asdict(job))]
    environ = {**os.environ, "PENSTOCK_FAILPOINTS": failpoints}
    # The JVM and its workers keep the pipes open, so that they are gone as well when this returns.
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)


def main(text: str) -> None:
    from pyspark import cloudpickle

    import penstock as ps
    from bench import trades
    from bench.batch import running

    job = Job(**json.loads(text))
    cloudpickle.register_pickle_by_value(trades)  # type: ignore[no-untyped-call]
    spark = ps.start_spark(ps.SparkConfig(master=MASTER, memory=job.memory), app_name="penstock-bench-child")
    checkpoint = ps.EveryStage() if job.checkpoints else ps.Never()
    if job.warm_up:
        warm = Place(Path(job.place, "warm-up"))
        warm.path.mkdir()
        source = Path(job.warm_up)
        running.penstock(spark, warm, source, trades.frames, rows=job.rows, checkpoint=checkpoint)
    driver = [os.getpid(), *procfs.descendants(os.getpid(), "java")]
    for pid in driver:
        procfs.reset_peak(pid)
    running.penstock(
        spark,
        Place(Path(job.place)),
        Path(job.source),
        trades.frames,
        rows=job.rows,
        checkpoint=checkpoint,
        lease_ttl=job.lease_ttl,
    )
    peaks = [procfs.peak(pid) for pid in driver]
    print(json.dumps({"python": peaks[0], "driver": sum(peaks)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
