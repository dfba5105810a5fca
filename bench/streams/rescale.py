"""(c) The pause at a change from 2 workers to 4 and back, beside the peers' restart from a snapshot.

Theirs lasts from the request to the first committed result of something that was polled after it. Ours is
told twice: as the longest time without a committed epoch while parts move, and as the longest time between
two committed results, from the request on until the change is long over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from bench.lab import Lab
from bench.measuring import say
from bench.results import Result
from bench.streams.ours import Ours
from bench.streams.peers import peers
from bench.streams.sides import Pauses, Rescaling, Side

GOAL = 0.1
RESCALING = Rescaling(poll=100, pace=2.0, interval=0.2, seconds=3.0, workers=(2, 4, 2))


def run(lab: Lab) -> Iterator[Result]:
    with peers(lab) as others:
        yield from results(lab, Ours(lab), others)


def results(lab: Lab, ours: Side, others: Sequence[Side]) -> Iterator[Result]:
    for peer in others:
        taken: list[tuple[Mapping[str, Pauses], Mapping[str, Pauses]]] = []
        for number in range(1, lab.repeat + 1):
            taken.append((ours.rescale(RESCALING), peer.rescale(RESCALING)))
            say(f"(c) {peer.name}: {number}/{lab.repeat}: {taken[-1]}")
        for what, way in product(*taken[0]):
            name = f"{peer.name}, {way}" if way else peer.name
            for text, side in (("2 → 4", "up"), ("4 → 2", "down")):
                yield Result.of(
                    f"(c) pause of {what} at a rescale {text}, {ours.name} ÷ {name} (s)",
                    [getattr(mine[what], side) for mine, _ in taken],
                    [getattr(theirs[way], side) for _, theirs in taken],
                    GOAL,
                )
