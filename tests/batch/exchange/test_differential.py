"""Random PySpark, run as a pipeline whose rows are exchanged, gives what plain Spark gives in one job."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.batch.exchange.both import Both, cuts_of, phases_of, quick, random_rows
from tests.batch.exchange.random_queries import make_cases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOGETHER = 15
"""Cases in one pipeline."""
SEEDS = range(34)
"""510 cases."""


def compare(spark: SparkSession, path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng)
    both = Both(spark, path, rng, rows)
    cases = make_cases(rng, {name: max(1, len(table)) for name, table in rows.items()}, TOGETHER)
    pipeline = both.pipeline(f"seed-{seed}", cases)
    # The smallest input may be given whole.
    whole = rng.choice([0, 0, min(each.size for each in both.inputs.values())])
    # Few bytes make more key ranges.
    ranges = rng.choice([1 << 20, 1 << 20, 8 << 10])
    with quick(spark):
        wrong = both.compare(pipeline, cases, whole_bytes=whole, range_bytes=ranges)
    assert not wrong, f"seed {seed}: " + "\n".join(f"{name}: {how}" for name, how in wrong.items())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pipeline_gives_what_spark_gives(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    compare(spark, tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1334))
def test_five_thousand_more(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    compare(spark, tmp_path, seed)


def test_most_cases_are_cut(spark: SparkSession, tmp_path: Path) -> None:
    """Or else the others would say little."""
    found = Counter[str]()
    for seed in range(5):
        rng = random.Random(seed)
        cases = make_cases(rng, {"a": 50, "b": 50, "c": 10}, TOGETHER)
        both = Both(spark, tmp_path / str(seed), rng, random_rows(rng))
        found.update(cuts_of(phases_of(spark, both.pipeline(f"cut-{seed}", cases))).values())
    assert found["keys"] > found.total() / 3
    assert found["everything"] < found.total() / 2
