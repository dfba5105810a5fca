"""(b) Time from a poll to the commit of its result, under a load that every side can bear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from bench.lab import Lab
from bench.measuring import say
from bench.results import Result
from bench.streams.generator import PARTS
from bench.streams.ours import Ours
from bench.streams.peers import peers
from bench.streams.sides import Side, Steady

# 64 parts, two polls a second of 100 rows each: 12,800 events per second.
STEADY = Steady(poll=100, pace=2.0, interval=0.2, seconds=10.0)


def run(lab: Lab) -> Iterator[Result]:
    with peers(lab) as others:
        yield from results(lab, Ours(lab), others)


def results(lab: Lab, ours: Side, others: Sequence[Side]) -> Iterator[Result]:
    events = f"{round(STEADY.poll * STEADY.pace * PARTS):,} events/s"
    for peer in others:
        taken: list[tuple[tuple[float, float], tuple[float, float]]] = []
        for number in range(1, lab.repeat + 1):
            taken.append((milliseconds(ours), milliseconds(peer)))
            say(f"(b) {peer.name}: {number}/{lab.repeat}: {taken[-1]}")
        for index, which in enumerate(("median", "99th percentile")):
            yield Result.of(
                f"(b) poll to committed result at {events}, {which}, {ours.name} ÷ {peer.name} (ms)",
                [mine[index] for mine, _ in taken],
                [theirs[index] for _, theirs in taken],
            )


def milliseconds(side: Side) -> tuple[float, float]:
    """Median and 99th percentile."""
    found = [seconds * 1e3 for seconds in side.latency(STEADY)]
    return median(found), quantiles(found, n=100)[-1]
