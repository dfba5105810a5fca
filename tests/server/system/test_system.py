"""System tables over clusters, runs and streams that were really there, and SQL over them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Stream, Table
from penstock.config import Config
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.rules.commands import Prepare
from penstock.control.cluster.rules.model import BarrierAck, BarrierKind
from penstock.errors import SqlError
from penstock.journals import JournalWriter
from penstock.server.base import User
from penstock.server.engine import SparkEngine
from penstock.server.relations import Tables
from penstock.server.roles.worker_records import WorkerBoard
from penstock.server.roles.workers import Offer, Worker
from penstock.server.system import SystemTables, provider
from penstock.server.system.shapes import SHAPES
from penstock.sinks import ParquetSink
from penstock.sources import JournalSource
from penstock.storage import Storage
from penstock.store import Store, open_store
from penstock.store.memory import MemoryStore
from tests.batch.runner.conftest import RUN, opened
from tests.control.cluster.support import CONFIG, KEYS, SCOPE, World
from tests.server.engine.standins import ADMIN, ANN, connected, rows
from tests.streams.station import Station

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = {
    *("queries", "members", "leases", "assignments", "barriers", "epochs"),
    *("frontiers", "runs", "partitions", "checkpoints", "streams"),
}
READER = User("rita", schemas=frozenset({"sys"}))
JOURNAL = "shop/orders/pivot=00"


class Orders(Table):
    order: int


def system(store: Store, storage: Storage | None = None, config: Config | None = None) -> SystemTables:
    return SystemTables(
        store, storage or Storage("nowhere"), config or Config(store="", storage="", cluster=CONFIG)
    )


def shown(tables: SystemTables, name: str, *columns: str) -> list[Any]:
    """The rows of a table: some columns as tuples, one alone as it is."""
    found = tables.rows(name, ADMIN)
    assert found.schema.equals(SHAPES[name])
    picked = [found[column].to_pylist() for column in columns]
    return picked[0] if len(picked) == 1 else list(zip(*picked, strict=True))


def test_all_are_there_when_nothing_is(tmp_path: Path) -> None:
    tables = system(MemoryStore(), Storage(tmp_path))
    assert set(tables.tables()) == NAMES
    assert all(tables.rows(name, ADMIN).num_rows == 0 for name in tables.tables())


def test_a_cluster() -> None:
    world = World("a", "b", "c")
    leader = world.instances[0].leads()
    leader.epoch()
    held, seats = leader.candidate.current(), world.control.assignment.seats
    Room(world.store, KEYS).submit(
        Prepare(held.owner, held.token, SCOPE, BarrierKind.EPOCH, seats, "by hand")
    )
    ack = BarrierAck("a", world.instances[0].session.id, 2, world.control.assignment.version)
    Records(world.store, KEYS).write_ack(SCOPE, ack)
    world.instances[2].die()
    offer = Offer("w1", "10.0.0.2", 4, "1g", "0.1.0")
    WorkerBoard(world.store, "c1", 3).show(Worker(offer, 1, 0.0, "2026-01-05T12:00:00Z"))

    tables = system(world.store)
    members = shown(tables, "members", "cluster", "member", "role", "leads", "capacity")
    assert members == [
        ("test", "a", "node", True, 1),
        ("test", "b", "node", False, 1),
        ("test", "c", "node", False, 1),
        ("test", "w1", "worker", False, 4),
    ]
    states = dict(shown(tables, "members", "member", "state"))
    assert states["a"] == states["b"] != states["c"] and states["w1"] == "alive"
    assert shown(tables, "leases", "kind", "name", "owner", "token", "alive") == [
        ("leader", "test", "a", 1, True)
    ]
    owners = shown(tables, "assignments", "vnode", "member")
    assert [vnode for vnode, _ in owners] == list(range(CONFIG.vnodes))
    assert {member for _, member in owners} == {"a", "b", "c"}
    assert shown(tables, "barriers", "scope", "epoch", "required", "acked", "missing", "gone") == [
        (SCOPE, 2, ["a", "b", "c"], ["a"], ["b", "c"], ["c"])
    ]
    assert shown(tables, "epochs", "scope", "epoch", "outcome", "acked", "reason") == [
        (SCOPE, 1, "commit", ["a", "b", "c"], None)
    ]


def test_a_run_that_crashed(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, spark) as place:
        place.run(max_batches=1, claims=1)
        place.run_until_checkpoint(stages=2)
        tables = system(place.store, place.storage)
        assert shown(tables, "runs", "run", "state", "partitions", "completed", "claimed", "rows") == [
            (RUN, "resumable", 4, 1, 1, 4_000)
        ]
        assert sorted(shown(tables, "partitions", "state")) == ["claimed", "completed", "pending", "pending"]
        [(begin, end)] = [
            (begin, end)
            for begin, end, state in shown(tables, "partitions", "begin_row", "end_row", "state")
            if state == "claimed"
        ]
        assert shown(tables, "leases", "kind", "name", "owner") == [("claim", f"{RUN} {begin}-{end}", "here")]
        saved = tables.rows("checkpoints", ADMIN).to_pylist()
        assert [(each["run"], each["begin_row"], each["problem"]) for each in saved] == [
            (RUN, begin, None)
        ] * len(saved)
        assert saved[-1]["rows"] > 0 and saved[-1]["bytes"] > 0 and "trades" in saved[-1]["tables"]
        for path, _ in place.storage.list():
            if Path(path).name.startswith("stage-") and path.endswith(".json"):
                place.storage.delete(path)
        lost = tables.rows("checkpoints", ADMIN).to_pylist()
        assert all(each["rows"] is None and "missing" in each["problem"] for each in lost)


@pytest.fixture
def station(spark: SparkSession, tmp_path: Path) -> Iterator[Station]:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    (tmp_path / "journals").mkdir()
    with JournalWriter(tmp_path / "journals", sync=False) as writer:
        writer.append(JOURNAL, [{"order": number} for number in range(5)])
    stream = Stream("shop")
    source = JournalSource(tmp_path / "journals", Orders, prefix="shop/", key=["/order"])
    stream.output("orders", stream.source("orders", source), ParquetSink())
    station = Station(spark, stream, tmp_path)
    yield station
    station.close()


def test_a_stream(station: Station) -> None:
    tables = system(station.store, station.storage, station.config)
    assert shown(tables, "streams", "stream", "epoch", "rows") == [("shop", 0, 0)]
    assert shown(tables, "frontiers", "journal") == []
    station.start()
    station.until(lambda: station.log.view().rows == 5, "the rows of the journal")
    [(stream, journal, read, head, behind, producers)] = shown(
        tables, "frontiers", "stream", "journal", "read", "head", "behind", "producers"
    )
    assert (stream, journal, behind, producers) == ("shop", JOURNAL, 0, 1)
    assert read == head > 0
    assert shown(tables, "streams", "stream", "rows", "leader", "instances") == [("shop", 5, "i1", 1)]
    [cluster] = set(shown(tables, "members", "cluster"))
    assert shown(tables, "members", "member", "leads") == [("i1", True)]
    assert "commit" in shown(tables, "epochs", "outcome") and {cluster} == set(
        shown(tables, "epochs", "cluster")
    )


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[SparkEngine]:
    world = World("a", "b")
    world.instances[0].leads().epoch()
    with ExitStack() as stack:
        store = stack.enter_context(open_store(f"sqlite:///{tmp_path}/store.db"))
        known = system(world.store)
        tables = Tables(spark, store, Storage(tmp_path / "storage"), (), [str(tmp_path)], [known])
        stack.callback(tables.close)
        engine = SparkEngine(spark, tables, spool=str(tmp_path / "spool"))
        stack.callback(engine.stop)
        known.queries = engine.queries
        yield engine


def test_they_are_filtered_and_joined_like_any_table(engine: SparkEngine) -> None:
    sql = (
        "SELECT m.member, count(*) AS n FROM sys.members m JOIN sys.assignments a "
        "ON a.cluster = m.cluster AND a.member = m.member WHERE m.leads GROUP BY m.member"
    )
    assert rows(connected(engine), sql) == [("a", CONFIG.vnodes // 2)]
    with pytest.raises(SqlError) as caught:
        connected(engine).prepare("SELECT * FROM sys.nothing")
    assert caught.value.sqlstate == "42P01"


def test_queries_are_shown_to_who_asked_them(engine: SparkEngine) -> None:
    ann, rita, admin = connected(engine, ANN), connected(engine, READER), connected(engine, ADMIN)
    mine = "SELECT member FROM sys.members WHERE member = 'b'"
    assert rows(ann, mine) == [("b",)]
    seen = "SELECT q.user, q.sql, q.state, q.rows FROM sys.queries q"
    wanted = ("ann", mine, "FINISHED", 1)
    assert wanted in rows(ann, seen)
    assert wanted in rows(admin, seen)
    assert {row[0] for row in rows(rita, seen)} == {"rita"}
    with pytest.raises(SqlError):
        rows(ann, "SELECT CAST(member AS INT) AS n FROM sys.members")
    failed = "SELECT q.sqlstate, q.error IS NULL FROM sys.queries q WHERE q.state = 'FAILED'"
    assert rows(ann, failed) == [("22P02", False)]


def test_a_table_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("a")
    world.instances[0].leads().epoch()
    monkeypatch.setattr(provider, "MOST_ROWS", CONFIG.vnodes - 1)
    with pytest.raises(SqlError) as caught:
        system(world.store).rows("assignments", ADMIN)
    assert caught.value.sqlstate == "54000"
