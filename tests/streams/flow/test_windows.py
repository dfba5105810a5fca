"""Windows of event time: what closes them, what is late, and what ends them all."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from penstock.streams.api.stream import Stream
from penstock.types.tables import Table, derived
from tests.streams.flow.support import Clicks, Counts, Feed, Nowhere, Source, at, click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = [click("ann", "/a", 0), click("bob", "/b", 5)]
SECOND = [click("ann", "/a", 30), click("bob", "/b", 20)]
# As late as a row may be: ten seconds behind the newest of the batches before.
THIRD = [click("ann", "/a", 20)]


class Times(Table):
    user: str
    page: str
    at: datetime


class Totals(Table):
    page: str
    window_start: datetime
    window_end: datetime
    most: int | None
    users: int


class Stamped(Table):
    user: str
    seconds: int
    at: datetime = derived()


class Sessions(Table):
    user: str
    begin: datetime
    end: datetime
    clicks: int


def seen(row: dict[str, Any]) -> dict[str, Any]:
    # The row that ends a stream has neither user nor page.
    assert row["user"] and row["page"] and row["at"].year == 2026, row
    return {"user": row["user"], "page": row["page"], "at": row["at"]}


def test_the_end_of_the_stream_closes_all_windows_and_is_seen_by_nobody(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 10)
    # A condition on other columns than the time: Spark would like to filter before it takes the watermark.
    counts = (
        clicks.filter("page like '/%'")
        .map(seen, to=Times)
        .filter("user <> ''")
        .key_by("page")
        .tumbling(10)
        .count(to=Counts, start=Counts.begin)
    )
    output = stream.output("counts", counts, Nowhere())
    found = feed.add("clicks", FIRST, SECOND, THIRD).run(streaming, output)
    assert (output.mode, output.keys, found.late) == ("append", (), 0)
    assert [sorted((r["page"], r["begin"], r["clicks"]) for r in batch) for batch in found.batches] == [
        [],
        [],
        [("/a", at(0), 1), ("/b", at(0), 1)],
        [],
        [("/a", at(20), 1), ("/a", at(30), 1), ("/b", at(20), 1)],
    ]


def test_windows_can_come_whenever_they_change(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 10)
    totals = (
        clicks.key_by(Clicks.page)
        .sliding(20, 10)
        .aggregate(to=Totals, most="max(price)", users=lambda: F.count("user"))
    )
    output = stream.output("totals", totals, Nowhere(), mode="update")
    assert output.keys == ("page", "window_start")
    more = [click("bob", "/a", 4, 7)]
    found = feed.add("clicks", FIRST, more).run(streaming, output)
    assert sorted((r["window_start"], r["window_end"], r["most"], r["users"]) for r in found.batches[1]) == [
        (at(-10), at(10), 7, 2),
        (at(0), at(20), 7, 2),
    ]


def test_sessions_of_times_that_are_computed(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    rows = stream.source("stamped", Source(Stamped)).assign_timestamps(
        Stamped.at, 5, extract=lambda batch: pa.nulls(batch.num_rows)
    )
    sessions = rows.key_by(Stamped.user).session(10).count(to=Sessions, start=Sessions.begin, end="end")
    stamped = [{"user": "ann", "seconds": s, "at": at(s)} for s in (0, 8, 30)]
    output = stream.output("sessions", sessions, Nowhere())
    found = feed.add("stamped", stamped).run(streaming, output)
    assert found.tuples("begin", "end", "clicks") == [(at(0), at(18), 2), (at(30), at(40), 1)]


def test_the_slower_of_two_sources_holds_windows_open_and_late_rows_go_their_own_way(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    fast = stream.source("fast", Source()).assign_timestamps(Clicks.at, 10, late="keep")
    slow = stream.source("slow", Source()).assign_timestamps(Clicks.at, 0)
    counts = fast.union(slow).key_by("page").tumbling(10).count(to=Counts, start="begin")
    both = stream.output("counts", counts, Nowhere())
    late = stream.output("late", fast.late().map(seen, to=Times), Nowhere())
    feed.add("fast", [click("ann", "/a", 100)]).add("fast", [click("ann", "/a", 1)], late=True)
    # Two rows of one time with a lateness of 0: the second is on time.
    feed.add("slow", [click("bob", "/a", 3)], [click("bob", "/a", 3)])
    found = feed.run(streaming, both)
    assert found.tuples("begin", "clicks") == [(at(0), 2), (at(100), 1)] and found.late == 0
    assert feed.run(streaming, late).tuples("user", "at") == [("ann", at(1))]
