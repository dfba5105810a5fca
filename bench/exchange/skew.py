"""(d) What one key with 30 % of the rows costs over keys with ten rows each."""

from __future__ import annotations

from collections.abc import Iterator

from bench.batch.running import Outputs
from bench.exchange import running
from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result

GOAL = 1.5


def run(lab: Lab) -> Iterator[Result]:
    # The accounts are few enough to be given whole to each claim, where nothing would be exchanged.
    options = {**running.usual(lab), "whole_bytes": 0}
    for what, step in (("group-by", running.grouped), ("join", running.joined)):
        yield compare(
            f"(d) {what}, one key with 30 % of the rows ÷ none (s)",
            running.measured(lab, step(lab, hot=True), Outputs(), **options),
            running.measured(lab, step(lab), Outputs(), **options),
            repeat=lab.repeat,
            goal=GOAL,
        )
