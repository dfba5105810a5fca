"""Transforms of the batch side on a stream, unchanged."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from penstock.batch.pipeline import Resource, Transform, arrow_transform, transform
from penstock.errors import (
    DefinitionError,
    PenstockError,
    TransformFailed,
    UndeclaredRead,
    UndeclaredWrite,
    UnknownField,
)
from penstock.streams.api.stream import Stream
from penstock.types.tables import Table, derived
from tests.streams.flow.support import Clicks, Feed, Nowhere, Source, at, click

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = [[click("ann", "/a", 0, 2), click("bob", "/b", 1, None)], [click("ann", "/c", 25, 4)]]

factor = Resource("factor", load=lambda: 2)


class Others(Table):
    name: str


class Words(Table):
    word: str
    at: datetime


class WordCounts(Table):
    word: str
    begin: datetime
    times: int


class Stamped(Table):
    user: str
    seconds: int
    at: datetime = derived()
    doubled: int = derived()


@arrow_transform(reads=[Clicks.price, factor], writes=Clicks.double)
def double(clicks: pa.RecordBatch, factor: int) -> pa.RecordBatch:
    return clicks.append_column("double", pc.multiply(clicks["price"], factor))


@transform(reads=Clicks.price, drops=Clicks)
def priced(clicks: DataFrame) -> DataFrame:
    return clicks.where("price is not null")


@transform(reads=Clicks.double, writes=Clicks.double)
def increase(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("double", F.col("double") + 1)


@arrow_transform(reads=[Clicks.page, Clicks.at], writes=Words)
def words(clicks: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"word": clicks["page"], "at": clicks["at"]})


@arrow_transform(reads=[Clicks.page, Clicks.at], writes=Words)
def old_words(clicks: pa.RecordBatch) -> pa.RecordBatch:
    times = pa.array([at(-1)] * clicks.num_rows, clicks["at"].type)
    return pa.record_batch({"word": clicks["page"], "at": times})


@transform(reads=Clicks.page, writes=Clicks.double)
def reads_more(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("double", F.col("price"))


@transform(reads=Clicks.page, writes=Clicks.double)
def writes_more(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("double", F.lit(1)).withColumn("page", F.lit("/"))


@transform(reads=[Clicks.page, Others.name], writes=Clicks.double)
def touches_others(clicks: DataFrame, others: DataFrame) -> DataFrame:
    return clicks


@transform(reads=Stamped.seconds, writes=Stamped.at)
def stamps(stamped: DataFrame) -> DataFrame:
    return stamped.withColumn("at", F.timestamp_seconds("seconds"))


def test_transforms_write_read_and_drop_as_they_do_in_a_run(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    clicks = stream.source("clicks", Source()).transform(priced).transform(double).transform(increase)
    output = stream.output("clicks", clicks, Nowhere())
    found = feed.add("clicks", *BATCHES).run(streaming, output)
    assert [tuple(row.values()) for row in found.rows] == [
        ("ann", "/a", 2, at(0), 5),
        ("ann", "/c", 4, at(25), 9),
    ]


def test_a_table_that_a_transform_creates_keeps_event_time(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 5)
    counts = clicks.transform(priced).transform(words).key_by("word").tumbling(10)
    output = stream.output("words", counts.count(to=WordCounts, start="begin"), Nowhere())
    found = feed.add("clicks", *BATCHES).run(streaming, output)
    assert found.tuples("word", "begin", "times") == [("/a", at(0), 1), ("/c", at(20), 1)]


def test_a_transform_may_not_make_rows_older(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 5)
    output = stream.output("words", clicks.transform(old_words), Nowhere())
    with pytest.raises(TransformFailed, match=r"transform\(old_words\) makes a row of 2025-12-31"):
        feed.add("clicks", *BATCHES).run(streaming, output)


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (reads_more, UndeclaredRead, "reads clicks.price, which it does not declare"),
        (writes_more, UndeclaredWrite, "changes clicks.page"),
    ],
)
def test_declarations_are_checked_before_any_row(
    streaming: SparkSession,
    stream: Stream,
    feed: Feed,
    wrong: Transform,
    kind: type[PenstockError],
    words: str,
) -> None:
    output = stream.output("clicks", stream.source("clicks", Source()).transform(wrong), Nowhere())
    feed.add("clicks", [])
    with pytest.raises(kind, match=words):
        output.frame(streaming, feed.reading(streaming))


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (increase, UnknownField, "reads clicks.double, which nothing has written yet"),
        (
            touches_others,
            DefinitionError,
            r"test_transforms.py:\d+: transform\(touches_others\) touches others",
        ),
        (len, DefinitionError, "is given <built-in function len>"),
    ],
)
def test_a_transform_must_fit_the_rows(
    stream: Stream, wrong: Any, kind: type[PenstockError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        stream.source("clicks", Source()).transform(wrong)


def test_what_a_transform_writes_can_be_used_after_it(stream: Stream) -> None:
    clicks = stream.source("clicks", Source())
    with pytest.raises(UnknownField, match=r"names clicks.double, which nothing has written yet"):
        clicks.key_by(Clicks.double)
    assert clicks.transform(double).key_by(Clicks.double).keys == ("double",)
    assert clicks.transform(double).transform(increase).shape.fields[-1] == "double"


def test_a_transform_that_writes_the_time_ends_event_time(stream: Stream) -> None:
    rows = stream.source("stamped", Source(Stamped)).assign_timestamps(
        Stamped.at, 5, extract=lambda batch: batch["seconds"]
    )
    assert rows.shape.fields == ("user", "seconds", "at") and rows.shape.time == "at"
    assert rows.transform(stamps).shape.time is None
