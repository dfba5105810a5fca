"""One engine over small tables, for all tests of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from penstock.server.engine.engine import SparkEngine
from tests.server.engine.standins import FileTables, FixedShadow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.server.relations import Tables
    from penstock.server.shadow import Shadow

PEOPLE = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int32()),
        "name": ["Ann", "Bob", None, "Dan"],
        "score": pa.array([1.5, 2.5, None, 4.0]),
        "team": ["a", "b", "a", "b"],
    }
)


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> FileTables:
    tables = FileTables(spark, tmp_path)
    tables.add("people", PEOPLE)
    return tables


@pytest.fixture
def shadow() -> FixedShadow:
    return FixedShadow()


@pytest.fixture
def engine(
    spark: SparkSession, tables: FileTables, shadow: FixedShadow, tmp_path: Path
) -> Iterator[SparkEngine]:
    engine = SparkEngine(
        spark, cast("Tables", tables), spool=str(tmp_path / "spool"), shadow=cast("Shadow", shadow)
    )
    yield engine
    engine.stop()
