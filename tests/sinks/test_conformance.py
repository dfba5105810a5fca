"""The suite for sinks, on those that need no server."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from penstock.sinks import Batch, DeltaSink, FunctionSink, ParquetSink, StreamTable, Target
from penstock.sinks.base import Sink, Writer
from penstock.testing import SinkConformance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = Iterable[tuple[Any, ...]]


class TestParquet(SinkConformance):
    points = ("sink.parquet.files", "sink.parquet.manifest", "sink.parquet.committed")

    @pytest.fixture
    def sink(self) -> ParquetSink:
        return ParquetSink()

    def read(self, sink: Sink, target: Target) -> Rows:
        table = StreamTable(target.store, target.storage, target.stream, target.id, target.output)
        return [tuple(row) for row in table.frame(target.spark).collect()]


class TestDelta(SinkConformance):
    points = ("sink.delta.files", "sink.delta.committed")

    @pytest.fixture
    def sink(self, tmp_path: Path) -> DeltaSink:
        return DeltaSink(str(tmp_path / "lake"))

    def read(self, sink: Sink, target: Target) -> Rows:
        assert isinstance(sink, DeltaSink)
        found = DeltaTable(sink.location).to_pyarrow_table().select(["id", "city", "amount"])
        return [tuple(row.values()) for row in found.to_pylist()]


class TestFunction(SinkConformance):
    checks_schema = False

    @pytest.fixture
    def sink(self) -> FunctionSink:
        self.seen: list[tuple[Any, ...]] = []

        def keep(frame: DataFrame, batch: Batch) -> None:
            self.seen += [tuple(row) for row in frame.collect()]

        return FunctionSink(keep)

    def read(self, sink: Sink, target: Target) -> Rows:
        return self.seen


class Twice(Writer):
    """Remembers nothing."""

    def __init__(self, place: list[tuple[Any, ...]]) -> None:
        self.place = place

    def write(self, frame: DataFrame, batch: Batch) -> None:
        self.place += [tuple(row) for row in frame.collect()]


class Careless(Sink):
    """Says that it is exactly-once, and is not."""

    exactly_once = True
    modes = frozenset({"append"})

    def __init__(self) -> None:
        self.place: list[tuple[Any, ...]] = []

    def open(self, target: Target) -> Writer:
        return Twice(self.place)

    def describe(self) -> dict[str, str]:
        return {}


class Judge(SinkConformance):
    def read(self, sink: Sink, target: Target) -> Rows:
        assert isinstance(sink, Careless)
        return sink.place


FAILING = [
    "test_a_repeated_batch_is_there_once",
    "test_a_gap_is_refused",
    "test_an_earlier_owner_is_refused",
    "test_rows_of_another_table_are_refused",
]


@pytest.mark.parametrize("name", FAILING)
def test_a_sink_that_only_says_so_fails(name: str, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        getattr(Judge(), name)(Careless(), spark, tmp_path)


def test_a_sink_without_a_kind_fails() -> None:
    with pytest.raises(AssertionError, match="kind"):
        Judge().test_it_describes_itself(Careless())
