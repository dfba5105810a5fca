"""(d) How many virtual nodes change their owner when a member comes or goes, against the least possible.

The least is what the new member owns afterwards, or what the one that left had owned: anything above it moved
for nothing. Nothing is timed here; the same assignment comes out on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.lab import Lab
from bench.results import Result
from penstock.config import ClusterConfig
from penstock.control.cluster.rules.assignment import moved, successor
from penstock.control.cluster.rules.model import Seat, Snapshot

SIZES = (2, 3, 7, 15)


def run(lab: Lab) -> Iterator[Result]:
    del lab
    for size in SIZES:
        few, many = _snapshot(size), _snapshot(size + 1)
        newest = f"member-{size}"
        least = len(many.vnodes(newest))
        for word, before, after in (("join", few, many), ("leave", many, few)):
            count = float(len(moved(before, after)))
            name = f"(d) virtual nodes moved, {word} {size} ↔ {size + 1}"
            yield Result.of(name, [count], [least], goal=1.0)


def _snapshot(size: int) -> Snapshot:
    seats = tuple(sorted(Seat(f"member-{number}", f"session-{number}") for number in range(size)))
    return successor(Snapshot(), seats, ClusterConfig().vnodes, token=1)
