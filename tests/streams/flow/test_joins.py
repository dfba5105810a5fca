"""Joins of two streams, and with a table that does not move."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from penstock.streams.api.stream import Stream
from penstock.types.tables import Table
from tests.streams.flow.support import Clicks, Feed, Nowhere, Source, at, click

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Views(Table):
    viewer: str
    at: datetime
    screen: str


class Shown(Table):
    user: str
    page: str
    clicked_at: datetime
    screen: str | None


class Places(Table):
    user: str
    clicked_at: datetime
    city: str | None


class Visits(Table):
    city: str | None
    begin: datetime
    visits: int


def cities(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("ann", "Oslo")], "user string, city string")


def test_rows_without_a_partner_come_when_none_can_come_any_more(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 10)
    views = stream.source("views", Source(Views)).assign_timestamps(Views.at, 10)
    shown = clicks.join(
        views, on=(Clicks.user, Views.viewer), within=5, to=Shown, how="left", clicked_at=Clicks.at
    )
    output = stream.output("shown", shown, Nowhere())
    feed.add("clicks", [click("ann", "/a", 0), click("bob", "/b", 3)], [click("ann", "/c", 30)])
    feed.add(
        "views",
        [{"viewer": "ann", "at": at(5), "screen": "s1"}],
        [{"viewer": "bob", "at": at(9), "screen": "s2"}],
    )
    found = feed.run(streaming, output)
    assert found.tuples("user", "page", "screen", "clicked_at") == [
        ("ann", "/a", "s1", at(0)),
        ("ann", "/c", None, at(30)),
        ("bob", "/b", None, at(3)),
    ]
    assert found.late == 0


def test_a_lookup_and_a_window_after_a_join(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 10)
    views = stream.source("views", Source(Views)).assign_timestamps(Views.at, 10)
    shown = clicks.join(views, on=[(Clicks.user, Views.viewer)], within=5, to=Shown, clicked_at=Clicks.at)
    assert shown.shape.time == "clicked_at"
    visits = (
        shown.lookup(cities, on=Shown.user, to=Places)
        .key_by(Places.city)
        .tumbling(10)
        .count(to=Visits, start="begin")
    )
    output = stream.output("visits", visits, Nowhere())
    feed.add("clicks", [click("ann", "/a", 0), click("bob", "/b", 3)], [click("ann", "/c", 1)])
    feed.add("views", [{"viewer": user, "at": at(2), "screen": "s1"} for user in ("ann", "bob")])
    assert feed.run(streaming, output).tuples("city", "begin", "visits") == [
        ("Oslo", at(0), 2),
        (None, at(0), 1),
    ]
