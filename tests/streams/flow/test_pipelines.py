"""Whole pipelines on a stream: every batch is a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.batch.pipeline import Pipeline, transform
from penstock.errors import DefinitionError, DuplicateName, TypeMismatch
from penstock.sinks.base import Batch, Target
from penstock.storage import Storage
from penstock.store import open_store
from penstock.streams.api.stream import Stream
from penstock.types.tables import Table
from tests.streams.flow.support import Clicks, Feed, Kept, Nowhere, Source, click

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Totals(Table):
    page: str
    total: int | None


class Others(Table):
    name: str


@transform(reads=Clicks.price, writes=Clicks.double)
def double(clicks: DataFrame) -> DataFrame:
    return clicks.withColumn("double", F.col("price") * 2)


@transform(reads=[Clicks.page, Clicks.double], writes=Totals)
def total(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy("page").agg(F.sum("double").alias("total"))


@transform(reads=Others.name, drops=Others)
def nothing(others: DataFrame) -> DataFrame:
    return others


pages = Pipeline("stream-pages", inputs=Clicks, outputs=[Clicks, Totals], transforms=[double, total])
two_inputs = Pipeline(
    "stream-two-inputs", inputs=[Clicks, Others], outputs=Totals, transforms=[double, total, nothing]
)
sorted_pages = Pipeline(
    "stream-sorted", inputs=Clicks, outputs=Totals, transforms=[double, total], order_by=Totals.page
)
others = Pipeline("stream-others", inputs=Others, outputs=Others, transforms=[nothing])


def test_each_batch_goes_through_the_pipeline_to_the_sinks_of_its_tables(
    streaming: SparkSession, stream: Stream, feed: Feed, tmp_path: Path
) -> None:
    kept = Kept()
    clicks = stream.source("clicks", Source()).filter("page <> '/no'")
    output = stream.pipeline(clicks, pages, {"clicks": kept, "totals": kept}, name="pages")
    assert (output.mode, output.sink.exactly_once) == ("append", False)
    feed.add("clicks", [click("ann", "/a", 0, 1), click("bob", "/a", 0, 2)], [click("ann", "/a", 1, 5)])
    frames = output.frame(streaming, feed.reading(streaming))
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        place = (store, Storage(tmp_path / "storage"), streaming)
        writer = output.sink.open(Target("clicks", "s1", "pages", 1, output.table, "append", (), *place))
        query = (
            frames.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(lambda frame, number: writer.write(frame, Batch(number, 1)))
            .start()
        )
        query.awaitTermination()
        writer.close()
    assert kept.batches["pages.totals"] == {
        0: [{"page": "/a", "total": 6}],
        1: [{"page": "/a", "total": 10}],
    }
    assert [row["double"] for row in kept.batches["pages.clicks"][1]] == [10]


@pytest.mark.parametrize(
    ("pipeline", "tables", "kind", "words"),
    [
        (pages, ["totals"], DefinitionError, "has no sink for clicks"),
        (pages, ["totals", "clicks", "x"], DefinitionError, "has a sink for x"),
        (two_inputs, ["totals"], DefinitionError, "also reads others"),
        (sorted_pages, ["totals"], DefinitionError, "sorts totals"),
        (others, ["others"], TypeMismatch, "which reads others"),
        ("pages", [], DefinitionError, "is given 'pages' for a pipeline"),
    ],
)
def test_pipeline_rows_and_sinks_must_fit(
    stream: Stream, pipeline: Any, tables: list[str], kind: type[DefinitionError], words: str
) -> None:
    clicks = stream.source("clicks", Source())
    with pytest.raises(kind, match=rf"test_pipelines.py:\d+: pipeline .*{words}"):
        stream.pipeline(clicks, pipeline, {table: Nowhere() for table in tables})


def test_names_of_tables_and_outputs_do_not_meet(stream: Stream) -> None:
    clicks = stream.source("clicks", Source()).transform(double)
    stream.pipeline(clicks, pages, {"totals": Nowhere(), "clicks": Nowhere()}, name="pages")
    with pytest.raises(DuplicateName, match=r"has the name pages.totals"):
        stream.output("pages.totals", clicks, Nowhere())
    described = stream.describe()["outputs"]["pages"]["sink"]
    assert described["kind"] == "pipeline" and described["totals kind"] == "nowhere"
    assert set(described) >= {"pipeline", "stage 1", "stage 2"}
