"""The engine over real tables and a real shadow catalog, with statements in PostgreSQL's SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.config import TableConfig
from penstock.errors import SqlError
from penstock.server.base import Relay, User
from penstock.server.engine import SparkEngine
from penstock.server.relations import Tables
from penstock.server.relations.files.summary import UNKNOWN
from penstock.server.shadow import Shadow
from penstock.storage import Storage
from penstock.store import open_store
from penstock.types import postgres as pg
from tests.server.engine.conftest import PEOPLE
from tests.server.engine.standins import ANN, connected, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVE = User("eve", schemas=frozenset({"other"}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine")


@pytest.fixture(scope="module")
def together(spark: SparkSession, folder: Path) -> Iterator[SparkEngine]:
    pq.write_table(PEOPLE, folder / "people.parquet")
    with ExitStack() as stack:
        shadow = Shadow(folder / "shadow")
        shadow.start()
        stack.callback(shadow.stop)
        assert shadow.problem is None
        store = stack.enter_context(open_store(f"sqlite:///{folder}/store.db"))
        configured = [TableConfig(name="people", path=str(folder / "people.parquet"), format="parquet")]
        tables = Tables(spark, store, Storage(folder / "storage"), configured, [str(folder)])
        stack.callback(tables.close)
        engine = SparkEngine(
            spark, tables, spool=str(folder / "spool"), shadow=shadow, users=lambda: (ANN, EVE)
        )
        stack.callback(engine.stop)
        yield engine


def test_a_query_is_described_by_postgres_and_answered_by_spark(together: SparkEngine) -> None:
    client = connected(together)
    sql = "SELECT 7 / 2, sum(id), avg(id), count(*) AS n FROM people WHERE id <= $1"
    prepared = client.prepare(sql)
    described = [(c.name, c.oid) for c in prepared.columns or ()]
    assert described == [("?column?", pg.INT4), ("sum", pg.INT8), ("avg", pg.NUMERIC), ("n", pg.INT8)]
    assert prepared.parameters == (pg.INT4,)
    assert rows(client, sql, 3) == [(3, 6, Decimal(2), 3)]


def test_types_are_exact_where_the_protocol_needs_them(together: SparkEngine) -> None:
    client = connected(together)
    sql = "SELECT avg(id) AS mean, sum(id::numeric(20, 0) * 1000000000000) AS much, count(*) FROM people"
    prepared = client.prepare(sql, exact=True)
    execution = client.execute(prepared)
    batches = list(execution.batches())
    execution.close()
    assert [column.type for column in prepared.columns or ()] == list(batches[0].schema.types)
    assert [column.name for column in prepared.columns or ()] == ["mean", "much", "count"]


def test_constants_and_the_catalog_need_no_spark(together: SparkEngine) -> None:
    client = connected(together)
    for sql in ("SELECT 1", "SELECT relname FROM pg_class WHERE relname = 'people'", "EXPLAIN SELECT 1"):
        assert isinstance(client.execute(client.prepare(sql)), Relay)
    assert rows(client, "SELECT sha2('a', 256)")[0][0].startswith("ca978112")


def test_views_and_tables_come_and_go(together: SparkEngine, tmp_path: Path) -> None:
    client = connected(together)
    rows(client, "CREATE VIEW grown AS SELECT id, upper(name) AS loud FROM people WHERE id > 2")
    assert rows(client, "SELECT loud, id FROM grown ORDER BY id") == [(None, 3), ("DAN", 4)]
    assert rows(client, "SELECT count(*) FROM pg_class WHERE relname = 'grown'") == [(1,)]
    with pytest.raises(SqlError) as caught:
        rows(client, "CREATE VIEW grown AS SELECT 1 AS one")
    assert caught.value.sqlstate == "42P07"
    rows(client, "DROP VIEW grown")
    with pytest.raises(SqlError) as caught:
        client.prepare("SELECT * FROM grown")
    assert caught.value.sqlstate == "42P01"


def test_a_table_gets_the_columns_that_its_files_have(together: SparkEngine, folder: Path) -> None:
    client, sql = connected(together), "SELECT * FROM moving"
    pq.write_table(pa.table({"a": [1]}), folder / "moving.parquet")
    rows(client, "CREATE TABLE moving USING parquet LOCATION 'moving.parquet'")
    assert rows(client, sql) == [(1,)]
    pq.write_table(pa.table({"b": ["x"], "c": [1.5]}), folder / "moving.parquet")
    with pytest.raises(SqlError) as caught:
        rows(client, sql)
    assert caught.value.sqlstate == "40001"
    assert rows(client, sql) == [("x", 1.5)] and rows(client, "SELECT c FROM moving") == [(1.5,)]
    named = (
        "SELECT attname FROM pg_attribute WHERE attrelid = 'moving'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert rows(client, named) == [("b",), ("c",)]
    pq.write_table(pa.table({"b": [7], "c": [1.5], "d": [True]}), folder / "moving.parquet")
    with pytest.raises(SqlError):
        rows(client, sql)
    assert rows(client, sql) == [(7, 1.5, True)]
    rows(client, "DROP TABLE moving")


def test_a_read_that_fails_is_a_reason_to_look_at_the_files(
    together: SparkEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.relations.spark_tables.summary", lambda _: UNKNOWN)
    client, sql = connected(together), "SELECT count(a) FROM doubtful"
    pq.write_table(pa.table({"a": [1]}), folder / "doubtful.parquet")
    rows(client, "CREATE TABLE doubtful USING parquet LOCATION 'doubtful.parquet'")
    pq.write_table(pa.table({"a": ["x", "y"]}), folder / "doubtful.parquet")
    with pytest.raises(SqlError) as caught:
        rows(client, sql)
    assert caught.value.sqlstate == "58030"
    assert rows(client, sql) == [(2,)]
    rows(client, "DROP TABLE doubtful")


def test_errors_are_those_of_postgres(together: SparkEngine) -> None:
    client = connected(together)
    wrong = {
        "SELECT nothing FROM people": ("42703", 7),
        "SELECT * FROM nothing": ("42P01", 14),
        "SELECT frobnicate(id) FROM people": ("42883", 7),
        "SELEC 1": ("42601", 0),
        "SELECT id FROM people GROUP BY name": ("42803", 7),
    }
    for sql, expected in wrong.items():
        with pytest.raises(SqlError) as caught:
            client.prepare(sql)
        assert (caught.value.sqlstate, caught.value.position) == expected, sql
    with pytest.raises(SqlError) as caught:
        rows(client, "SELECT 1 / (id - 1) FROM people")
    assert (caught.value.sqlstate, caught.value.what) == ("22012", "division by zero")


def test_grants_count_when_a_plan_is_made_and_when_it_runs(together: SparkEngine) -> None:
    ann, eve = connected(together), connected(together, EVE)
    with pytest.raises(SqlError):
        eve.prepare("SELECT id FROM people")
    with pytest.raises(SqlError):
        list(eve.execute(ann.prepare("SELECT id FROM people")).batches())
