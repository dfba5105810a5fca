"""Run seeds by hand.

``python -m tests.simulation --seed 17`` prints what happens in one seed;
``python -m tests.simulation --seeds 0-20000`` runs many, and prints those that found something.
With ``--streams``, instances read a stream instead of counting; with ``--objects``, it is about the
object store.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.objects import run as storms
from tests.simulation.run import Simulation, simulate
from tests.simulation.streaming import Stream


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--seed", type=int, help="print the trace of this seed")
    choice.add_argument("--seeds", help="run these seeds, as FIRST-LAST")
    parser.add_argument("--streams", action="store_true", help="let instances read a stream")
    parser.add_argument("--objects", action="store_true", help="try the object store")
    given = parser.parse_args()
    if given.objects:
        return objects(given.seed, given.seeds)
    kind = Stream if given.streams else Simulation
    return show(given.seed, kind) if given.seed is not None else soak(given.seeds, kind)


def show(seed: int, kind: type[Simulation]) -> int:
    run = simulate(seed, record=True, kind=kind)
    sys.stdout.write("\n".join(run.trace) + "\n")
    sys.stdout.write(
        f"{run.seconds:.0f} virtual seconds, {run.events} events, {run.terms} terms, "
        f"{run.versions} assignments; {run.violation or 'all invariants hold'}\n"
    )
    return 1 if run.violation else 0


def soak(seeds: str, kind: type[Simulation]) -> int:
    first, _, last = seeds.partition("-")
    chosen = range(int(first), int(last or first) + 1)
    began, found, epochs, late, ghosts, rows, ends = time.monotonic(), 0, 0, 0, 0, 0, 0
    for run in (simulate(seed, kind=kind) for seed in chosen):
        epochs, late, ghosts = epochs + run.epochs, late + run.late, ghosts + run.ghosts
        rows, ends = rows + run.rows, ends + run.ended
        if run.violation:
            found += 1
            sys.stdout.write(f"{run.violation}\n")
            sys.stdout.flush()
    sys.stdout.write(
        f"{len(chosen)} seeds, {len(chosen) / (time.monotonic() - began):.0f} a second, "
        f"{found} with a violation; {epochs} epochs, {late} committed by the record of a leader whose lease "
        f"was over, {ghosts} pruned records made anew with another outcome\n"
    )
    if kind is Stream:
        sys.stdout.write(f"{rows} rows, and {ends} streams that ended\n")
    return 1 if found else 0


def objects(seed: int | None, seeds: str | None) -> int:
    first, _, last = (seeds or str(seed)).partition("-")
    found = 0
    for number in range(int(first), int(last or first) + 1):
        run = storms.simulate(number, record=seed is not None)
        sys.stdout.write("".join(f"{line}\n" for line in run.trace))
        sys.stdout.write(f"{run.violation}\n" if run.violation else "")
        found += run.violation is not None
    sys.stdout.write(f"{found} seeds with a violation\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
