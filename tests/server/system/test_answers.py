"""Queries of system tables: PostgreSQL answers them, whatever Spark does, and Spark where it cannot."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.config import Config, TableConfig
from penstock.errors import PeerUnreachable, SqlError
from penstock.server.base import Execution, QueryInfo, QueryState, Relay, User
from penstock.server.engine import SparkEngine
from penstock.server.engine.connection import SparkConnection
from penstock.server.engine.planning.systems import LongTables
from penstock.server.engine.running.admission import Turns
from penstock.server.engine.running.relaying import ListedRelay
from penstock.server.pgwire.session.portals import Portal
from penstock.server.relations import Tables
from penstock.server.session_settings import Settings
from penstock.server.shadow import Shadow, feeding
from penstock.server.system import SystemTables
from penstock.server.system.shapes import SHAPES
from penstock.storage import Storage
from penstock.store import open_store
from penstock.store.memory import MemoryStore
from penstock.types import postgres as pg
from tests.server.engine.standins import ADMIN, ANN, connected, pulled, rows
from tests.server.serve import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RITA = User("rita", schemas=frozenset({"public", "run 1"}))
COUNT = 7
TEXTS = ("run 1", 'O\'Hara \\ "ü"', "", "NULL", "{a,b}", "run 1", None)


class Invented(SystemTables):
    """Rows in every table, of every kind; queries are real."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), Storage("nowhere"), Config(store="", storage=""))
        self.before: Callable[[], None] = lambda: None
        self.long: Mapping[str, int] = {}

    def _shown(self, name: str, user: User) -> Sequence[Mapping[str, Any]]:
        self.before()
        self._rows = {name: lambda: _invented(name, self.long.get(name, COUNT))}
        return list(super()._shown(name, user))


def _invented(name: str, count: int) -> list[Mapping[str, Any]]:
    made: dict[pa.DataType, Callable[[int], Any]] = {
        pa.string(): lambda n: TEXTS[n % COUNT],
        pa.int64(): lambda n: None if n == 3 else n * 10**15,
        pa.float64(): lambda n: None if n == 2 else n / 7,
        pa.bool_(): lambda n: (True, False, None)[n % 3],
        pa.list_(pa.string()): lambda n: (list(TEXTS), [], None)[n % 3],
        pa.timestamp("us", "UTC"): lambda n: None if n == 1 else _moment(n),
    }
    return [{f.name: made[f.type](number) for f in SHAPES[name]} for number in range(count)]


def _moment(number: int) -> dt.datetime:
    return dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC) + dt.timedelta(microseconds=number * 10**9 + 1)


class Place:
    """Two engines over the same tables: with a shadow catalog, and without."""

    def __init__(self, spark: SparkSession, folder: Path, stack: ExitStack) -> None:
        self.spark = spark
        self.shadow = Shadow(folder / "shadow")
        self.shadow.start()
        stack.callback(self.shadow.stop)
        assert self.shadow.problem is None
        store = stack.enter_context(open_store(f"sqlite:///{folder}/store.db"))
        pq.write_table(pa.table({"run": ["run 1", "other"], "n": [1, 2]}), folder / "t.parquet")
        configured = [TableConfig(name="t", path=str(folder / "t.parquet"), format="parquet")]
        self.system = Invented()
        self.tables = Tables(
            spark, store, Storage(folder / "storage"), configured, [str(folder)], [self.system]
        )
        stack.callback(self.tables.close)
        users = (ANN, ADMIN, RITA)
        self.engine = SparkEngine(
            spark, self.tables, spool=str(folder / "spool"), shadow=self.shadow, users=lambda: users
        )
        stack.callback(self.engine.stop)
        self.plain = SparkEngine(spark, self.tables, spool=str(folder / "spool"))
        stack.callback(self.plain.stop)


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(spark, tmp_path_factory.mktemp("answers"), stack)


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    shared.system.queries = shared.engine.queries
    shared.system.before = lambda: None
    shared.system.long = {}
    shared.engine._long = LongTables()
    yield shared
    wait_until(lambda: shared.engine._turns._taken.total() == 0, seconds=30)


def answered_by_shadow(execution: Execution) -> bool:
    return isinstance(execution, ListedRelay)


def relayed(connection: SparkConnection, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows of a statement that must not go to Spark."""
    execution = connection.execute(connection.prepare(sql), values)
    assert answered_by_shadow(execution), sql
    table = pulled(execution)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


# ---------------------------------------------------------------- equal


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_both_ways_tell_the_same(place: Place, name: str) -> None:
    past = QueryInfo(
        "1", "ann", "http", "a", "b", TEXTS[1] or "", QueryState.FAILED, 1.5, 2.5, None, 3, 4, "x", "22012"
    )
    place.system.queries = lambda _: [past]
    sql = f"SELECT * FROM sys.{name}"
    ours, others = connected(place.engine), connected(place.plain)
    mine = pulled(ours.execute(ours.prepare(sql)))
    theirs = pulled(others.execute(others.prepare(sql)))
    assert mine.num_rows == (1 if name == "queries" else COUNT)
    assert mine.to_pylist() == theirs.to_pylist()
    assert mine.schema.types == theirs.schema.types
    described = [
        [(c.name, c.oid, c.typmod) for c in each.prepare(sql).columns or ()] for each in (ours, others)
    ]
    assert described[0] == described[1]


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_columns_are_named_without_quotes(place: Place, name: str) -> None:
    """But for ``user``, which is who asks."""
    past = QueryInfo("1", "somebody", "http", "a", "b", "c", QueryState.FAILED, 1.5)
    place.system.queries = lambda _: [past]
    columns = ", ".join('"user"' if each == "user" else each for each in SHAPES[name].names)
    client = connected(place.engine)
    assert relayed(client, f"SELECT {columns} FROM sys.{name}") == relayed(
        client, f"SELECT * FROM sys.{name}"
    )


def test_user_is_who_asks_unless_it_is_quoted(place: Place) -> None:
    place.system.queries = lambda _: [
        QueryInfo("1", name, "http", "a", "b", "user", QueryState.FAILED, 1.5) for name in ("bob", "eve")
    ]
    client = connected(place.engine)
    sql = "SELECT 'user', USER, q.user, \"user\" FROM sys.queries q WHERE \"user\" <> 'bob' AND user <> 'eve'"
    assert relayed(client, sql) == [("user", "ann", "eve", "eve")]


# ---------------------------------------------------------------- without Spark


@contextmanager
def every_core_held(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Tasks on all cores that end when the block does."""
    cores = spark.sparkContext.defaultParallelism
    ends = str(folder / "ends")

    def hold(number: int) -> None:
        import time
        from pathlib import Path

        Path(ends).with_name(f"held-{number}").touch()
        while not Path(ends).exists():
            time.sleep(0.01)

    held = spark.sparkContext.parallelize(range(cores), cores)
    thread = threading.Thread(target=held.foreach, args=[hold])
    thread.start()
    try:
        wait_until(lambda: len(list(folder.glob("held-*"))) == cores)
        yield
        assert thread.is_alive()
    finally:
        Path(ends).touch()
        thread.join(60)


def test_they_answer_while_every_core_is_held(place: Place, tmp_path: Path) -> None:
    ann = connected(place.engine)
    root = connected(place.engine, ADMIN, {"statement_timeout": "60s"})
    with every_core_held(place.spark, tmp_path):
        waiting = ann.execute(ann.prepare("SELECT run, sum(n) FROM t GROUP BY run"))
        state = "SELECT q.user, state FROM sys.queries q WHERE id = $1"
        wait_until(lambda: relayed(root, state, waiting.id) == [("ann", "RUNNING")])
        for name in SHAPES:
            assert relayed(root, f"SELECT count(*) > 0 FROM sys.{name}") == [(True,)]
        # Types that must be exact are Spark's to tell, and it needs no core for that.
        prepared = root.prepare("SELECT sum(rows) FROM sys.runs", exact=True)
        assert pulled(root.execute(prepared)).num_rows == 1
        assert relayed(root, state, waiting.id) == [("ann", "RUNNING")]
    assert sum(batch.num_rows for batch in waiting.batches()) == 2
    waiting.close()


def test_parameters_joins_and_the_catalog(place: Place) -> None:
    client = connected(place.engine)
    sql = "SELECT p.begin_row FROM sys.partitions p WHERE run = $1 AND begin_row >= $2 ORDER BY 1"
    assert client.prepare(sql).parameters == (pg.TEXT, pg.INT8)
    assert relayed(client, sql, "run 1", 1) == [(5 * 10**15,)]
    assert relayed(client, sql, None, 1) == []
    joined = (
        "WITH mine AS (SELECT run, rows FROM sys.runs) SELECT count(*), sum(mine.rows) FROM mine"
        " JOIN sys.partitions p USING (run) LEFT JOIN sys.checkpoints c ON c.run = p.run AND c.stage = 0"
    )
    [(count, total)] = relayed(client, joined)
    assert [(count, total)] == rows(connected(place.plain), joined)
    again = "SELECT count(*) FROM sys.runs a, sys.runs b, generate_series(1, 3)"
    assert relayed(client, again) == [(COUNT * COUNT * 3,)]
    described = (
        "SELECT count(*) FROM sys.runs r JOIN pg_catalog.pg_class c ON c.relname = 'runs' AND c.relkind = 'v'"
    )
    assert relayed(client, described) == [(COUNT,)]
    inner = connected(place.engine, settings={"search_path": "sys"})
    assert relayed(inner, "SELECT count(*) FROM runs") == [(COUNT,)]


def test_numbers_have_the_digits_that_they_had(place: Place) -> None:
    sql = "SELECT sum(rows) AS total, max(rows) AS most, 1.50 AS price, avg(partitions) AS mean FROM sys.runs"
    total = 18 * 10**15
    mean = Decimal(total) / 6
    ours = connected(place.engine)
    assert [row[:3] for row in relayed(ours, sql)] == [(Decimal(total), 6 * 10**15, Decimal("1.50"))]
    assert str(relayed(ours, sql)[0][0]) == str(total)
    exact = ours.prepare(sql, exact=True)
    table = pulled(ours.execute(exact))
    assert [column.type for column in exact.columns or ()] == table.schema.types
    others = connected(place.plain)
    theirs = others.prepare(sql, exact=True)
    assert table.schema.types[:2] == [column.type for column in theirs.columns or ()][:2]
    assert table["mean"].to_pylist() == [mean]


def test_explain_tells_postgresqls_plan(place: Place) -> None:
    client = connected(place.engine)
    plain = relayed(client, "EXPLAIN SELECT \"user\" FROM sys.runs, sys.queries WHERE run = 'a'")
    assert any("Function Scan on runs" in line for (line,) in plain)
    ran = relayed(client, "EXPLAIN ANALYZE SELECT count(*) FROM sys.runs")
    assert any(f"rows={COUNT}" in line.replace(".00", "") for (line,) in ran)


# ---------------------------------------------------------------- with Spark


def test_what_reads_other_tables_is_sparks(place: Place) -> None:
    client = connected(place.engine)
    rows(client, "CREATE VIEW seen AS SELECT run, rows FROM sys.runs")
    try:
        for sql, wanted in {
            "SELECT count(*) FROM sys.runs JOIN t USING (run)": [(2,)],
            "SELECT count(*) FROM seen": [(COUNT,)],
            "SELECT count(*) FROM seen JOIN sys.runs r ON r.run = seen.run": [(8,)],
        }.items():
            execution = client.execute(client.prepare(sql))
            assert not isinstance(execution, Relay)
            execution.close()
            assert rows(client, sql) == wanted
    finally:
        rows(client, "DROP VIEW seen")
    spoken = connected(place.engine, settings={"penstock.sql": "spark"})
    assert not isinstance(spoken.execute(spoken.prepare("SELECT count(*) FROM sys.runs")), Relay)
    assert rows(spoken, "SELECT count(*) FROM sys.runs") == [(COUNT,)]
    # PostgreSQL has no such function.
    assert rows(client, "SELECT size(collect_list(run)) FROM sys.runs") == [(COUNT - 1,)]


def test_without_a_shadow_spark_answers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connected(place.engine)
    sql = "SELECT count(*), sum(rows) FROM sys.runs WHERE run = $1"
    before = client.prepare(sql)
    wanted = [(2, Decimal(5 * 10**15))]
    monkeypatch.setattr(place.shadow, "problem", "it was switched off")
    assert rows(client, sql, "run 1") == wanted
    # Also for what was prepared while there was one.
    execution = client.execute(before, ["run 1"])
    assert [tuple(row.values()) for row in pulled(execution).to_pylist()] == wanted


def test_too_many_rows_are_sparks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "MOST", 50_000)
    place.system.long = {"partitions": 2_000}
    client = connected(place.engine)
    sql = "SELECT run, count(*), sum(begin_row) FROM sys.partitions WHERE run = $1 GROUP BY run"
    assert relayed(client, sql, "run 1") == rows(connected(place.plain), sql, "run 1", oids=[pg.TEXT])
    [info] = [info for info in place.engine.queries(ANN) if info.sql == sql]
    assert (info.state, info.rows) == (QueryState.FINISHED, 1)
    # It is not tried again at once.
    assert not isinstance(client.execute(client.prepare(sql), ["run 1"]), Relay)
    assert relayed(connected(place.engine), "SELECT count(*) FROM sys.runs") == [(COUNT,)]
    assert rows(client, "EXPLAIN SELECT * FROM sys.partitions")[0][0].startswith("== Physical Plan")
    with pytest.raises(SqlError) as caught:
        rows(client, "SELECT count(*) FROM sys.partitions, pg_catalog.pg_class")
    assert caught.value.sqlstate == "54000"


@pytest.mark.parametrize("binary", [0, 1])
def test_a_client_gets_the_same_bytes_either_way(
    place: Place, monkeypatch: pytest.MonkeyPatch, binary: int
) -> None:
    client = connected(place.engine)
    sql = "SELECT * FROM sys.runs ORDER BY rows, run"

    def sent() -> bytes:
        prepared = client.prepare(sql)
        portal = Portal(prepared.columns, "SELECT", formats=[binary], execution=client.execute(prepared))
        parts = [bytes(each) for _, part in portal.encoded(None, Settings()) for each in part]
        portal.close()
        return b"".join(parts)

    by_shadow = sent()
    monkeypatch.setattr(feeding, "MOST", 10)
    assert sent() == by_shadow


def test_what_is_too_much_for_the_shadow_is_not_for_spark(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> Relay:
        raise SqlError("out of memory", sqlstate="53200")

    monkeypatch.setattr(place.shadow, "run", full)
    assert rows(connected(place.engine), "SELECT count(*) FROM sys.runs") == [(COUNT,)]


def test_a_name_that_means_another_table_by_now(place: Place) -> None:
    client = connected(place.engine, settings={"search_path": "public, sys"})
    sql = "SELECT count(*) FROM runs"
    before = client.prepare(sql)
    assert answered_by_shadow(client.execute(before))
    rows(client, "CREATE VIEW runs AS SELECT 1 AS one")
    try:
        assert pulled(client.execute(before)).to_pylist() == [{"count": 1}]
        assert rows(client, sql) == [(1,)]
    finally:
        rows(client, "DROP VIEW runs")
    assert relayed(client, sql) == [(COUNT,)]


# ---------------------------------------------------------------- who sees what


def test_everybody_sees_what_is_theirs(place: Place) -> None:
    ann, rita, root = (connected(place.engine, user) for user in (ANN, RITA, ADMIN))
    sql = "SELECT run FROM sys.runs ORDER BY rows"
    for _ in range(3):
        assert [row[0] for row in relayed(ann, sql)].count("run 1") == 2 and len(relayed(ann, sql)) == COUNT
        assert relayed(rita, sql) == [("run 1",), ("run 1",)]
    with pytest.raises(SqlError, match="permission denied for table members") as caught:
        relayed(rita, "SELECT count(*) FROM sys.members")
    assert caught.value.sqlstate == "42501"
    seen = "SELECT DISTINCT q.user FROM sys.queries q"
    assert relayed(ann, seen) == [("ann",)]
    assert relayed(rita, seen) == [("rita",)]
    assert {("ann",), ("rita",), ("root",)} <= set(relayed(root, seen))


def test_rights_that_are_taken_away_count_at_once(place: Place) -> None:
    """On the same connection to the shadow, and for what was prepared before."""
    was, now = User("boss", admin=True), User("boss", schemas=frozenset({"run 1"}))
    sql, seen = "SELECT count(*) FROM sys.runs", "SELECT DISTINCT q.user FROM sys.queries q"
    relayed(connected(place.engine, User("somebody")), seen)
    assert relayed(connected(place.engine, was), sql) == [(COUNT,)]
    assert len(relayed(connected(place.engine, was), seen)) > 1
    assert relayed(connected(place.engine, now), sql) == [(2,)]
    assert relayed(connected(place.engine, now), seen) == [("boss",)]


def test_a_query_sees_itself_while_it_is_planned(place: Place) -> None:
    client = connected(place.engine, User("self"))
    sql = "SELECT state, sql, rows FROM sys.queries"
    assert relayed(client, sql) == [("PLANNING", sql, 0)]
    assert relayed(client, f"{sql} WHERE state <> 'PLANNING'") == [("FINISHED", sql, 1)]
    # As it does where Spark answers.
    place.system.queries = place.plain.queries
    assert rows(connected(place.plain, User("self")), sql) == [("PLANNING", sql, 0)]


# ---------------------------------------------------------------- a store that does not answer


def test_it_is_cancelled_at_once_while_the_store_does_not_answer(place: Place) -> None:
    asked, go = threading.Event(), threading.Event()

    def stuck() -> None:
        asked.set()
        assert go.wait(60)

    place.system.before = stuck
    client = connected(place.engine, User("cy"))
    execution = client.execute(client.prepare("SELECT count(*) FROM sys.runs"))
    told: list[SqlError] = []

    def pull() -> None:
        try:
            list(execution.batches())
        except SqlError as error:
            told.append(error)

    thread = threading.Thread(target=pull)
    thread.start()
    try:
        assert asked.wait(30)
        assert place.engine.cancel(execution.id, User("cy"))
        thread.join(30)
        assert [error.sqlstate for error in told] == ["57014"]
        assert place.engine.queries(User("cy"))[0].state is QueryState.CANCELED
        hurried = connected(place.engine, User("cy"), {"statement_timeout": "50ms"})
        with pytest.raises(SqlError, match="statement timeout"):
            rows(hurried, "SELECT count(*) FROM sys.runs")
    finally:
        go.set()
        thread.join(30)


def test_a_store_that_is_gone_is_told(place: Place) -> None:
    def gone() -> None:
        raise PeerUnreachable("the store does not answer")

    place.system.before = gone
    with pytest.raises(SqlError, match="the store does not answer"):
        rows(connected(place.engine), "SELECT count(*) FROM sys.runs")


# ---------------------------------------------------------------- turns


def test_tables_that_were_too_long_are_remembered_for_a_while() -> None:
    now = [0.0]
    long = LongTables(lambda: now[0])
    runs, partitions = ("sys", "runs"), ("sys", "partitions")
    long.note(ANN, {runs: pa.table({"a": [1]}), partitions: pa.table({"a": [1, 2]})})
    assert long.among(ANN, [runs, partitions]) and not long.among(ANN, [runs])
    assert not long.among(ADMIN, [partitions])
    now[0] = 61
    assert not long.among(ANN, [partitions])


def test_one_user_leaves_turns_for_others() -> None:
    turns, done = Turns(4), []
    for _ in range(2):
        turns.take("ann", lambda: True)

    def third() -> None:
        turns.take("ann", lambda: True)
        done.append("ann")

    waiting = threading.Thread(target=third)
    waiting.start()
    turns.take("bob", lambda: True)
    assert done == [] and waiting.is_alive()
    turns.give("ann")
    waiting.join(30)
    assert done == ["ann"]


def test_many_clients_at_once_all_get_their_answers(place: Place) -> None:
    found: list[Any] = []

    def ask(user: User) -> None:
        found.append(rows(connected(place.engine, user), "SELECT count(*) FROM sys.runs, sys.partitions"))

    users = [ANN, ADMIN] * 15
    threads = [threading.Thread(target=ask, args=[user]) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [[(COUNT * COUNT,)]] * len(users)
