"""(b) The same documents in 8 and in 1,024 journals."""

from __future__ import annotations

from collections.abc import Iterator

from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result
from bench.shuffle import ours
from bench.shuffle.data import Spec

GOAL = 1.3
FEW, MANY = 8, 1024


def run(lab: Lab) -> Iterator[Result]:
    few, many = (Spec(lab.rows // 5, 300, count).write(lab.folder / "data") for count in (FEW, MANY))
    yield compare(
        f"(b) {few.spec.documents:,} documents in {MANY:,} ÷ in {FEW} journals (µs per document)",
        lambda: ours.cost(lab, many),
        lambda: ours.cost(lab, few),
        repeat=lab.repeat,
        goal=GOAL,
    )
