"""Streams of the tests of operators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.streams.api.stream import Stream
from penstock.streams.operators.query import spark_settings
from tests.streams.flow.support import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def stream() -> Stream:
    return Stream("clicks")


@pytest.fixture
def feed(stream: Stream, tmp_path: Path) -> Feed:
    return Feed(tmp_path, stream)


@pytest.fixture
def streaming(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the settings of queries, but with one state partition: there are few rows."""
    settings = spark_settings(local_disk=True) | {"spark.sql.shuffle.partitions": "1"}
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield spark
    for key, old in before.items():
        if old is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, old)
