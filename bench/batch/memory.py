"""(f) Whether the driver needs more memory for partitions of more rows."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bench import data
from bench.batch import child
from bench.batch.child import Job
from bench.batch.running import partition_rows
from bench.lab import Lab
from bench.measuring import say
from bench.results import Result

GOAL = 1.2
LARGE, SMALL = 4, 32
MEGABYTE = 1_000_000
WARM_UP_ROWS = 100_000


def run(lab: Lab) -> Iterator[Result]:
    small, large = (partition_rows(lab.rows, partitions) for partitions in (SMALL, LARGE))
    taken: list[tuple[dict[str, int], dict[str, int]]] = []
    for number in range(1, lab.repeat + 1):
        taken.append((_peaks(lab, large), _peaks(lab, small)))
        say(f"(f) {number}/{lab.repeat}: {taken[-1]}")
    for key, what in (("driver", "JVM and Python driver"), ("python", "Python driver alone")):
        yield Result.of(
            f"(f) peak memory, {what}, partitions of {large:,} ÷ {small:,} rows (MB)",
            [peaks[key] / MEGABYTE for peaks, _ in taken],
            [peaks[key] / MEGABYTE for _, peaks in taken],
            GOAL,
        )


def _peaks(lab: Lab, rows: int) -> dict[str, int]:
    """Of a process of its own: a JVM gives nothing back, so that an earlier run would be seen."""
    warm_up = data.trades(lab.folder / "data", WARM_UP_ROWS)
    with lab.place("memory") as place:
        job = Job(str(place.path), str(lab.trades()), rows, checkpoints=True, warm_up=str(warm_up))
        done = child.run(job)
    if done.returncode:
        raise RuntimeError(f"the instance ended with {done.returncode}: {done.stderr[-3000:]}")
    peaks: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return peaks
