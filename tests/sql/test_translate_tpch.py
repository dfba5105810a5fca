"""TPC-H in PostgreSQL's dialect: what Spark answers to the translation is what DuckDB answers."""

from __future__ import annotations

import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from penstock.sql.parse.postgres import parse_one
from penstock.sql.translate import SparkRelation, translate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = sorted((Path(__file__).parent / "tpch").glob("q*.sql"))
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [program, "parquet", "-s", "0.01", "--output-dir", folder], check=True, capture_output=True
    )
    return folder


@pytest.fixture(scope="module")
def targets(spark: SparkSession, data: Path) -> dict[str, SparkRelation]:
    out = {}
    for name in TABLES:
        frame = spark.read.parquet(str(data / f"{name}.parquet"))
        frame.createOrReplaceTempView(f"tpch_{name}")
        columns = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        out[name] = SparkRelation(f"tpch_{name}", columns)
    return out


@pytest.fixture(scope="module")
def duck(data: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in TABLES:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{data / name}.parquet')")
    return connection


def test_there_are_all_queries() -> None:
    assert len(QUERIES) == 22


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_the_answer_is_that_of_duckdb(
    path: Path, spark: SparkSession, targets: dict[str, SparkRelation], duck: duckdb.DuckDBPyConnection
) -> None:
    sql = path.read_text(encoding="utf-8")
    said = translate(parse_one(sql), target=lambda name: targets.get(name[-1]))
    ours = [tuple(row) for row in spark.sql(said).collect()]
    theirs = duck.execute(sql).fetchall()
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert len(one) == len(other)
        assert all(same(a, b) for a, b in zip(one, other, strict=True)), (one, other)


def same(one: object, other: object) -> bool:
    if isinstance(one, Decimal | float) or isinstance(other, Decimal | float):
        if one is None or other is None:
            return one is other
        # DuckDB divides decimals as doubles.
        return math.isclose(float(str(one)), float(str(other)), rel_tol=1e-12)
    return one == other
