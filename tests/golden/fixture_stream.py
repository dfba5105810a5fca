"""A stream that stands for those of users, and never changes: its definition is a golden file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.sinks import DeltaSink, FunctionSink, KafkaSink, ParquetSink, PostgresSink
from penstock.sources import (
    DirectorySource,
    JournalSource,
    KafkaSource,
    PostgresSource,
    RateSource,
    StatefulSource,
    TailSource,
    Ticks,
)
from tests.golden import fixture_pipeline


class Clicks(ps.Table):
    page: str
    user: str
    at: datetime


class Visits(ps.Table):
    page: str
    user: str
    at: datetime
    number: int


class Views(ps.Table):
    page: str
    viewer: str
    seconds: int
    seen: datetime = ps.derived()


class Counts(ps.Table):
    page: str
    begin: datetime
    clicks: int


class Totals(ps.Table):
    page: str
    clicks: int


class Orders(ps.Table):
    order: str
    total: int


class Pairs(ps.Table):
    page: str
    first: str
    second: str


class Named(ps.Table):
    order: str
    total: int
    name: str | None


class Own(StatefulSource):
    """A source that a user wrote."""

    table = Orders

    def list_parts(self) -> list[str]:
        return ["a"]

    def build_part(self, part: str, state: Any) -> Any:
        raise NotImplementedError

    def describe(self) -> dict[str, object]:
        return {"place": "here"}


def event_time(batch: pa.RecordBatch) -> pa.Array:
    return batch["seconds"].cast(pa.timestamp("us", "UTC"))


def numbered(key: str, row: dict[str, Any], state: Any) -> tuple[Any, list[dict[str, Any]]]:
    return state + 1, [{**row, "number": state}]


def tell(frame: Any, batch: Any) -> None:
    del frame, batch


def names(spark: Any) -> Any:
    return spark.read.parquet("/data/names")


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "total": row["total"] * 2}


def record(found: Any) -> dict[str, Any]:
    return {"order": found.key.decode(), "total": found.offset}


stream = ps.Stream("golden")

files = stream.source("files", DirectorySource("/data/clicks", Clicks, format="csv", delimiter=";"))
clicks = files.assign_timestamps(Clicks.at, 60, late="keep")
made = stream.source("made", RateSource(Ticks, 3, rows=100, start=datetime(2026, 1, 1, tzinfo=UTC)))
lines = stream.source("lines", TailSource("/var/log/*.log"))
sent = stream.source("sent", KafkaSource(["b:9092", "a:9092"], "^orders-.*", Orders))
called = stream.source("called", KafkaSource("a:9092", ["x", "y"], Orders, value=record))
kept = stream.source(
    "kept",
    PostgresSource("postgresql://user:secret@host/shop", "shop.orders", Orders, key=["order"], parts=2),
)
journals = stream.source(
    "journals",
    JournalSource("/data/journals", Orders, prefix="shop/", where={"region": ["eu", "us"]}, key=["/order"]),
)
own = stream.source("own", Own())
views = stream.source("views", DirectorySource("/data/views", Views)).assign_timestamps(
    Views.seen, 5, extract=event_time
)
trades = stream.source(
    "trades", DirectorySource("s3://bucket/trades", fixture_pipeline.Trades, format="jsonl")
)

windows = clicks.filter("page != ''").key_by(Clicks.page).tumbling(300)
stream.output("counts", windows.count(to=Counts, start=Counts.begin), ParquetSink("/data/out", keep=3))
stream.output("late", clicks.late(), FunctionSink(tell))
stream.output(
    "totals", clicks.key_by(Clicks.page).count(to=Totals), PostgresSink("postgresql://u:p@h/db", "totals")
)
stream.output(
    "visits", clicks.key_by(Clicks.user).stateful_map(numbered, to=Visits, state=0), DeltaSink("/data/visits")
)
stream.output("ticks", made.filter(lambda row: row["key"] > 1), KafkaSink("a:9092", "ticks", key=Ticks.key))
stream.output("lines", lines, ParquetSink())
orders = sent.union(called, kept, own).map(doubled, to=Orders).deduplicate(Orders.order, forever=True)
stream.output("orders", orders, ParquetSink())
pairs = clicks.join(views, on=Clicks.page, within=10, to=Pairs, first=Clicks.user, second=Views.viewer)
stream.output("pairs", pairs, ParquetSink())
stream.pipeline(
    trades, fixture_pipeline.pipeline, {"trades": ParquetSink(), "positions": DeltaSink("/data/positions")}
)
stream.output("named", journals.lookup(names, on=Orders.order, to=Named), ParquetSink())
