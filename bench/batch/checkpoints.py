"""(b) What a checkpoint after every stage costs over a script that writes and re-reads Parquet there."""

from __future__ import annotations

from collections.abc import Iterator

import penstock as ps
from bench import trades
from bench.batch.overhead import PARTITIONS
from bench.batch.running import Outputs, measured_penstock, measured_plain, partition_rows, plain_in_steps
from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result

GOAL = 1.0


def run(lab: Lab) -> Iterator[Result]:
    outputs = Outputs()
    rows = partition_rows(lab.rows, PARTITIONS)
    for pipeline, what in ((trades.frames, "DataFrame stages"), (trades.mixed, "Arrow stages in the middle")):
        yield compare(
            f"(b) EveryStage ÷ Parquet between the stages, {what} (s)",
            measured_penstock(lab, pipeline, outputs, rows=rows, checkpoint=ps.EveryStage()),
            measured_plain(lab, plain_in_steps, outputs),
            repeat=lab.repeat,
            goal=GOAL,
        )
