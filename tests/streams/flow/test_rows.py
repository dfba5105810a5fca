"""Operators that look at one row at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from penstock.errors import (
    DefinitionError,
    NullInField,
    PenstockError,
    TransformFailed,
    TransientError,
    TypeMismatch,
    UnknownField,
)
from penstock.streams.stream import Rows, Stream
from penstock.tables import Table
from tests.streams.flow.support import Clicks, Feed, Nowhere, Source, click

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = [click("ann", "/a", 1, 10), click("bob", "/b", 2, None), click("cid", "/c", 3, 30)]


class Words(Table):
    word: str
    length: int | None


class Copies(Table):
    user: str
    page: str
    price: int | None
    at: datetime


def as_word(row: dict[str, Any]) -> dict[str, Any]:
    return {"word": row["user"].upper(), "length": row["price"]}


def letters(row: dict[str, Any]) -> Any:
    for letter in row["word"]:
        yield {"word": letter}


def long_words(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.not_equal(batch["word"], "B"))


def ran(spark: SparkSession, feed: Feed, rows: Rows, *batches: list[dict[str, Any]]) -> Any:
    output = feed.stream.output("out", rows, Nowhere())
    feed.add("clicks", *(batches or [ROWS]))
    return feed.run(spark, output)


def test_functions_of_rows_and_batches_follow_each_other(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    rows = (
        stream.source("clicks", Source())
        .map(as_word, to=Words)
        .filter(lambda row: row["length"] and row["length"] < 30)
        .flat_map(letters, to=Words)
        .map_batches(long_words, to=Words)
    )
    assert ran(streaming, feed, rows).tuples("word", "length") == [("A", None), ("N", None), ("N", None)]


@pytest.mark.parametrize(
    "condition",
    ["price > 10", lambda: F.col("price") > 10, lambda row: None if row["price"] is None else row["price"] > 10],
    ids=["sql", "column", "row"],
)
def test_a_split_loses_no_row_and_null_is_no(
    streaming: SparkSession, stream: Stream, feed: Feed, condition: Any
) -> None:
    yes, no = stream.source("clicks", Source()).map(dict, to=Copies).split(condition)
    both = yes.map(lambda row: {**row, "page": "yes"}, to=Copies).union(no)
    assert ran(streaming, feed, both).tuples("user", "page") == [
        ("ann", "/a"),
        ("bob", "/b"),
        ("cid", "yes"),
    ]


def test_apply_takes_a_data_frame_and_widens_what_it_makes(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    def shorten(frame: DataFrame) -> DataFrame:
        return frame.where("price is not null").select(
            F.col("price").cast("int").alias("length"), F.col("user").alias("word")
        )

    rows = stream.source("clicks", Source()).apply(shorten, to=Words)
    assert ran(streaming, feed, rows).tuples("word", "length") == [("ann", 10), ("cid", 30)]


def test_two_sources_are_put_together(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    one = stream.source("clicks", Source()).map(dict, to=Copies)
    other = stream.source("others", Source()).map(dict, to=Copies)
    feed.add("others", [click("eve", "/e", 9)])
    assert {row["user"] for row in ran(streaming, feed, one.union(other)).rows} == {"ann", "bob", "cid", "eve"}


def test_a_column_can_be_given_where_there_is_a_session(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    rows = stream.source("clicks", Source()).map(dict, to=Copies).filter(F.col("user") == "ann")
    assert ran(streaming, feed, rows).tuples("user") == [("ann",)]


def raises(row: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no such page")


def loses_connection(row: dict[str, Any]) -> dict[str, Any]:
    raise ConnectionError("gone")


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (raises, TransformFailed, r"test_rows.py:\d+: map\(raises\) raised ValueError: no such page"),
        (loses_connection, TransientError, r"map\(loses_connection\) raised ConnectionError: gone"),
        (lambda row: {"word": 1}, TypeMismatch, "words.word that is no string"),
        (lambda row: {"word": "a", "size": 1}, UnknownField, "returned size, which rows of words do not have"),
        (lambda row: {"length": 1}, UnknownField, "returned a row without word"),
        (lambda row: {"word": None, "length": 1}, NullInField, "words.word is null in 3 of 3 rows"),
        (lambda row: "a", TransformFailed, "returned str for a row"),
    ],
)
def test_an_error_in_a_worker_names_the_operator_and_its_line(
    streaming: SparkSession, stream: Stream, feed: Feed, function: Any, kind: type[PenstockError], words: str
) -> None:
    rows = stream.source("clicks", Source()).map(function, to=Words)
    with pytest.raises(kind, match=words) as raised:
        ran(streaming, feed, rows)
    assert "test_rows.py:" in raised.value.what


@pytest.mark.parametrize(
    ("operator", "function", "kind", "words"),
    [
        ("flat_map", lambda row: {"word": "a"}, TransformFailed, "returned dict"),
        ("map_batches", lambda batch: [1], TransformFailed, "returned list"),
        ("map_batches", lambda batch: batch.select(["page"]), UnknownField, "returns no word, length"),
        ("filter", lambda row: row["nothing"], TransformFailed, "KeyError: 'nothing'"),
    ],
)
def test_what_other_functions_return_is_checked_too(
    streaming: SparkSession,
    stream: Stream,
    feed: Feed,
    operator: str,
    function: Any,
    kind: type[PenstockError],
    words: str,
) -> None:
    clicks = stream.source("clicks", Source())
    rows = (
        clicks.filter(function).map(as_word, to=Words)
        if operator == "filter"
        else getattr(clicks, operator)(function, to=Words)
    )
    with pytest.raises(kind, match=words):
        ran(streaming, feed, rows)


def test_a_null_that_a_data_frame_makes_fails_the_batch(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    rows = stream.source("clicks", Source()).apply(
        lambda frame: frame.selectExpr("nullif(user, 'bob') AS word", "price AS length"), to=Words
    )
    with pytest.raises(NullInField, match=r"apply\(<lambda>\) makes a row in which words.word is null"):
        ran(streaming, feed, rows)


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (lambda frame: frame.select("nothing"), DefinitionError, "cannot be analysed"),
        (lambda frame: frame.nothing(), DefinitionError, "cannot be planned"),
        (lambda frame: 1, DefinitionError, "returned int, not a DataFrame"),
        (lambda frame: frame.select("user"), UnknownField, "makes no words.word"),
        (
            lambda frame: frame.selectExpr("user AS word", "price AS length", "page"),
            UnknownField,
            "makes page, which rows of words do not have",
        ),
        (
            lambda frame: frame.selectExpr("user AS word", "user AS length"),
            TypeMismatch,
            "words.length a string",
        ),
    ],
)
def test_what_apply_makes_is_checked_before_any_row(
    streaming: SparkSession, stream: Stream, feed: Feed, function: Any, kind: type[PenstockError], words: str
) -> None:
    rows = stream.source("clicks", Source()).apply(function, to=Words)
    output = stream.output("out", rows, Nowhere())
    feed.add("clicks", ROWS)
    with pytest.raises(kind, match=words) as raised:
        output.frame(streaming, feed.reading(streaming))
    assert "test_rows.py:" in raised.value.what


def test_a_condition_of_unknown_columns_is_an_error_of_the_definition(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    rows = stream.source("clicks", Source()).map(dict, to=Copies).filter("nothing > 1")
    output = stream.output("out", rows, Nowhere())
    feed.add("clicks", ROWS)
    with pytest.raises(DefinitionError, match=r"filter\(nothing > 1\) cannot be analysed"):
        output.frame(streaming, feed.reading(streaming))


def test_a_function_may_not_make_a_row_older_than_it_is(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 60)
    rows = clicks.map(lambda row: {**row, "at": row["at"] - timedelta(seconds=1)}, to=Copies)
    assert rows.shape.time == "at"
    with pytest.raises(TransformFailed, match="makes a row of 2026-01-01 00:00:00"):
        ran(streaming, feed, rows, ROWS[:1])


def test_a_batch_may_not_come_out_older_than_it_is(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    def back(batch: pa.RecordBatch) -> pa.RecordBatch:
        times = pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * batch.num_rows, batch["at"].type)
        return batch.set_column(batch.schema.get_field_index("at"), "at", times)

    rows = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 60).map_batches(back, to=Copies)
    with pytest.raises(TransformFailed, match=r"map_batches\(back\) makes a row of 2020-01-01"):
        ran(streaming, feed, rows)


def test_apply_may_not_compute_the_event_time_anew(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 60)
    rows = clicks.apply(lambda frame: frame.withColumn("at", F.lit("2020-01-01").cast("timestamp")), to=Copies)
    output = stream.output("out", rows, Nowhere())
    feed.add("clicks", ROWS)
    with pytest.raises(DefinitionError, match="computes the event time copies.at anew"):
        output.frame(streaming, feed.reading(streaming))
