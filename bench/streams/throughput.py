"""(a) A keyed count over 64 parts: time for an event, from the first poll to the commit of the last count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result
from bench.streams.bytewax_side import Bytewax
from bench.streams.generator import PARTS
from bench.streams.ours import Ours
from bench.streams.peers import peers
from bench.streams.sides import Side

GOAL = 1.0
INTERVAL = 1.0
WARM_UPS = 4
"""Runs of ours before the first that counts: a stream runs for days, in a JVM that has compiled its code."""


def run(lab: Lab) -> Iterator[Result]:
    with peers(lab) as others:
        yield from results(lab, Ours(lab), others)


def results(lab: Lab, ours: Side, others: Sequence[Side]) -> Iterator[Result]:
    for _ in range(WARM_UPS):
        cost(lab, ours)
    for peer in others:
        yield _compared(lab, ours, peer, GOAL)
    if any(isinstance(peer, Bytewax) for peer in others):
        # Without a goal: here the source does the counting, and bytewax only adds up.
        yield _compared(lab, ours, Bytewax(lab, combined=True), None)


def _compared(lab: Lab, ours: Side, peer: Side, goal: float | None) -> Result:
    return compare(
        f"(a) keyed count over {PARTS} parts, {ours.name} ÷ {peer.name} (µs per event)",
        lambda: cost(lab, ours),
        lambda: cost(lab, peer),
        repeat=lab.repeat,
        goal=goal,
    )


def cost(lab: Lab, side: Side) -> float:
    """Microseconds for an event, as all workers together get through them."""
    rows = -(-lab.rows // PARTS)
    return side.throughput(rows, INTERVAL) * 1e6 / (rows * PARTS)
