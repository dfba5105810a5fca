"""Committed epochs as a table, at any retained epoch."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.errors import CorruptFile, EpochGone, UsageError
from penstock.spark.faults import decode
from penstock.streams.log import schemas
from penstock.streams.log.batch_table import Pin, cut_table, pinned, read_table
from penstock.streams.log.readers import ReaderPositions
from penstock.streams.log.retention import LogRetention
from penstock.streams.log.spark_source import EpochSource
from penstock.streams.place import Place
from tests.streams.log.support import NOON, SCHEMA, Made

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = pa.schema([SCHEMA.field("key")])
LATER = NOON.timestamp() + 100 * 3600


def keys(frame: DataFrame) -> list[int]:
    return sorted(row["key"] for row in frame.collect())


def table(
    spark: SparkSession, made: Made, epoch: int | Pin | None = None, *, late: bool = False
) -> DataFrame:
    return read_table(spark, made.store, made.storage, made.layout, "numbers", epoch, late, schema=KEY)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_table_as_of_an_epoch(spark: SparkSession, made: Made, compacted: bool) -> None:
    made.commit(3)
    made.abort(2)
    made.keys -= 2
    made.commit(3, late=1)
    made.commit()
    if compacted:
        made.log.compact(force=True)
    made.commit(3)
    made.open()
    assert keys(table(spark, made)) == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert keys(table(spark, made, 4)) == keys(table(spark, made, 3)) == [0, 1, 2, 3, 4, 5]
    assert keys(table(spark, made, 2)) == keys(table(spark, made, 1)) == [0, 1, 2]
    assert keys(table(spark, made, 0)) == []
    assert keys(table(spark, made, late=True)) == [6]


def test_all_columns_come_as_they_were(spark: SparkSession, made: Made) -> None:
    made.commit(2)
    frame = read_table(spark, made.store, made.storage, made.layout, "numbers", schema=SCHEMA)
    made.keys = 0
    assert frame.toArrow().cast(SCHEMA) == made.rows(2)


def test_epochs_that_are_not_there(spark: SparkSession, made: Made) -> None:
    for _ in range(4):
        made.commit(1)
    with pytest.raises(UsageError, match="no epoch 5") as caught:
        table(spark, made, 5)
    assert "newest committed epoch is 4" in str(caught.value)
    ReaderPositions(made.log).begin("copy", 2)
    LogRetention(made.log, age=1.0, size=1 << 30, clock=lambda: LATER).tidy()
    assert keys(table(spark, made, 3)) == [2]
    with pytest.raises(EpochGone, match="epoch 2 is not retained"):
        table(spark, made, 2)


def test_a_pinned_epoch_stays_while_it_is_read(spark: SparkSession, made: Made) -> None:
    for _ in range(3):
        made.commit(2)
    keeper = LogRetention(made.log, age=1.0, size=1 << 30, clock=lambda: LATER)
    with pinned(made.store, made.storage, made.layout, 2) as pin:
        frame = table(spark, made, pin)
        made.commit(2)
        keeper.tidy()
        assert made.log.floor == 5
        assert (pin.epoch, keys(frame)) == (2, [0, 1, 2, 3])
        assert keys(table(spark, made, pin)) == [0, 1, 2, 3], "also what is planned after it was let go"
    keeper.tidy()
    assert not made.files(made.layout.rows)


def test_a_large_log_is_cut_into_few_slices(made: Made) -> None:
    for _ in range(300):
        made.bare(1, size=1 << 20)
        made.log.compact()
    slices = cut_table(made.log, 290, 8)
    assert 8 <= len(slices) <= 16
    assert all(before.last + 1 == after.first for before, after in pairwise(slices))
    assert (slices[0].first, slices[-1].last, sum(each.rows for each in slices)) == (1, 290, 290)
    assert sum(len(each.epochs) for each in slices) < 64


def test_the_source_reads_tables_too(spark: SparkSession, made: Made, place: Place) -> None:
    for _ in range(3):
        made.commit(2)
    spark.dataSource.register(EpochSource)
    reader = spark.read.format("penstock").option("place", place.encode()).option("source", "numbers")
    reader = reader.option("schema", "key bigint")
    frame = reader.load()
    assert keys(frame) == [0, 1, 2, 3, 4, 5]
    at = reader.option("atEpoch", "2").option("holdFor", "1")
    assert keys(at.load()) == [0, 1, 2, 3]
    json = at.option("schema", schemas.encode(SCHEMA)).option("columns", "word,key")
    assert json.load().columns == ["key", "word"]
    with pytest.raises(Exception) as caught:  # noqa: PT011
        reader.option("atEpoch", "9").load().collect()
    assert isinstance(decode(caught.value), UsageError)
    # Nobody says when a query ends: the files that it needs are held for a while.
    LogRetention(made.log, age=1.0, size=1 << 30, clock=lambda: LATER).tidy()
    assert made.log.floor == 4
    assert len(made.files(made.layout.rows)) == 3


def test_a_broken_file_is_named(spark: SparkSession, made: Made) -> None:
    made.commit(10)
    (path,) = made.files(made.layout.rows)
    made.storage.write(path, b"ARROW1")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        table(spark, made).collect()
    failure = decode(caught.value)
    assert isinstance(failure, CorruptFile)
    assert path in failure.what
