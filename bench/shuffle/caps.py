"""(c) Peak memory, whatever the size of transactions; and the disk, which stays below its cap."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench import procfs
from bench.lab import Lab, Place
from bench.measuring import say
from bench.results import Result
from bench.shuffle.data import Made, Spec
from bench.shuffle.ours import SETTINGS, running

GOAL = 1.2
CAP = 128 << 20
_MEGABYTE = 1_000_000
_STILL = 3.0


def run(lab: Lab) -> Iterator[Result]:
    documents = lab.rows // 10
    small = Spec(documents, 300, 8).write(lab.folder / "data")
    large = Spec(documents, 300, 8, together=documents // 2).write(lab.folder / "data")
    taken = []
    for number in range(1, lab.repeat + 1):
        taken.append((peak(lab, large), peak(lab, small)))
        say(f"(c) memory {number}/{lab.repeat}: {taken[-1][0]:.0f} and {taken[-1][1]:.0f} MB")
    yield Result.of(
        f"(c) peak memory, transactions of {documents // 2:,} ÷ {small.spec.together} documents (MB)",
        [large_peak for large_peak, _ in taken],
        [small_peak for _, small_peak in taken],
        GOAL,
    )
    disks = [disk(lab, small) / _MEGABYTE for _ in range(lab.repeat)]
    yield Result.of("(c) peak of the disk ÷ its cap (MB)", disks, [CAP / _MEGABYTE] * len(disks), 1.0)


def peak(lab: Lab, made: Made) -> float:
    """The most that the Python workers of Spark had resident, all together."""
    with lab.place("memory") as place:
        lab.wake()
        workers = _workers()
        for worker in workers:
            procfs.reset_peak(worker)
        with running(lab, place, made) as run:
            run.begin()
            run.wait(made.spec.documents)
        return sum(map(_peak, set(workers) | set(_workers()))) / _MEGABYTE


def disk(lab: Lab, made: Made) -> int:
    """The most that the stream's files took while nobody made room for more."""
    with lab.place("disk") as place, running(lab, place, made, replace(SETTINGS, queue_bytes=CAP)) as run:
        run.begin()
        most, rows, since = 0, 0, time.monotonic()
        while not rows or time.monotonic() < since + _STILL:
            most = max(most, _size(place))
            if run.rows() != rows:
                rows, since = run.rows(), time.monotonic()
            time.sleep(0.02)
        if not 0 < rows < made.spec.documents:
            raise RuntimeError(f"{rows:,} documents came out below the cap")
        return most


def _workers() -> list[int]:
    return procfs.descendants(os.getpid(), "python") + procfs.descendants(os.getpid(), "python3")


def _peak(pid: int) -> int:
    try:
        return procfs.peak(pid)
    except OSError:
        return 0


def _size(place: Place) -> int:
    return sum(_bytes(Path(folder) / name) for folder, _, names in os.walk(place.storage) for name in names)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
