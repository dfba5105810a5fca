"""(a) From bytes of journals to ordered, committed queue files, beside plain Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result
from bench.shuffle import ours, plain
from bench.shuffle.data import Spec

GOAL = 1.25
"""At least 0.8 of plain Spark's documents per second."""
JOURNALS = 8


def specs(rows: int) -> tuple[Spec, ...]:
    """Of ten million rows: two million short documents, half a million long ones, short ones packed."""
    short, long = Spec(rows // 5, 300, JOURNALS), Spec(rows // 20, 1000, JOURNALS)
    return short, long, replace(short, extension=".gz")


def run(lab: Lab) -> Iterator[Result]:
    for spec in specs(lab.rows):
        made = spec.write(lab.folder / "data")
        packed = ", gzip" if spec.extension == ".gz" else ""
        yield compare(
            f"(a) {spec.documents:,} documents of {spec.size:,} bytes{packed} ÷ plain Spark (µs each)",
            partial(ours.cost, lab, made),
            partial(plain.cost, lab, made),
            repeat=lab.repeat,
            goal=GOAL,
        )
