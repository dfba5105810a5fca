"""A key range is one task: Spark sees a single partition, and plans no shuffle of its own inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from penstock.spark.flow import Flow, Scan
from penstock.storage import Storage
from tests.batch.exchange.support import SCHEMA, batches, rows, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STEPS: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "group": lambda one, _: one.groupBy("key").agg(F.sum("number")),
    "distinct": lambda one, _: one.select("key").distinct(),
    "window": lambda one, _: one.withColumn(
        "n", F.row_number().over(Window.partitionBy("key").orderBy("number"))
    ),
    "sort": lambda one, _: one.orderBy("key", "number"),
    "pivot": lambda one, _: one.groupBy("key").pivot("number", [1, 2]).count(),
    "full join": lambda one, other: one.join(other, "key", "full"),
    "inner join": lambda one, other: one.join(other, "key"),
}


@pytest.mark.parametrize("step", STEPS)
def test_spark_moves_nothing(spark: SparkSession, tmp_path: Path, step: str) -> None:
    from penstock.batch.exchange import range_splits

    storage = Storage(tmp_path)
    found = [write(storage, f"{n}", batches(rows(500, first=500 * n))) for n in range(2)]

    def frame(name: str, hint: str | None) -> DataFrame:
        def cut(columns: object) -> list[range_splits.RangeSplit]:
            files = [file for each in found for file in each]
            return range_splits.cut(storage, files, 0, 64, list(columns))  # type: ignore[call-overload]

        schema = pa.schema([SCHEMA.field("key"), SCHEMA.field("number")])
        return Flow.scan(name, Scan(schema, cut, hint=hint)).frame(spark)

    hint = "shuffle_hash" if "join" in step else None
    made = STEPS[step](frame("one", hint), frame("other", hint))
    assert made.rdd.getNumPartitions() == 1
    plan = _physical(made)
    assert "Exchange" not in plan, plan
    assert made.count() > 0


def _physical(frame: DataFrame) -> str:
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as told:
        frame.explain()
    return told.getvalue()
