"""(b) What is left to do after a kill at 80 % of the reduce side."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from functools import partial

import penstock as ps
from bench.batch.running import Outputs
from bench.exchange import child, running
from bench.exchange.child import Job
from bench.exchange.running import Step
from bench.lab import Lab, Place
from bench.measuring import timed
from bench.results import Result
from penstock.batch.runs import runs
from penstock.control.claims import Board, PartitionState

GOAL = 0.4
RANGES = 10
KILLED_AT = 0.8
LEASE = 10.0
# What the map side writes for a trade, roughly.
_ROW_BYTES = 32


def run(lab: Lab) -> Iterator[Result]:
    for what, kind, step in (
        ("group-by", "grouped", running.grouped(lab)),
        ("window", "windowed", running.windowed(lab)),
    ):
        outputs = Outputs()
        at_once = running.measured_plain(lab, running.at_once, step, outputs)
        killed = partial(_resumed, lab, kind, step, outputs)
        resumed, once = running.in_turns(f"(b) {what}", lab, [killed, at_once])
        yield Result.of(
            f"(b) {what}, resume after a kill at 80 % of the key ranges ÷ plain script again (s)",
            resumed,
            once,
            GOAL,
        )


def _resumed(lab: Lab, kind: str, step: Step, outputs: Outputs) -> float:
    """Seconds that a run takes to its end that was killed when four fifths of its key ranges were acked."""
    options = {"lease_ttl": LEASE, "range_bytes": lab.rows * _ROW_BYTES // RANGES, "small_bytes": 0}
    with lab.place("killed") as place:
        job = Job(str(place.path), str(lab.folder), kind, lab.rows, options, killed_at=KILLED_AT)
        done = child.run(job)
        if done.returncode != -signal.SIGKILL:
            raise RuntimeError(f"it ended with {done.returncode}, not by SIGKILL: {done.stderr[-3000:]}")
        _wait_for_the_lease(place, step)
        lab.wake()
        seconds = timed(lambda: running.penstock(lab.spark, place, step, **options))
        outputs.add("resumed", running.output(lab.spark, place, step))
        return seconds


def _wait_for_the_lease(place: Place, step: Step) -> None:
    """Wait until the claims of the dead instance are free, as a new process does while it starts Spark."""
    with ps.open_store(place.store) as store:
        last = len(runs.load(store, step.name).phases) - 1
        board = Board.open(store, runs.load(store, step.name).place(last))
        while any(view.alive for view in board.partitions({PartitionState.CLAIMED}, touched=True)):
            time.sleep(0.05)
