"""PySpark that a careless cut would make wrong: each trap has its cut, and gives what plain Spark gives."""

from __future__ import annotations

import inspect
import random
from typing import TYPE_CHECKING

import pytest

from tests.batch.exchange.both import Both, Case, cuts_of, phases_of, quick
from tests.batch.exchange.random_rows import TABLES, make_rows
from tests.batch.exchange.traps import TRAPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Both:
    rng = random.Random(17)
    rows = {name: make_rows(TABLES[name], count, rng) for name, count in (("a", 90), ("b", 60), ("c", 40))}
    return Both(spark, tmp_path_factory.mktemp("traps"), rng, rows)


def cases() -> list[Case]:
    found = []
    for name, (_, function) in TRAPS.items():
        reads = {table: list(TABLES[table].__fields__) for table in inspect.signature(function).parameters}
        found.append(Case(name, function, reads, name))
    return found


@pytest.fixture(scope="module")
def cuts(spark: SparkSession, both: Both) -> dict[str, str]:
    return cuts_of(phases_of(spark, both.pipeline("traps", cases())))


@pytest.fixture(scope="module")
def wrong(spark: SparkSession, both: Both) -> dict[str, str]:
    with quick(spark):
        return both.compare(both.pipeline("traps", cases()), cases())


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap(cuts: dict[str, str], wrong: dict[str, str], name: str) -> None:
    assert cuts[name] == TRAPS[name][0]
    assert name not in wrong, wrong[name]
