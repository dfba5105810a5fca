from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.server.relations.files import footers
from penstock.server.relations.spec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = pa.table(
    {
        "flag": pa.array([True]),
        "tiny": pa.array([1], pa.int8()),
        "small": pa.array([1], pa.int16()),
        "n": pa.array([1], pa.int32()),
        "big": pa.array([1], pa.int64()),
        "real": pa.array([1.5], pa.float32()),
        "double": pa.array([1.5]),
        "amount": pa.array([Decimal("1.50")], pa.decimal128(12, 2)),
        "text": pa.array(["a"]),
        "long text": pa.array(["a"], pa.large_string()),
        "viewed": pa.array(["a"], pa.string_view()),
        "bytes": pa.array([b"a"]),
        "day": pa.array([0], pa.date32()),
        "at": pa.array([0], pa.timestamp("us", "UTC")),
        "local": pa.array([0], pa.timestamp("us")),
        "milli": pa.array([0], pa.timestamp("ms", "UTC")),
    }
)


def spec(path: Path, **options: str) -> TableSpec:
    return TableSpec(path=str(path), format="parquet", options=options)


def test_the_columns_are_those_that_spark_finds(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(PLAIN, tmp_path / "plain.parquet")
    assert footers.columns(spec(tmp_path / "plain.parquet")) == spark.read.parquet(str(tmp_path)).schema


def test_files_of_spark_tell_their_columns_themselves(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT 1 AS n, array(1) AS list, named_struct('a', 'b') AS pair, INTERVAL '1' YEAR AS age"
    )
    frame.coalesce(1).write.parquet(str(tmp_path / "own"))
    assert footers.columns(spec(tmp_path / "own")) == spark.read.parquet(str(tmp_path / "own")).schema


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1], pa.uint32()),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([0], pa.timestamp("ns")),
        pa.array([0], pa.time64("us")),
    ],
    ids=lambda array: str(array.type),
)
def test_what_spark_may_see_otherwise_is_left_to_it(tmp_path: Path, array: pa.Array) -> None:
    pq.write_table(pa.table({"x": array}), tmp_path / "x.parquet")
    assert footers.columns(spec(tmp_path / "x.parquet")) is None


def test_times_as_they_were_written_once_are_left_to_spark(tmp_path: Path) -> None:
    old = pa.table({"x": pa.array([0], pa.timestamp("us"))})
    pq.write_table(old, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    assert footers.columns(spec(tmp_path / "x.parquet")) is None


def test_a_broken_file_is_left_to_spark_which_tells_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no, not really PAR1")
    assert footers.columns(spec(tmp_path / "x.parquet")) is None
    assert footers.columns(spec(tmp_path / "x.parquet", mergeSchema="true")) is None
