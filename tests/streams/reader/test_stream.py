"""Committed epochs as a Spark stream."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.errors import CorruptFile, EpochGone, PenstockError, StreamError, UsageError
from penstock.spark.faults import decode
from penstock.streams.log.readers import ReaderPositions
from penstock.streams.log.retention import LogRetention
from penstock.streams.log.schemas import COUNT, END_OF_TIME
from penstock.streams.log.source_options import ReadOptions
from penstock.streams.log.spark_source import EpochStreamReader, read_stream
from penstock.streams.model import RowFile
from penstock.streams.place import Place
from penstock.types.spark import spark_schema
from tests.control.cluster.support import until
from tests.streams.log.support import NOON, SCHEMA, Made

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

LATER = NOON.timestamp() + 100 * 3600


class Query:
    """Runs a query over and over from one checkpoint, each time over what there is, and keeps its batches."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self.batches: list[list[Row]] = []

    def run(self, frame: DataFrame, mode: str = "append") -> list[list[Row]]:
        """The batches of one more round."""
        before = len(self.batches)
        query = (
            frame.writeStream.outputMode(mode)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .foreachBatch(lambda batch, _: self.batches.append(batch.collect()))
            .start()
        )
        try:
            query.awaitTermination(60)
        finally:
            query.stop()
        return self.batches[before:]

    def failure(self, frame: DataFrame) -> PenstockError:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            self.run(frame)
        return decode(caught.value)


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "checkpoint")


@pytest.fixture
def read(spark: SparkSession, place: Place) -> Callable[..., DataFrame]:
    return lambda **options: read_stream(spark, place, "numbers", schema=SCHEMA, **options)


def keys(batches: list[list[Row]]) -> list[int]:
    return sorted(row["key"] for batch in batches for row in batch)


def test_only_committed_epochs_are_seen_and_each_once(
    made: Made, query: Query, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    made.commit(10)
    made.abort(5)
    made.commit(2, late=3)
    made.commit(1, publish=False)
    ranges = tmp_path / "range.json"
    frame = read(reader="copy", ranges=str(ranges))
    expected = [*range(10), 15, 16]
    found = query.run(frame)
    assert keys(found) == expected
    assert found[0][0].asDict() == {"key": 0, "word": "w0", "at": NOON.replace(tzinfo=None)}
    assert json.loads(ranges.read_text()) == {"start": 0, "end": 3, "final": False}
    assert keys(query.run(frame)) == []


def test_a_restarted_query_goes_on_and_what_it_needs_is_kept(
    made: Made, query: Query, read: Callable[..., DataFrame]
) -> None:
    keeper = LogRetention(made.log, age=1.0, size=1 << 30, clock=lambda: LATER)
    for _ in range(3):
        made.commit(10)
    frame = read(reader="copy", columns=["key"])
    assert keys(query.run(frame)) == list(range(30))
    # Spark says that a batch is done when it begins the next one.
    (position,) = ReaderPositions(made.log).list()
    assert (position.reader, position.epoch) == ("copy", 0)
    made.commit(10)
    keeper.tidy()
    assert keys(query.run(frame)) == list(range(30, 40))
    keeper.tidy()
    assert made.log.floor == 4
    made.commit()
    made.commit(10)
    assert query.run(frame)[0][0].asDict() == {"key": 40}
    assert keys(query.batches) == list(range(50))


def test_a_reader_without_a_name_may_come_too_late(
    made: Made, query: Query, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    made.commit(10)
    query.run(read())
    for _ in range(3):
        made.commit(10)
    LogRetention(made.log, age=1.0, size=1 << 30, clock=lambda: LATER).tidy()
    made.commit(10)
    failure = query.failure(read())
    assert isinstance(failure, EpochGone)
    assert "epoch 2 is not retained any more; the oldest that is retained is 5" in failure.what
    assert "begin at epoch 5" in str(failure.hint)
    assert keys(Query(tmp_path / "another").run(read())) == list(range(40, 50))


def test_a_reader_that_is_new_says_so_where_epochs_are_gone(
    made: Made, query: Query, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    for _ in range(3):
        made.commit(10)
    LogRetention(made.log, age=1.0, size=1 << 30, clock=lambda: LATER).tidy()
    made.commit(10)
    failure = query.failure(read(reader="mine"))
    assert isinstance(failure, EpochGone)
    assert "fromOldest" in str(failure.hint)
    assert keys(query.run(read(reader="mine", from_oldest=True))) == list(range(30, 40))


def test_an_output_begins_where_its_position_was_reserved(
    made: Made, query: Query, read: Callable[..., DataFrame]
) -> None:
    holds = ReaderPositions(made.log)
    holds.reserve({"sums.numbers": "sums"})
    for _ in range(3):
        made.commit(10)
    LogRetention(made.log, age=1.0, size=1 << 30, clock=lambda: LATER).tidy()
    assert made.log.floor == 1, "it has not begun, and needs everything"
    assert keys(query.run(read(reader="sums.numbers", output="sums"))) == list(range(30))


def test_equal_rows_may_come_counted(made: Made, query: Query, read: Callable[..., DataFrame]) -> None:
    made.commit(10)
    made.commit(5)
    frame = read(counted=("word",))
    found = query.run(frame.groupBy("word").agg(F.sum(COUNT).alias("rows")), "update")
    assert frame.columns == ["word", COUNT]
    assert {row["word"]: row["rows"] for batch in found for row in batch} == {
        f"w{n}": count for n, count in Counter(n % 5 for n in range(15)).items()
    }


def test_a_backlog_is_taken_in_bounded_steps(
    made: Made, query: Query, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    for rows in (5, 5, 0, 5, 50, 5):
        made.commit(rows)
    by_rows = query.run(read(rows=12))
    assert [len(batch) for batch in by_rows] == [10, 5, 50, 5]
    by_epochs = Query(tmp_path / "another").run(read(epochs=2))
    assert [len(batch) for batch in by_epochs] == [10, 55, 5]
    assert keys(by_rows) == keys(by_epochs) == list(range(70))


def test_a_running_query_follows_commits(made: Made, read: Callable[..., DataFrame], tmp_path: Path) -> None:
    found: list[int] = []
    query = (
        read(reader="copy", wait=0.2)
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda batch, _: found.extend(row["key"] for row in batch.collect()))
        .start()
    )
    try:
        for count in (3, 6, 9):
            made.commit()
            made.commit(3)
            made.abort(1)
            made.keys -= 1
            until(lambda: len(found) >= count or query.exception(), "the rows arrive")  # noqa: B023
        assert (query.exception(), sorted(found)) == (None, list(range(9)))
        made.commit(1)
        until(lambda: ReaderPositions(made.log).list()[0].epoch >= 8, "the position follows")
    finally:
        query.stop()


def test_late_rows_are_a_stream_of_their_own(
    made: Made, query: Query, read: Callable[..., DataFrame]
) -> None:
    made.commit(3, late=2)
    made.commit(late=2)
    assert keys(query.run(read(late=True))) == [3, 4, 5, 6]


def test_several_files_and_sources_in_an_epoch(
    made: Made, query: Query, read: Callable[..., DataFrame], place: Place
) -> None:
    def files() -> Iterator[RowFile]:
        yield made.file(1, "numbers", 40_000, batch=100)
        yield made.file(1, "others", 7)
        yield made.file(1, "numbers", 60_000, batch=30_000)

    made.commit(files=list(files()))
    (batch,) = query.run(read(tasks=8).groupBy("word").count(), "update")
    assert {row["word"]: row["count"] for row in batch} == {f"w{n}": 20_000 for n in range(5)}


# the end


@pytest.mark.parametrize("rows_with_the_end", [0, 2])
def test_the_end_closes_what_is_open(
    made: Made, query: Query, read: Callable[..., DataFrame], rows_with_the_end: int, tmp_path: Path
) -> None:
    ranges = tmp_path / "range.json"
    frame = read(event_time="at", ranges=str(ranges)).withWatermark("at", "1 minute")
    windows = frame.where(F.col("at") < F.lit(END_OF_TIME)).groupBy(F.window("at", "10 seconds")).count()
    made.commit(25)
    assert not any(query.run(windows))
    made.commit(rows_with_the_end, ended=True)
    counts = [row["count"] for batch in query.run(windows) for row in batch]
    assert sorted(counts) == sorted([10, 10, 5 + rows_with_the_end])
    assert json.loads(ranges.read_text()) == {"start": 1, "end": 2, "final": True}
    assert not any(query.run(windows))


def test_without_event_time_there_is_no_row_for_the_end(
    made: Made, query: Query, read: Callable[..., DataFrame]
) -> None:
    made.commit(2)
    made.commit(ended=True)
    assert keys(query.run(read())) == [0, 1]


# what goes wrong


def test_a_missing_row_file_is_named(made: Made, query: Query, read: Callable[..., DataFrame]) -> None:
    made.commit(10)
    (path,) = made.files(made.layout.rows)
    made.storage.delete(path)
    failure = query.failure(read())
    assert isinstance(failure, CorruptFile)
    assert path in failure.what


def test_a_stream_that_went_back_is_noticed(made: Made, place: Place) -> None:
    """Its numbers will be used again, and the reader would skip them."""
    made.commit(1)
    reader = EpochStreamReader(ReadOptions(place, "numbers", wait=0.0), spark_schema(SCHEMA))
    try:
        with pytest.raises(Exception, match="has come to epoch 1, but its reader was at 7") as caught:
            reader.latestOffset({"epoch": 7}, reader.getDefaultReadLimit())
        assert isinstance(decode(caught.value), StreamError)
    finally:
        reader.stop()


def test_a_missing_portion_is_named(made: Made, query: Query, read: Callable[..., DataFrame]) -> None:
    made.commit(10)
    (path,) = made.files(made.layout.portions)
    made.storage.write(path, b"{}")
    failure = query.failure(read())
    assert isinstance(failure, CorruptFile)
    assert path in failure.what


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"event_time": "key"}, "names 'key', which is not a column of times"),
        ({"event_time": "at", "columns": ["key"]}, "names 'at', which is not a column of times"),
        ({"columns": ["wrong"]}, "there is no column wrong"),
    ],
)
def test_wrong_options_are_told(
    made: Made, query: Query, read: Callable[..., DataFrame], options: dict[str, Any], message: str
) -> None:
    made.commit(1)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        query.run(read(**options))
    failure = decode(caught.value)
    assert isinstance(failure, UsageError)
    assert message in failure.what
