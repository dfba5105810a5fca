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

from tests.gateway.serve import Serve, is_running, wait_until

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
    first = coordinator(folder, started)
    first.wait_for("ready")
    second = coordinator(folder, started)
    second.wait_for("standing by; leader")
    answers: list[Any] = []

    def ask(sql: str) -> threading.Thread:
        def run() -> None:
            with first.connect() as connection:
                answers.append(connection.execute(sql).fetchone())

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    # Without a worker nothing is computed: the coordinator has no cores of its own.
    waiting = ask("SELECT count(*) FROM numbers")
    with first.connect() as connection:
        running = "SELECT count(*) FROM pg_class"  # what needs no Spark is answered
        assert connection.execute(running).fetchone() is not None
    assert command(folder, "cluster", "status")["gateway"]["workers"] == []
    one = worker(folder, started, "one", "127.0.0.2", first, second)
    one.wait_for("ready")
    waiting.join(120)
    assert answers == [(ROWS,)]
    assert tasks_on(one) > 0

    # One more shares the work of the next query.
    two = worker(folder, started, "two", "127.0.0.3", first, second)
    two.wait_for("ready")
    with first.connect() as connection:

        def both() -> bool:
            connection.execute("SELECT sum(n) FROM numbers").fetchone()
            return tasks_on(two) > 0

        wait_until(both, two.why)
        shown = connection.execute(
            "SELECT member, state FROM sys.members WHERE role = 'worker' ORDER BY member"
        ).fetchall()
        assert shown == [("one", "alive"), ("two", "alive")]
        connection.execute("CREATE VIEW evens AS SELECT n FROM numbers WHERE n % 2 = 0")

    # A worker that is killed in the middle of a query does not take the query with it.
    answers.clear()
    heavy = ask(HEAVY)
    wait_until(lambda: _state_of(first, HEAVY) == "RUNNING", first.why)
    executors = [pid for pid in two.children() if is_running(pid)]
    two.kill()
    heavy.join(150)
    assert answers == [(ANSWER,)]
    wait_until(lambda: not any(map(is_running, executors)))
    wait_until(lambda: _state(folder, "two") == "dead", first.why)

    # The leader dies: the other one leads, workers come to it, and it knows the same views.
    pids = first.children()
    first.kill()
    second.wait_for("ready")
    wait_until(lambda: not any(map(is_running, pids)))
    hosts, ports = "127.0.0.1,127.0.0.1", f"{first.ports['sql']},{second.ports['sql']}"
    with psycopg.connect(f"host={hosts} port={ports} user=penstock dbname=penstock") as connection:
        assert connection.execute("SELECT count(*) FROM evens").fetchone() == (ROWS // 2,)
    assert _state(folder, "one") == "alive"
    with pytest.raises(psycopg.OperationalError):
        first.connect()

    # A leader that sleeps through its own replacement finds that another one leads, and sends clients there.
    third = coordinator(folder, started)
    third.wait_for("standing by; leader")
    with second.connect() as sleeper:
        told = len(second.told)
        second.process.send_signal(signal.SIGSTOP)
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
