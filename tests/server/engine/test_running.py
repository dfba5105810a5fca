"""Queries at work: rows and their order, spooled results, memory, cancelling, admission."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.server.base import Execution, QueryState, User
from penstock.server.engine import faults
from penstock.server.engine.engine import SparkEngine
from tests.server.engine.standins import ADMIN, ANN, FileRelation, FileTables, connected, pulled, rows
from tests.server.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.server.relations import Tables

SLOW = "SELECT count(*) AS n FROM people a, people b, endless c WHERE a.id + b.id + c.id < 0"


@pytest.fixture
def spooling(engine: SparkEngine) -> SparkEngine:
    """The engine, for which no estimate is small."""
    engine.workplace = replace(engine.workplace, small=-1, piece=1 << 20)
    return engine


@pytest.fixture
def endless(tables: FileTables) -> None:
    """A table whose scan takes minutes."""
    schema = pa.schema([("id", pa.int64())])
    tables.relations["public", "endless"] = Endless("public", "endless", "", schema, {"id": "bigint"})


class Endless(FileRelation):
    def bind(self, spark: SparkSession, query: str) -> str:
        spark.range(0, 1 << 40, 1, 8).createOrReplaceTempView("standin_endless")
        return "standin_endless"


class Stuck(FileRelation):
    """Binds when the gate is open."""

    gate = threading.Event()

    def bind(self, spark: SparkSession, query: str) -> str:
        assert self.gate.wait(20)
        return super().bind(spark, query)


def idle(engine: SparkEngine, spark: SparkSession) -> None:
    """Wait until nothing runs any more, neither here nor on Spark."""
    wait_until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds() and engine.load() == (0, 0))


def begun(engine: SparkEngine, spark: SparkSession, execution: Execution) -> None:
    """Wait until its job runs on Spark."""
    wait_until(lambda: state(engine, execution) is QueryState.RUNNING)
    wait_until(lambda: bool(spark.sparkContext.statusTracker().getActiveJobsIds()))


def state(engine: SparkEngine, execution: Execution) -> QueryState:
    return next(info.state for info in engine.queries(ADMIN) if info.id == execution.id)


def test_rows_come_in_order_from_both_paths(engine: SparkEngine, tmp_path: Path) -> None:
    sql = "SELECT id, name, score FROM people ORDER BY id DESC"
    client = connected(engine)
    expected = [(4, "Dan", 4.0), (3, None, None), (2, "Bob", 2.5), (1, "Ann", 1.5)]
    assert rows(client, sql) == expected
    engine.workplace = replace(engine.workplace, small=-1)
    # Another text: of the same it is remembered that its result was small.
    assert rows(client, f"{sql} -- again") == expected
    assert list((tmp_path / "spool").iterdir()) == []
    infos = engine.queries(ANN)
    assert [(info.state, info.rows) for info in infos] == [(QueryState.FINISHED, 4)] * 2


def test_a_large_result_is_spooled_in_order_with_bounded_memory(
    spooling: SparkEngine, tables: FileTables, tmp_path: Path
) -> None:
    count = 2_000_000
    tables.add("numbers", pa.table({"n": pa.array(range(count), pa.int64())}))
    client = connected(spooling)
    sql = "SELECT n, concat('a longer text to make rows wide, number ', n) AS t FROM numbers ORDER BY n DESC"
    execution = client.execute(client.prepare(sql))
    gc.collect()
    before, peak, seen, expected, size = resident(), 0, 0, count - 1, 0
    for batch in execution.batches():
        numbers = batch.column(0)
        assert numbers[0].as_py() == expected and numbers[-1].as_py() == expected - len(numbers) + 1
        expected -= len(numbers)
        seen, size = seen + len(numbers), size + batch.nbytes
        peak = max(peak, resident())
    assert seen == count
    assert size > 100 << 20
    assert peak - before < 64 << 20
    execution.close()
    assert list((tmp_path / "spool").iterdir()) == []


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_an_empty_result_has_columns_and_no_rows(spooling: SparkEngine) -> None:
    client = connected(spooling)
    for sql in ("SELECT id FROM people WHERE id > 100", "SELECT id FROM people WHERE false"):
        table = pulled(client.execute(client.prepare(sql)))
        assert (table.num_rows, table.column_names) == (0, ["id"])


def test_a_result_that_the_driver_refuses_to_hold_is_spooled(
    engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    def refuse(_: DataFrame) -> pa.Table:
        raise RuntimeError("Total size is bigger than spark.driver.maxResultSize (256.0 MiB)")

    monkeypatch.setattr(DataFrame, "toArrow", refuse)
    assert rows(connected(engine), "SELECT id FROM people ORDER BY id") == [(1,), (2,), (3,), (4,)]


def test_a_result_that_was_small_is_not_spooled_the_next_time(
    spooling: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    collected: list[int] = []

    def to_arrow(frame: DataFrame) -> pa.Table:
        collected.append(1)
        if len(collected) > 1:
            raise RuntimeError("Total size is bigger than spark.driver.maxResultSize (256.0 MiB)")
        return plain(frame)

    plain = DataFrame.toArrow
    monkeypatch.setattr(DataFrame, "toArrow", to_arrow)
    client, sql = connected(spooling), "SELECT id FROM people ORDER BY id"
    answers = [rows(client, sql) for _ in range(3)]
    # By files, collected, and by files again when it turns out to be too large.
    assert answers == [[(1,), (2,), (3,), (4,)]] * 3 and len(collected) == 2


def test_queries_run_side_by_side(engine: SparkEngine) -> None:
    def ask(number: int) -> list[tuple[object, ...]]:
        return rows(connected(engine), f"SELECT id + {number} AS n FROM people WHERE id = 1")

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(16))) == [[(1 + n,)] for n in range(16)]


@pytest.mark.usefixtures("endless")
def test_cancel_ends_the_query_and_its_jobs(engine: SparkEngine, spark: SparkSession) -> None:
    client = connected(engine)
    execution = client.execute(client.prepare(SLOW))
    begun(engine, spark, execution)
    assert engine.cancel(execution.id, ANN)
    with pytest.raises(SqlError, match="user request") as caught:
        list(execution.batches())
    assert caught.value.sqlstate == "57014"
    assert state(engine, execution) is QueryState.CANCELED
    idle(engine, spark)
    assert not engine.cancel(execution.id, ANN)


@pytest.mark.usefixtures("endless")
def test_a_client_that_goes_away_stops_its_job(spooling: SparkEngine, spark: SparkSession) -> None:
    client = connected(spooling)
    execution = client.execute(client.prepare("SELECT id FROM endless"))
    begun(spooling, spark, execution)
    client.close()
    idle(spooling, spark)
    assert state(spooling, execution) is QueryState.CANCELED


def test_rows_that_nobody_pulls_any_more_stop_the_query(
    spooling: SparkEngine, spark: SparkSession, tmp_path: Path
) -> None:
    client = connected(spooling)
    execution = client.execute(client.prepare("SELECT a.id FROM people a, people b, people c, people d"))
    batches = execution.batches()
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]
    idle(spooling, spark)
    assert state(spooling, execution) is QueryState.CANCELED
    wait_until(lambda: list((tmp_path / "spool").iterdir()) == [])


@pytest.mark.usefixtures("endless")
def test_statement_timeout(engine: SparkEngine, spark: SparkSession) -> None:
    client = connected(engine, settings={"statement_timeout": "300ms"})
    execution = client.execute(client.prepare(SLOW))
    with pytest.raises(SqlError, match=faults.TIMEOUT) as caught:
        list(execution.batches())
    assert caught.value.sqlstate == "57014"
    idle(engine, spark)


@pytest.mark.usefixtures("endless")
def test_the_longest_time_that_the_server_allows(
    spark: SparkSession, tables: FileTables, tmp_path: Path
) -> None:
    engine = SparkEngine(spark, cast("Tables", tables), spool=str(tmp_path / "s"), timeout=0.3)
    client = connected(engine, settings={"statement_timeout": "1h"})
    with pytest.raises(SqlError, match=faults.TIMEOUT):
        list(client.execute(client.prepare(SLOW)).batches())
    idle(engine, spark)
    engine.stop()


@pytest.mark.usefixtures("endless")
def test_more_queries_than_places_wait_and_more_than_that_are_refused(
    spark: SparkSession, tables: FileTables, tmp_path: Path
) -> None:
    engine = SparkEngine(spark, cast("Tables", tables), spool=str(tmp_path / "s"), running=1, queued=1)
    ann, bob = connected(engine), connected(engine, User("bob"))
    slow = ann.execute(ann.prepare(SLOW))
    waits = bob.execute(bob.prepare("SELECT id FROM people WHERE id = 1"))
    assert state(engine, waits) is QueryState.QUEUED
    assert engine.load() == (1, 1)
    with pytest.raises(SqlError) as caught:
        bob.execute(bob.prepare("SELECT 1 AS a FROM people"))
    assert caught.value.sqlstate == "53300"
    slow.cancel()
    assert pulled(waits).to_pylist() == [{"id": 1}]
    idle(engine, spark)
    engine.stop()
    assert engine.ready() is not None


@pytest.mark.usefixtures("endless")
def test_one_that_is_cancelled_while_it_waits_never_runs(
    spark: SparkSession, tables: FileTables, tmp_path: Path
) -> None:
    engine = SparkEngine(spark, cast("Tables", tables), spool=str(tmp_path / "s"), running=1)
    client = connected(engine)
    slow, waits = (client.execute(client.prepare(SLOW)) for _ in range(2))
    waits.cancel()
    with pytest.raises(SqlError):
        list(waits.batches())
    assert engine.load() == (1, 0)
    slow.close()
    idle(engine, spark)
    engine.stop()


def test_cancelling_does_not_wait_for_planning(
    engine: SparkEngine, tables: FileTables, spark: SparkSession
) -> None:
    people, gate = tables.relations["public", "people"], Stuck.gate
    tables.relations["public", "people"] = Stuck(
        "public", "people", people.path, people.columns, people.spark_columns
    )
    gate.set()
    client = connected(engine)
    prepared = client.prepare("SELECT id FROM people")
    gate.clear()
    execution = client.execute(prepared)
    wait_until(lambda: state(engine, execution) is QueryState.PLANNING)
    execution.cancel()
    with pytest.raises(SqlError):
        list(execution.batches())
    assert engine.load() == (1, 0)
    gate.set()
    idle(engine, spark)


def test_errors_of_a_running_query_have_postgress_codes(spooling: SparkEngine) -> None:
    client = connected(spooling)
    prepared = client.prepare("SELECT 10 / (id - 2) AS n, id FROM people")
    with pytest.raises(SqlError, match="division by zero") as caught:
        list(client.execute(prepared).batches())
    assert caught.value.sqlstate == "22012"
    info = spooling.queries(ANN)[0]
    assert (info.state, info.sqlstate) == (QueryState.FAILED, "22012")
    assert spooling.load() == (0, 0)


@pytest.mark.usefixtures("endless")
def test_who_waits_for_cores_is_known(engine: SparkEngine, spark: SparkSession) -> None:
    first = connected(engine, ANN).execute(connected(engine, ANN).prepare(SLOW))
    begun(engine, spark, first)
    # What ann holds, and waits for, is wanted by nobody else.
    assert not engine._wanted_by_others(ANN.name)
    second = connected(engine, ADMIN).execute(connected(engine, ADMIN).prepare(SLOW.replace("0", "1")))
    wait_until(lambda: engine._wanted_by_others(ANN.name))
    first.close()
    # Now it has the cores.
    wait_until(lambda: len(spark.sparkContext.statusTracker().getActiveJobsIds()) == 1)
    second.close()
    idle(engine, spark)
    assert not engine._wanted_by_others(ANN.name)
