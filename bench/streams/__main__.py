"""``python -m bench.streams``: the peers alone, one measurement of each, as JSON."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from bench.__main__ import WORK, positive
from bench.lab import Lab
from bench.measuring import say
from bench.streams import latency, rescale, throughput
from bench.streams.bytewax_side import Bytewax
from bench.streams.peers import peers
from bench.streams.sides import Side


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description="Measure the peers alone.")
    parser.add_argument("--rows", type=positive, default=10_000_000, help="rows of the input (default 10 M)")
    parser.add_argument("--only", default="abc", help="which of a, b and c (default all)")
    parser.add_argument("--peer", default="", help="only the peer whose name begins so")
    parser.add_argument("--keep", action="store_true", help="keep what the runs wrote")
    given = parser.parse_args()
    lab = Lab(Path(WORK).resolve(), rows=given.rows, repeat=1, keep=given.keep)
    with peers(lab) as found:
        work = [(side, given.only) for side in found]
        if any(isinstance(side, Bytewax) for side in found):
            # It differs only in how the rows are counted at full speed.
            work.append((Bytewax(lab, combined=True), "a" if "a" in given.only else ""))
        for side, only in work:
            if only and side.name.startswith(given.peer):
                say(side.name)
                print(json.dumps({side.name: measured(lab, side, only)}), flush=True)


def measured(lab: Lab, side: Side, only: str) -> dict[str, object]:
    found: dict[str, object] = {}
    if "a" in only:
        throughput.cost(lab, side)
        found["events_per_second"] = round(1e6 / throughput.cost(lab, side))
    if "b" in only:
        found["latency_ms"] = latency.milliseconds(side)
    if "c" in only:
        found["pauses_s"] = {way: asdict(each) for way, each in side.rescale(rescale.RESCALING).items()}
    return found


if __name__ == "__main__":
    main()
