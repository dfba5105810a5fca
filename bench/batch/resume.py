"""(c) What is left to do after a kill at 80 %, and whether anything else is done again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import penstock as ps
from bench import trades
from bench.batch import child
from bench.batch.child import Job
from bench.batch.running import (
    Outputs,
    measured_penstock,
    measured_plain,
    output,
    partition_rows,
    penstock,
    plain,
    plain_in_steps,
)
from bench.lab import Lab, Place
from bench.measuring import say, timed
from bench.results import Result
from penstock.batch.runs import runs
from penstock.control.claims import PartitionState

if TYPE_CHECKING:
    from penstock.control.claims import PartitionView

GOAL = 0.35
PARTITIONS = 20
ACKED = 16
LEASE = 10.0
PIPELINE = trades.frames


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that was killed and finished. Recomputed are input rows times stages."""

    seconds: float
    waited: float
    recomputed: int
    unavoidable: int


def run(lab: Lab) -> Iterator[Result]:
    outputs = Outputs()
    rows = partition_rows(lab.rows, PARTITIONS)
    again = measured_penstock(lab, PIPELINE, outputs, rows=rows, checkpoint=ps.EveryStage())
    in_steps, at_once = (measured_plain(lab, script, outputs) for script in (plain_in_steps, plain))
    say(f"(c) warm-up: {again():.3g}, {in_steps():.3g} and {at_once():.3g}")
    taken: list[tuple[Resumed, float, float, float]] = []
    for number in range(1, lab.repeat + 1):
        taken.append((_killed_and_resumed(lab, rows, outputs), again(), in_steps(), at_once()))
        say(f"(c) {number}/{lab.repeat}: {taken[-1]}")
    finished, full, steps, once = zip(*taken, strict=True)
    seconds = [resumed.seconds for resumed in finished]
    yield Result.of("(c) resume after a kill at 80 % ÷ full run again (s)", seconds, full, GOAL)
    yield Result.of(
        "(c) resume after a kill at 80 % ÷ plain script with Parquet between the stages again (s)",
        seconds,
        steps,
        GOAL,
    )
    yield Result.of("(c) resume after a kill at 80 % ÷ plain script in one go again (s)", seconds, once)
    yield Result.of(
        "(c) recomputed ÷ what came after the last checkpoints of the claims in flight (rows in stages)",
        [resumed.recomputed for resumed in finished],
        [resumed.unavoidable for resumed in finished],
        1.0,
    )
    yield Result.of(
        "(c) wait until a killed instance's claims are free ÷ lease (s)",
        [resumed.waited for resumed in finished],
        [LEASE] * len(taken),
    )


def _killed_and_resumed(lab: Lab, rows: int, outputs: Outputs) -> Resumed:
    with lab.place("killed") as place:
        _killed(lab, place, rows)
        waited, before = _left(place)
        lab.wake()
        reports: list[ps.Report] = []
        seconds = timed(
            lambda: reports.append(
                penstock(
                    lab.spark,
                    place,
                    lab.trades(),
                    PIPELINE,
                    rows=rows,
                    checkpoint=ps.EveryStage(),
                    lease_ttl=LEASE,
                )
            )
        )
        outputs.add("resumed", output(lab.spark, place, PIPELINE))
        with ps.open_store(place.store) as store:
            proof = ps.verify(store, PIPELINE.name)
        if not proof.ok:
            raise RuntimeError(f"the resumed run is not exact: {proof}")
    touched = {view.range for view in before}
    redone = [event for event in reports[0].events if event.kind == "stage" and event.partition in touched]
    return Resumed(
        seconds,
        waited,
        sum(event.partition.rows for event in redone),
        sum(_unavoidable(view) for view in before if view.state is PartitionState.CLAIMED),
    )


def _killed(lab: Lab, place: Place, rows: int) -> None:
    """Run in another process until about 80 % are acked, when it is killed in the middle of the rest."""
    job = Job(str(place.path), str(lab.trades()), rows, checkpoints=True, lease_ttl=LEASE)
    done = child.run(job, failpoints=f"ack.before=kill@{ACKED + 1}")
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(
            f"the instance ended with {done.returncode}, not by SIGKILL: {done.stderr[-3000:]}"
        )


def _left(place: Place) -> tuple[float, list[PartitionView]]:
    """The partitions that the dead instance had touched, once its lease is over; seconds until then."""
    began = time.monotonic()
    with ps.open_store(place.store) as store:
        board = runs.boards(store, runs.load(store, PIPELINE.name))[0]
        while any(view.alive for view in board.partitions({PartitionState.CLAIMED}, touched=True)):
            time.sleep(0.05)
        waited = time.monotonic() - began
        return waited, list(board.partitions(touched=True))


def _unavoidable(view: PartitionView) -> int:
    done = max((ref.stage + 1 for ref in view.checkpoints), default=0)
    return view.range.rows * (len(PIPELINE.stages) - done)
