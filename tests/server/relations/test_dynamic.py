"""What runs and streams published, checkpoints, system tables, and files that Spark cannot reach itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from pyarrow import fs

from penstock.batch import inputs
from penstock.batch.runs import runs
from penstock.batch.runs.manifests import SavedTable
from penstock.config import TableConfig
from penstock.control.catalog import Catalog
from penstock.core.ranges import Range
from penstock.errors import SqlError, StreamError
from penstock.server.base import User
from penstock.server.relations import Provider
from penstock.server.relations.checkpoint import Saved
from penstock.server.relations.files import arrow_files
from penstock.sinks.base import Target
from penstock.sinks.delta.reading import DeltaReading
from penstock.sinks.delta.sink import DeltaSink
from penstock.sinks.parquet.sink import ParquetSink
from penstock.streams import registry
from tests.batch.runner import orders, orders_place, trades
from tests.batch.runner.conftest import RUN, opened
from tests.server.relations.conftest import ADMIN, READER, Place, numbers, say
from tests.server.relations.test_catalog import refused
from tests.server.waiting import wait_until
from tests.sinks.support import Bench, Sale, number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Callable[..., list[tuple[Any, ...]]]


class Members(Provider):
    """Tells each user what the user is called."""

    schema = "sys"

    def tables(self) -> Mapping[str, pa.Schema]:
        return {
            "none": pa.schema([("x", pa.uint32())]),
            "me": pa.schema([("name", pa.string()), ("since", pa.timestamp("us", "UTC"))]),
        }

    def rows(self, name: str, user: User) -> pa.Table:
        if name == "none":
            return self.tables()[name].empty_table()
        return pa.table({"name": [user.name], "since": [None]}, schema=self.tables()[name])


def test_a_run_is_a_schema_and_its_checkpoints_can_be_looked_into(
    place: Place, spark: SparkSession, rows: Rows, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    with opened(tmp_path / "run", spark) as running:
        place.store, place.storage = running.store, running.storage
        tables = place.tables()
        refused("42P01", lambda: tables.find((RUN, "trades"), (), ADMIN))
        running.run(max_batches=1, claims=1)
        running.run_until_checkpoint(stages=2)
        assert len(rows(tables, RUN, "trades")) in range(1, 1001)
        wait_until(
            lambda: (
                {(i.schema, i.name) for i in tables.listed(ADMIN)} == {(RUN, "trades"), (RUN, "positions")}
            )
        )
        say(tables, f'CREATE VIEW v AS SELECT count(*) AS n FROM "{RUN}".trades')
        before = rows(tables, "v")

        crashed = tables.function("checkpoint", [RUN, "1", "trades"], ADMIN)
        assert (
            crashed.columns.names
            == ["id", "symbol", "price", "quantity", "notional"][-len(crashed.columns) :]
        )
        name = crashed.bind(spark, "q")
        saved = spark.sql(f"SELECT count(*), count(notional) FROM {name}").collect()[0]
        crashed.release(spark, "q")
        assert saved[0] == saved[1] > 0
        by_name = tables.function("checkpoint", [RUN, "enrich"], ADMIN)
        assert by_name.columns == crashed.columns
        run = runs.load(running.store, RUN)
        unsaved = SavedTable(trades.Trades.input_schema(), input="trades")
        scanned = Saved(run, "trades", ((Range(10, 20), unsaved), (Range(30, 31), unsaved)))
        assert scanned.frame(spark, running.store).count() == 11
        inputs.register(spark, running.store, running.storage, "quotes", numbers(7), partition_rows=5)
        whole = SavedTable(numbers(7).schema, input="quotes")
        given = Saved(run, "quotes", ((Range(0, 10), whole), (Range(10, 20), whole), (Range(20, 25), whole)))
        assert given.frame(spark, running.store).count() == 7
        refused("42704", lambda: tables.function("checkpoint", ["nope", "0"], ADMIN), RUN)
        refused("42704", lambda: tables.function("checkpoint", [RUN, "nope"], ADMIN), "enrich")
        refused("02000", lambda: tables.function("checkpoint", [RUN, "2"], ADMIN))
        refused("42501", lambda: tables.function("checkpoint", [RUN, "1"], READER))
        refused("42883", lambda: tables.function("read_csv", ["/etc/passwd"], ADMIN))

        refused("42501", lambda: say(tables, f'CREATE VIEW "{RUN}".x AS SELECT 1 AS x'), "run")
        running.run()
        assert rows(tables, "v") > before
        running.assert_exact()


def test_what_the_phases_of_a_run_left_can_be_read(
    place: Place, spark: SparkSession, rows: Rows, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    with orders_place.opened(tmp_path / "run", spark) as running:
        place.store, place.storage = running.store, running.storage
        tables = place.tables()

        def count(*arguments: str) -> int:
            found = tables.function("checkpoint", ["orders", *arguments], ADMIN)
            name = found.bind(spark, "q")
            [[number]] = spark.sql(f"SELECT count(*) FROM {name}").collect()
            found.release(spark, "q")
            return int(number)

        running.map()
        expected = orders.expected(running.orders, running.accounts)
        assert len(rows(tables, "orders", "orders")) == len(expected["orders"])
        refused("42P01", lambda: tables.find(("orders", "positions"), (), ADMIN))
        # What is in the run files, whichever way it is named.
        assert count("price") == count("1") == count("phase 0") == len(expected["orders"])
        assert count("phase 1") == running.accounts.num_rows
        refused("02000", lambda: tables.function("checkpoint", ["orders", "validate"], ADMIN))
        refused("42704", lambda: tables.function("checkpoint", ["orders", "phase 9"], ADMIN))


def test_a_stream_is_a_schema(place: Place, spark: SparkSession, rows: Rows) -> None:
    record = registry.open_stream(place.store, "sales", {"sources": {}, "outputs": {"out": {}, "later": {}}})
    target = Target("sales", record.id, "out", 1, Sale, "append", (), place.store, place.storage, spark)
    tables = place.tables()
    writer = ParquetSink().open(target)
    writer.write(Bench(target).frame([(1, "a", 2)]), number(0))
    assert rows(tables, "sales", "out") == [(1, "a", 2)]
    writer.write(Bench(target).frame([(2, "b", None)]), number(1))
    assert rows(tables, "sales", "out") == [(1, "a", 2), (2, "b", None)]
    assert [info.name for info in tables.listed(ADMIN)] == ["out"]
    refused("42P01", lambda: tables.find(("sales", "oot"), (), ADMIN), "did you mean sales.out?")


@pytest.mark.parametrize("partition_by", [(), ("city",)], ids=["plain", "partitioned"])
def test_an_output_to_delta_is_a_table_like_the_others(
    place: Place, spark: SparkSession, rows: Rows, partition_by: tuple[str, ...]
) -> None:
    sink = DeltaSink(str(place.data / "sales of all"), partition_by)
    described = {"out": {"sink": sink.describe()}, "later": {"sink": {"kind": "delta", "location": "/no"}}}
    record = registry.open_stream(place.store, "sales", {"sources": {}, "outputs": described})
    target = Target("sales", record.id, "out", 1, Sale, "append", (), place.store, place.storage, spark)
    tables = place.tables()
    refused("42P01", lambda: tables.find(("sales", "out"), (), ADMIN))
    writer = sink.open(target)
    assert rows(tables, "sales", "out") == []
    writer.write(Bench(target).frame([(1, "a b/c", 2)]), number(0))
    assert rows(tables, "sales", "out") == [(1, "a b/c", 2)]
    writer.write(Bench(target).frame([(2, "b", None)]), number(1))
    assert rows(tables, "sales", "out") == [(1, "a b/c", 2), (2, "b", None)]
    # A list may be as old as some times what it took to make.
    while not (listed := tables.listed(ADMIN)):
        time.sleep(0.1)
    assert [(info.name, info.columns.names) for info in listed] == [("out", ["id", "city", "amount"])]
    # Who may not read the stream reads it neither by name nor by its files.
    refused("42501", lambda: tables.find(("sales", "out"), (), READER))
    assert str(place.data / "sales of all") in tables.kept_from(READER)
    # Others write to it as well, and add columns.
    more = pa.table({"id": [3], "city": ["c"], "amount": [4], "note": ["new"]})
    write_deltalake(place.data / "sales of all", more, mode="append", schema_mode="merge")
    # Delta moves columns by which a table is partitioned to their end then.
    names = tables.find(("sales", "out"), (), ADMIN).columns.names
    found = [dict(zip(names, row, strict=True)) for row in rows(tables, "sales", "out")]
    assert [(row["id"], row["city"], row["note"]) for row in found] == [
        (1, "a b/c", None),
        (2, "b", None),
        (3, "c", "new"),
    ]


def test_a_delta_table_that_is_not_simply_files_is_refused(place: Place, spark: SparkSession) -> None:
    location = str(place.data / "mapped")
    table = DeltaTable.create(location, numbers(1).schema)
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(StreamError, match="uses deletionVectors"):
        DeltaReading(location).frame(spark)


def test_system_tables_tell_each_user_what_is_theirs(place: Place, rows: Rows) -> None:
    tables = place.tables(providers=[Members()])
    say(tables, "CREATE VIEW who AS SELECT upper(name) AS name FROM sys.me")
    assert rows(tables, "sys", "me") == [("ann", None)] and rows(tables, "who", user=READER) == [("RITA",)]
    assert [(i.schema, i.kind) for i in tables.listed(READER)] == [
        ("public", "view"),
        ("sys", "system"),
        ("sys", "system"),
    ]
    assert rows(tables, "sys", "none") == []
    refused("42501", lambda: say(tables, "DROP VIEW sys.me"))


def test_files_behind_an_url(
    place: Place, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = tmp_path / "remote" / "bucket"
    (remote / "p" / "x=1").mkdir(parents=True)
    pq.write_table(numbers(2), remote / "p" / "x=1" / "1.parquet")
    (remote / "c.csv").write_text("id,name\n0,n0\n")
    filesystem = fs.SubTreeFileSystem(str(tmp_path / "remote"), fs.LocalFileSystem())
    monkeypatch.setattr(
        arrow_files,
        "filesystem_of",
        lambda url: (filesystem, url.partition("://")[2].partition("?")[0].rstrip("/")),
    )
    tables = place.tables(
        TableConfig("p", "s3://bucket/p?region=x", "parquet"), TableConfig("c", "s3://bucket/c.csv")
    )
    assert tables.broken() == {}
    assert rows(tables, "p") == [(0, "n0", 1), (1, "n1", 1)] and rows(tables, "c") == [(0, "n0")]
    pq.write_table(numbers(1, 5), remote / "p" / "x=1" / "2.parquet")
    assert len(rows(tables, "p")) == 3
    with pytest.raises(SqlError, match=r"serve\.paths"):
        say(tables, "CREATE TABLE t USING parquet LOCATION 's3://bucket/p'")
    (remote / "open" / "y=2").mkdir(parents=True)
    (remote / "open" / "y=2" / "1.csv").write_text("7;2020-01-02;x\n")
    given = "CREATE TABLE t (a smallint, b date, c text, y int) USING csv OPTIONS (sep ';'{}) LOCATION '{}'"
    refused("0A000", lambda: say(tables, given.format(", nullValue '-'", "s3://bucket/open")), "nullValue")
    say(tables, given.format("", "s3://bucket/open"))
    assert rows(place.tables(), "t") == [(7, date(2020, 1, 2), "x", 2)]
    assert "region" not in next(s.sql for s in Catalog(place.store).read().statements)
