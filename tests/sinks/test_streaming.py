"""Sinks under Spark's own streaming: what a batch that comes again must not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.sinks.base import Batch, Writer
from penstock.sinks.parquet.sink import ParquetSink
from penstock.sinks.parquet.table import StreamTable
from penstock.storage import Storage
from penstock.store import Store
from penstock.types.tables import Table
from tests.sinks.support import Bench, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Count(Table):
    begin: int
    rows: int


def run(spark: SparkSession, place: Path, writer: Writer, fail_after: int | None) -> None:
    """Count rows by windows of ten seconds, of all there is; end after the sink has taken a batch."""
    from pyspark.sql import functions as F

    def take(frame: DataFrame, number: int) -> None:
        writer.write(frame, Batch(number, number + 1))
        if number == fail_after:
            raise RuntimeError("the driver dies here")

    events = spark.readStream.schema("at timestamp").option("maxFilesPerTrigger", 1).json(str(place / "in"))
    window = F.window("at", "10 seconds")
    counts = events.withWatermark("at", "0 seconds").groupBy(window).agg(F.count("*").alias("rows"))
    query = (
        counts.select(F.unix_timestamp("window.start").alias("begin"), "rows")
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(take)
        .start()
    )
    query.awaitTermination()


def events(place: Path, name: str, *seconds: int) -> None:
    (place / "in").mkdir(exist_ok=True)
    lines = [json.dumps({"at": f"1970-01-01T00:00:{second:02}Z"}) for second in seconds]
    (place / "in" / f"{name}.json").write_text("\n".join(lines))


def test_windows_that_a_repeated_batch_closes_come_out(
    output: Bench, store: Store, storage: Storage, spark: SparkSession, tmp_path: Path
) -> None:
    """The watermark and the state of the next batch come from the rows of this one, which is in the sink."""
    events(tmp_path, "a", 1, 2)
    writer = output.open(ParquetSink(), 1, table=Count)
    run(spark, tmp_path, writer, None)
    events(tmp_path, "b", 3, 35)
    with pytest.raises(Exception, match="the driver dies here"):
        run(spark, tmp_path, writer, 2)
    run(spark, tmp_path, output.open(ParquetSink(), 2, table=Count), None)
    table = StreamTable(store, storage, "sales", "s1", "out")
    assert plain(table.frame(spark).collect()) == [(0, 3)]
