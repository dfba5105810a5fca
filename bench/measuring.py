"""Taking measurements so that two sides can be compared."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from bench.results import Result

Measure = Callable[[], float]


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def say_if_busy() -> None:
    """Say that others use this machine: what is measured beside them is noise."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        say(f"this machine is busy: a load of {load:.1f} on {cores} cores. Trust no figure, and few ratios")


def timed(action: Callable[[], object]) -> float:
    """Seconds that the action takes. What was written before is on the disk when the clock starts."""
    # Else one side pays for flushing the other's files.
    os.sync()
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def compare(
    name: str,
    ours: Measure,
    peer: Measure,
    *,
    repeat: int,
    goal: float | None = None,
    warm_up: bool = True,
    after_warm_up: Callable[[], object] = lambda: None,
) -> Result:
    """Measure ours, peer, ours, peer, … after one measurement of each that does not count."""
    if warm_up:
        say(f"{name}: warm-up: {ours():.3g} and {peer():.3g}")
    after_warm_up()
    taken: list[tuple[float, float]] = []
    for number in range(1, repeat + 1):
        pair = ours(), peer()
        taken.append(pair)
        say(f"{name}: {number}/{repeat}: {pair[0]:.4g} and {pair[1]:.4g}")
    return Result.of(name, [a for a, _ in taken], [b for _, b in taken], goal)
