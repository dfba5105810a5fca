"""Aggregates that go on for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import DefinitionError, NullInField, TypeMismatch
from penstock.streams.api.stream import Stream
from penstock.types.tables import Table
from tests.streams.flow.support import Clicks, Feed, Nowhere, Source, click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = [[click("ann", "/a", 0, 1), click("bob", "/b", 1, 2)], [click("ann", "/a", 2, 3)]]


class Totals(Table):
    page: str
    to: int | None
    clicks: int


class Strict(Table):
    page: str
    total: int


def test_a_running_aggregate_replaces_its_rows(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 10).deduplicate("user", "at")
    totals = clicks.key_by(Clicks.page).aggregate({"to": "sum(price)"}, to=Totals, clicks="count(*)")
    output = stream.output("totals", totals, Nowhere())
    assert (output.mode, output.keys) == ("update", ("page",))
    first, second, *others = feed.add("clicks", *BATCHES, BATCHES[1]).run(streaming, output).batches
    assert sorted(tuple(row.values()) for row in first) == [("/a", 1, 1), ("/b", 2, 1)]
    assert second == [{"page": "/a", "to": 4, "clicks": 2}]
    assert not any(others)


def test_a_count_alone_counts_while_it_reads(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    counts = stream.source("clicks", Source()).key_by(Clicks.page).count(to=Strict)
    output = stream.output("counts", counts, Nowhere())
    first, second = feed.add("clicks", *BATCHES).run(streaming, output).batches
    assert sorted(tuple(row.values()) for row in first) == [("/a", 1), ("/b", 1)]
    assert second == [{"page": "/a", "total": 2}]
    assert feed.counted == [("page",)]


def test_rows_that_others_take_too_are_read_once(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    clicks = stream.source("clicks", Source())
    prices = clicks.map(lambda row: {"page": row["user"], "total": row["price"]}, to=Strict)
    counts = clicks.key_by(Clicks.page).count(to=Strict)
    output = stream.output("both", counts.union(prices), Nowhere(), mode="update", keys=["page"])
    [batch] = feed.add("clicks", BATCHES[0]).run(streaming, output).batches
    found = sorted(tuple(row.values()) for row in batch)
    assert found == [("/a", 1), ("/b", 1), ("ann", 1), ("bob", 2)]
    assert feed.counted == [None]


def test_a_null_where_none_may_be_fails_the_batch(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    totals = stream.source("clicks", Source()).key_by("page").aggregate(to=Strict, total="sum(price)")
    output = stream.output("totals", totals, Nowhere())
    feed.add("clicks", [click("ann", "/a", 0, None)])
    with pytest.raises(NullInField, match=r"aggregate makes a row in which strict.total is null"):
        feed.run(streaming, output)


@pytest.mark.parametrize(
    ("expression", "kind", "words"),
    [
        ("sum(nothing)", DefinitionError, "aggregate cannot be analysed"),
        ("sum(", DefinitionError, "aggregate cannot be analysed"),
        ("avg(price)", TypeMismatch, "makes strict.total a double, but it is declared as bigint"),
        (lambda: 1, DefinitionError, "got int from its function, not a Column"),
    ],
)
def test_expressions_are_checked_before_any_row(
    streaming: SparkSession,
    stream: Stream,
    feed: Feed,
    expression: str,
    kind: type[DefinitionError],
    words: str,
) -> None:
    totals = stream.source("clicks", Source()).key_by("page").aggregate(to=Strict, total=expression)
    output = stream.output("totals", totals, Nowhere())
    feed.add("clicks", [])
    with pytest.raises(kind, match=words) as raised:
        output.frame(streaming, feed.reading(streaming))
    assert "test_aggregates.py:" in raised.value.what
