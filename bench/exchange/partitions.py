"""(c) What partitions cost: those of the default size over plain Spark, and small ones over large ones."""

from __future__ import annotations

from collections.abc import Iterator

import penstock as ps
from bench import data, trades
from bench.batch.running import Outputs, measured_penstock, measured_plain, partition_rows, plain
from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result

GOAL = 1.10
SMALL_GOAL = 3.0
LARGE = 4
SMALL_ROWS = 10_000


def run(lab: Lab) -> Iterator[Result]:
    outputs = Outputs()
    for files in (data.FILES, 1):
        source = data.trades(lab.folder / "data", lab.rows, files)
        yield compare(
            f"(c) default settings without checkpoints ÷ plain script, {files} files (s)",
            measured_penstock(lab, trades.frames, outputs, rows=None, checkpoint=ps.Never(), source=source),
            measured_plain(lab, plain, outputs, source=source),
            repeat=lab.repeat,
            goal=GOAL,
        )
    large = partition_rows(lab.rows, LARGE)
    yield compare(
        f"(c) {partition_rows(lab.rows, SMALL_ROWS):,} partitions of {SMALL_ROWS:,} rows ÷ {LARGE} (s)",
        measured_penstock(lab, trades.frames, outputs, rows=SMALL_ROWS, checkpoint=ps.Never()),
        measured_penstock(lab, trades.frames, outputs, rows=large, checkpoint=ps.Never()),
        repeat=lab.repeat,
        goal=SMALL_GOAL,
    )
