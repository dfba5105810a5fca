"""What the executors do: counting many files, and writing the rows of a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.batch import inputs
from penstock.batch.inputs import counting
from penstock.errors import BadInput
from tests.batch.inputs.support import Place, sample, save

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("extension", ["csv", "parquet"])
def test_executors_count_as_the_driver_does(
    spark: SparkSession, place: Place, extension: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(5):
        save(sample(20 * i + 1, 1000 * i), place.data / f"{i}.{extension}")
    here = place.register(place.data, "here")
    monkeypatch.setattr(counting, "_FEW_FOOTERS", 0)
    monkeypatch.setattr(counting, "_LITTLE_TEXT", 0)
    there = inputs.register(spark, place.store, place.storage, "there", place.data, partition_rows=10)
    assert there.digest == here.digest
    assert there.files == here.files
    assert place.partitions(there).equals(place.partitions(here))


def test_an_error_on_an_executor_arrives_whole(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_FEW_FOOTERS", 0)
    save(sample(3), place.data / "a.parquet")
    (place.data / "b.parquet").write_bytes(b"PAR1 or so")
    with pytest.raises(BadInput, match=r"b.parquet cannot be read.*\nnext: check that it is complete"):
        inputs.register(spark, place.store, place.storage, "x", place.data, partition_rows=10)


def test_a_dataframe_becomes_files_in_the_order_of_its_partitions(spark: SparkSession, place: Place) -> None:
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "id", "cast(id % 3 as string) as s", "timestamp_seconds(id) as t"
    )
    wanted = pa.schema([("id", pa.int64()), ("s", pa.string()), ("t", pa.timestamp("us", "UTC"))])
    made = place.register(frame, rows=300, table_schema=wanted)
    assert made.format == "arrow"
    table = place.partitions(made)
    assert table["id"].to_pylist() == list(range(1000))
    assert table.schema.equals(wanted)
    assert place.register(frame, rows=300, table_schema=wanted) == made
    data = {path.split("/")[2] for path, _ in place.storage.list("inputs/trades") if "/data-" in path}
    assert len(data) == 1
    none = place.register(frame.where("id < 0"), "none", table_schema=wanted)
    assert (none.total_rows, none.schema) == (0, wanted)


def test_splits_are_read_in_workers(spark: SparkSession, place: Place) -> None:
    made = place.register(save(sample(500), place.data / "x.csv"))
    splits = inputs.splits(made, place.storage, made.partition(7), 2, columns=["id"])

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from splits[number].batches()

    rows = spark.range(0, len(splits), 1, len(splits)).mapInArrow(read, "id long").collect()
    assert sorted(row.id for row in rows) == list(range(70, 80))


def test_a_folder_that_spark_wrote(spark: SparkSession, place: Place) -> None:
    frame = spark.range(0, 100, 1, 3).selectExpr(
        "id", "timestamp'9999-12-31 00:00:00Z' as never", "array(named_struct('x', id)) as l"
    )
    frame.write.parquet(str(place.data / "out"))
    nested = pa.list_(pa.field("element", pa.struct([("x", pa.int64())])))
    wanted = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("never", pa.timestamp("us", "UTC")), ("l", nested)]
    )
    made = place.register(place.data / "out", rows=17, table_schema=wanted)
    rows = place.partitions(made).to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(100))
    assert {row["never"].isoformat() for row in rows} == {"9999-12-31T00:00:00+00:00"}
    assert all(row["l"] == [{"x": row["id"]}] for row in rows)
