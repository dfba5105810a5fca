"""Sinks whose files are in a bucket, of a real S3 server."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from penstock.errors import StaleToken
from penstock.sinks.delta import sink as delta
from penstock.sinks.delta.sink import DeltaSink
from penstock.sinks.parquet import sink as parquet
from penstock.sinks.parquet.sink import ParquetSink
from penstock.sinks.parquet.table import StreamTable
from penstock.storage import Storage
from penstock.store import Store
from servers.seaweed import Seaweed
from tests.sinks.support import Bench, bench, crash_at, number, plain, sales

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bucket(s3: Seaweed, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return f"s3://{s3.bucket}/{secrets.token_hex(4)}"


def test_parquet(
    bucket: str, store: Store, storage: Storage, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = bench(store, storage, spark, "update")
    sink = ParquetSink(bucket)
    writer = output.open(sink, 1)
    writer.write(output.frame([(1, "a", 1), (2, "b", None)]), number(0))
    with crash_at(monkeypatch, parquet, "sink.parquet.manifest"):
        writer.write(output.frame([(2, "c", 5)]), number(1))
    later = output.open(sink, 2)
    with pytest.raises(StaleToken):
        writer.write(output.frame([(2, "c", 5)]), number(1))
    later.write(output.frame([(2, "c", 5)]), number(1))
    later.write(output.frame([(2, "c", 5)]), number(1))
    table = StreamTable(store, storage, "sales", "s1", "out")
    assert plain(table.frame(spark).collect()) == [(1, "a", 1), (2, "c", 5)]
    assert plain(table.frame(spark, epoch=1).collect()) == [(1, "a", 1), (2, "b", None)]
    assert plain(table.frame(spark, epoch=0).collect()) == []
    table.sweep()
    files = [path for path, _ in Storage(bucket).list() if path.endswith(".parquet")]
    assert sorted(files) == sorted(file.path for file in table.files())


def test_delta(bucket: str, output: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(bucket, partition_by=("city",))
    writer = output.open(sink, 1)
    writer.write(output.frame(sales(0)), number(0))
    with crash_at(monkeypatch, delta, "sink.delta.committed"):
        writer.write(output.frame(sales(1)), number(1))
    later = output.open(sink, 2)
    with pytest.raises(StaleToken):
        writer.write(output.frame(sales(2)), number(2))
    later.write(output.frame(sales(1)), number(1))
    later.write(output.frame(sales(2)), number(2))
    found = DeltaTable(bucket).to_pyarrow_table().select(["id", "city", "amount"]).to_pylist()
    assert plain(row.values() for row in found) == plain(sales(0) + sales(1) + sales(2))
