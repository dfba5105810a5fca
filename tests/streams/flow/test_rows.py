"""Operators that look at one row at a time, in queries."""

from __future__ import annotations

from datetime import datetime
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
    TypeMismatch,
    UnknownField,
)
from penstock.streams.api.stream import Rows, Stream
from penstock.types.tables import Table
from tests.streams.flow.support import Clicks, Feed, Nowhere, Result, Source, click

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


def without_a(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.not_equal(batch["word"], "A"))


def over_ten(row: dict[str, Any]) -> bool | None:
    return None if row["price"] is None else row["price"] > 10


def ran(spark: SparkSession, feed: Feed, rows: Rows) -> Result:
    output = feed.stream.output("out", rows, Nowhere())
    return feed.add("clicks", ROWS).run(spark, output)


def test_functions_of_rows_batches_and_data_frames_follow_each_other(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    def shorten(frame: DataFrame) -> DataFrame:
        return frame.select(F.col("length").cast("int").alias("length"), "word").where("word <> 'B'")

    rows = (
        stream.source("clicks", Source())
        .map(as_word, to=Words)
        .filter(lambda row: row["length"] is None or row["length"] < 30)
        .flat_map(letters, to=Words)
        .map_batches(without_a, to=Words)
        .apply(shorten, to=Words)
        .filter(F.col("word") != "O")
    )
    assert ran(streaming, feed, rows).rows == [{"word": "N", "length": None}] * 2


def test_a_split_loses_no_row_and_null_is_no(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    clicks = stream.source("clicks", Source()).map(dict, to=Copies)
    branches = []
    conditions: dict[str, Any] = {
        "sql": "price > 10",
        "column": lambda: F.col("price") > 10,
        "row": over_ten,
    }
    for name, condition in conditions.items():
        yes, no = clicks.split(condition)
        branches += [_tagged(yes, f"{name} yes"), _tagged(no, f"{name} no")]
    found = ran(streaming, feed, branches[0].union(*branches[1:])).tuples("page", "user")
    assert found == [
        (f"{name} {answer}", user)
        for name in ("column", "row", "sql")
        for answer, users in (("no", ["ann", "bob"]), ("yes", ["cid"]))
        for user in users
    ]


def _tagged(rows: Rows, tag: str) -> Rows:
    return rows.apply(lambda frame: frame.withColumn("page", F.lit(tag)), to=Copies)


def test_two_sources_are_put_together(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    one = stream.source("clicks", Source()).map(dict, to=Copies)
    other = stream.source("others", Source()).map(dict, to=Copies)
    feed.add("others", [click("eve", "/e", 9)])
    assert {row["user"] for row in ran(streaming, feed, one.union(other)).rows} == {
        "ann",
        "bob",
        "cid",
        "eve",
    }


def test_an_error_in_a_worker_names_the_operator_and_its_line(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    def parse(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no such page")

    rows = stream.source("clicks", Source()).map(parse, to=Words)
    with pytest.raises(
        TransformFailed, match=r"test_rows.py:\d+: map\(parse\) raised ValueError: no such page"
    ):
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
        (lambda frame: frame.select("user"), UnknownField, "makes no words.word, words.length"),
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
    _refused(streaming, feed, stream.source("clicks", Source()).apply(function, to=Words), kind, words)


def test_a_condition_of_unknown_columns_is_an_error_of_the_definition(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    rows = stream.source("clicks", Source()).map(dict, to=Copies).filter("nothing > 1")
    _refused(streaming, feed, rows, DefinitionError, r"filter\(nothing > 1\) cannot be analysed")


def test_apply_may_not_compute_the_event_time_anew(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 60)
    rows = clicks.apply(
        lambda frame: frame.withColumn("at", F.lit("2020-01-01").cast("timestamp")), to=Copies
    )
    _refused(streaming, feed, rows, DefinitionError, "computes the event time copies.at anew")


def _refused(spark: SparkSession, feed: Feed, rows: Rows, kind: type[PenstockError], words: str) -> None:
    output = feed.stream.output("out", rows, Nowhere())
    feed.add("clicks", ROWS)
    with pytest.raises(kind, match=words) as raised:
        output.frame(spark, feed.reading(spark))
    assert "test_rows.py:" in raised.value.what
