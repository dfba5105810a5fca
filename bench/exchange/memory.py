"""(e) Whether a run needs more memory for ten times the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bench.exchange import child
from bench.exchange.child import Job
from bench.lab import Lab
from bench.measuring import say
from bench.results import Result

GOAL = 1.2
TIMES = 10
MEGABYTE = 1_000_000
OPTIONS = {"small_bytes": 0, "whole_bytes": 0}
"""Few rows go through an exchange as many do."""


def run(lab: Lab) -> Iterator[Result]:
    few = max(1, lab.rows // TIMES)
    taken: list[tuple[dict[str, int], dict[str, int]]] = []
    for number in range(1, lab.repeat + 1):
        taken.append((_peaks(lab, lab.rows, few), _peaks(lab, few, few)))
        say(f"(e) {number}/{lab.repeat}: {taken[-1]}")
    for kinds, what in (
        (("python", "java", "workers"), "all processes"),
        (("python",), "Python driver"),
        (("java",), "Spark's JVM"),
        (("workers",), "Python workers"),
    ):
        large = [sum(peaks[kind] for kind in kinds) / MEGABYTE for peaks, _ in taken]
        small = [sum(peaks[kind] for kind in kinds) / MEGABYTE for _, peaks in taken]
        goal = GOAL if len(kinds) > 1 else None
        yield Result.of(f"(e) peak memory, {what}, {lab.rows:,} ÷ {few:,} rows (MB)", large, small, goal)


def _peaks(lab: Lab, rows: int, warm_up: int) -> dict[str, int]:
    """Of a process of its own: a JVM gives nothing back, so that an earlier run would be seen."""
    with lab.place("memory") as place:
        done = child.run(Job(str(place.path), str(lab.folder), "grouped", rows, OPTIONS, warm_up=warm_up))
    if done.returncode:
        raise RuntimeError(f"the instance ended with {done.returncode}: {done.stderr[-3000:]}")
    peaks: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return peaks
