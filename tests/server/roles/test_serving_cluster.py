"""A coordinator, its workers and a second coordinator, as processes: who computes, and what survives whom."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.server.serve import Serve, is_running, wait_until

ROWS = 40_000
SETTINGS = """
[spark]
fast_start = true

[cluster]
lease_ttl = "3s"
renew_every = "1s"
heartbeat_every = "1s"
dead_after = "5s"
worker_cores = 1

[[tables]]
name = "numbers"
path = "numbers"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "penstock.toml").write_text(SETTINGS)
    (folder / "numbers").mkdir()
    for part in range(4):
        begin = part * ROWS // 4
        table = pa.table({"n": pa.array(range(begin, begin + ROWS // 4), pa.int64())})
        pq.write_table(table, folder / "numbers" / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def started(folder: Path) -> Iterator[list[Serve]]:
    servers: list[Serve] = []
    yield servers
    for server in reversed(servers):
        server.stop()


def coordinator(folder: Path, started: list[Serve]) -> Serve:
    ports = ("--port", "0", "--web-port", "0", "--rpc-port", "0")
    server = Serve(folder, "--role", "coordinator", *ports)
    started.append(server)
    return server


def worker(folder: Path, started: list[Serve], name: str, host: str, *coordinators: Serve) -> Serve:
    addresses = ",".join(f"127.0.0.1:{each.ports['rpc']}" for each in coordinators)
    options = ("--role", "worker", "--bind", host, "--coordinator", addresses, "--worker-id", name)
    server = Serve(
        folder,
        *options,
        cache=folder / f"cache-{name}",
        environ={"PENSTOCK_CLUSTER_JOIN_TOKEN": str(command(folder, "cluster", "token")["join_token"])},
    )
    started.append(server)
    return server


def command(folder: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments, "--json"], cwd=folder, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def tasks_on(server: Serve) -> int:
    """How many tasks executors of a worker have finished, by their own logs."""
    logs = server.cache.glob("gateway/worker-*/work/app-*/*/stderr")
    return sum(log.read_text(errors="replace").count("Finished task") for log in logs)


# A sum over all pairs keeps a core busy for a while, and has a known answer.
HEAVY = "SELECT count(*) FROM numbers a, numbers b WHERE a.n % 7 = b.n % 11"
ANSWER = sum(
    sum(1 for n in range(ROWS) if n % 7 == r) * sum(1 for n in range(ROWS) if n % 11 == r) for r in range(7)
)


def test_coordinator_workers_and_failover(folder: Path, started: list[Serve]) -> None:
    """One story, since every chapter starts where the one before has ended: a cluster takes long to start."""
    first = coordinator(folder, started)
    first.wait_for("ready")
    second = coordinator(folder, started)
    second.wait_for("standing by; leader")
    one = _without_a_worker_nothing_is_computed(folder, started, first, second)
    two = _one_more_shares_the_work(folder, started, first, second)
    _a_worker_that_is_killed_does_not_take_the_query_with_it(folder, first, two)
    _another_one_leads_and_knows_the_same_views(first, second)
    wait_until(lambda: _state(folder, "one") == "alive", one.why)
    _a_leader_that_slept_stands_by(folder, started, second)


class Asking(threading.Thread):
    """A query in a thread of its own; ``answer`` is its first row."""

    def __init__(self, server: Serve, sql: str) -> None:
        super().__init__(daemon=True)
        self.answer: Any = None
        self._server = server
        self._sql = sql
        self.start()

    def run(self) -> None:
        with self._server.connect() as connection:
            self.answer = connection.execute(self._sql).fetchone()


def _without_a_worker_nothing_is_computed(
    folder: Path, started: list[Serve], first: Serve, second: Serve
) -> Serve:
    """The coordinator has no cores of its own. What needs no Spark is answered all the same."""
    waiting = Asking(first, "SELECT count(*) FROM numbers")
    with first.connect() as connection:
        assert connection.execute("SELECT count(*) FROM pg_class").fetchone() is not None
    assert command(folder, "cluster", "status")["gateway"]["workers"] == []
    one = worker(folder, started, "one", "127.0.0.2", first, second)
    one.wait_for("ready")
    waiting.join(150)
    assert waiting.answer == (ROWS,)
    assert tasks_on(one) > 0
    return one


def _one_more_shares_the_work(folder: Path, started: list[Serve], first: Serve, second: Serve) -> Serve:
    two = worker(folder, started, "two", "127.0.0.3", first, second)
    two.wait_for("ready")
    with first.connect() as connection:

        def both() -> bool:
            connection.execute("SELECT sum(n) FROM numbers").fetchone()
            return tasks_on(two) > 0

        wait_until(both, two.why)
        members = "SELECT member, state FROM sys.members WHERE role = 'worker' ORDER BY member"
        assert connection.execute(members).fetchall() == [("one", "alive"), ("two", "alive")]
        connection.execute("CREATE VIEW evens AS SELECT n FROM numbers WHERE n % 2 = 0")
    return two


def _a_worker_that_is_killed_does_not_take_the_query_with_it(folder: Path, first: Serve, two: Serve) -> None:
    heavy = Asking(first, HEAVY)
    wait_until(lambda: _state_of(first, HEAVY) == "RUNNING", first.why)
    executors = [pid for pid in two.children() if is_running(pid)]
    two.kill()
    heavy.join(200)
    assert heavy.answer == (ANSWER,)
    wait_until(lambda: not any(map(is_running, executors)))
    wait_until(lambda: _state(folder, "two") == "dead", first.why)


def _another_one_leads_and_knows_the_same_views(first: Serve, second: Serve) -> None:
    pids = first.children()
    first.kill()
    second.wait_for("ready")
    wait_until(lambda: not any(map(is_running, pids)))
    hosts, ports = "127.0.0.1,127.0.0.1", f"{first.ports['sql']},{second.ports['sql']}"
    with psycopg.connect(f"host={hosts} port={ports} user=penstock dbname=penstock") as connection:
        assert connection.execute("SELECT count(*) FROM evens").fetchone() == (ROWS // 2,)
    with pytest.raises(psycopg.OperationalError):
        first.connect()


def _a_leader_that_slept_stands_by(folder: Path, started: list[Serve], second: Serve) -> None:
    """It wakes up, finds that another one leads, and sends its clients there."""
    third = coordinator(folder, started)
    third.wait_for("standing by; leader")
    with second.connect() as sleeper:
        told = len(second.told)
        second.pause(folder / ".penstock" / "store.db")
        try:
            third.wait_for("leading with token 3")
        finally:
            second.process.send_signal(signal.SIGCONT)
        second.wait_for("standing by; leader", told)
        with pytest.raises(psycopg.OperationalError):
            sleeper.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="stands by"):
        second.connect()
    third.wait_for("ready")
    with third.connect() as connection:
        assert connection.execute("SELECT relname FROM pg_class WHERE relname = 'evens'").fetchone()


def _state_of(server: Serve, sql: str) -> str:
    """The state of a query as HTTP tells it, which needs no core of a worker."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.ports['web']}/api/v1/queries") as answer:
        found = json.load(answer)
    return next((str(each["state"]) for each in found["queries"] if each["sql"] == sql), "")


def _state(folder: Path, name: str) -> str:
    found = {each["id"]: each["state"] for each in command(folder, "cluster", "workers")}
    return str(found.get(name, "unknown"))


def test_a_worker_needs_a_token_or_a_certificate(tmp_path: Path) -> None:
    server = Serve(tmp_path, "--role", "worker")
    assert server.process.wait(60) == 2
    assert "cluster token" in server.log.read_text()
