"""(a) Steps that bring rows together: beside plain Spark in one go, and with Parquet before the step."""

from __future__ import annotations

from collections.abc import Iterator

from bench.batch.running import Outputs
from bench.exchange import running
from bench.lab import Lab
from bench.results import Result


def run(lab: Lab) -> Iterator[Result]:
    for what, step, of_steps, of_once in (
        ("group-by", running.grouped(lab), 0.8, 1.2),
        ("window", running.windowed(lab), 1.0, 1.4),
        ("join of orders and lineitem", running.tpch(lab), 1.0, 1.6),
    ):
        outputs = Outputs()
        sides = [
            running.measured(lab, step, outputs, **running.usual(lab)),
            running.measured_plain(lab, running.in_steps, step, outputs),
            running.measured_plain(lab, running.at_once, step, outputs),
        ]
        ours, steps, once = running.in_turns(f"(a) {what}", lab, sides)
        yield Result.of(f"(a) {what} ÷ plain script with Parquet before it (s)", ours, steps, of_steps)
        yield Result.of(f"(a) {what} ÷ plain script in one go (s)", ours, once, of_once)
