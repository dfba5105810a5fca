"""(a) What a run costs over reading, transforming and writing with plain PySpark."""

from __future__ import annotations

from collections.abc import Iterator

import penstock as ps
from bench import trades
from bench.batch.running import (
    Outputs,
    measured_penstock,
    measured_plain,
    partition_rows,
    plain,
    plain_with_arrow,
)
from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result

GOAL = 1.10
SMALL_ROWS = 1_000_000
PARTITIONS = 2


def run(lab: Lab) -> Iterator[Result]:
    outputs = Outputs()
    rows = partition_rows(lab.rows, PARTITIONS)
    for pipeline, peer, what in (
        (trades.frames, plain, "DataFrame stages"),
        (trades.mixed, plain_with_arrow, "Arrow stages in the middle"),
    ):
        yield compare(
            f"(a) run without checkpoints ÷ plain script, {what} (s)",
            measured_penstock(lab, pipeline, outputs, rows=rows, checkpoint=ps.Never()),
            measured_plain(lab, peer, outputs),
            repeat=lab.repeat,
            goal=GOAL,
        )
    yield compare(
        f"(a) the same in partitions of {SMALL_ROWS:,} rows, DataFrame stages (s)",
        measured_penstock(lab, trades.frames, outputs, rows=SMALL_ROWS, checkpoint=ps.Never()),
        measured_plain(lab, plain, outputs),
        repeat=lab.repeat,
    )
