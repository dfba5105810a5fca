"""Spark's JVM ends in the middle of everything: clients stay connected, and go on with the next one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.server.serve import Serve, wait_until

SETTINGS = """
[spark]
fast_start = true
master = "local[2]"
memory = "512m"
conf = {{ "spark.executor.killOnFatalError.depth" = "{depth}" }}

[[tables]]
name = "numbers"
path = "numbers.parquet"
"""
PORTS = ("--port", "0", "--web-port", "0", "--rpc-port", "0")
HUGE = "SELECT collect_list(repeat('x', 100000)) FROM range(50000)"
"""Needs some 5 GB."""
ENDLESS = "SELECT count(*) FROM range(0, 1000000000000, 1, 1)"


def serve(folder: Path, depth: int) -> Serve:
    (folder / "penstock.toml").write_text(SETTINGS.format(depth=depth))
    pq.write_table(pa.table({"n": pa.array(range(1000), pa.int64())}), folder / "numbers.parquet")
    server = Serve(folder, *PORTS)
    server.wait_for("ready")
    return server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """One that keeps Spark alive as long as it can."""
    server = serve(tmp_path_factory.mktemp("lasting"), 0)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """One whose JVM ends when a task finds no memory, as Spark does by default."""
    server = serve(tmp_path_factory.mktemp("fragile"), 5)
    yield server
    server.stop()


def java(server: Serve) -> list[int]:
    found = []
    for pid in server.children():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"SparkSubmit" in command:
            found.append(pid)
    return found


def another(server: Serve, before: list[int]) -> bool:
    return java(server) not in ([], before)


def total(connection: psycopg.Connection[Any], table: str = "numbers") -> int:
    found = connection.execute(f"SELECT sum(n)::bigint FROM {table}").fetchone()
    assert found is not None
    return int(found[0])


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException | object]]:
    results: list[BaseException | object] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def running(watcher: psycopg.Connection[Any], text: str) -> bool:
    sql = "SELECT count(*) FROM sys.queries WHERE state = 'RUNNING' AND sql LIKE %s"
    found = watcher.execute(sql, [f"{text}%"]).fetchone()
    return found is not None and found[0] > 0


def test_a_query_without_memory_fails_alone(server: Serve) -> None:
    before = java(server)
    with server.connect() as bob, server.connect() as ann:
        with pytest.raises(psycopg.Error) as told:
            bob.execute(HUGE)
        assert told.value.sqlstate == "53200"
        assert total(ann) == total(bob) == 499_500
    assert java(server) == before


def test_clients_stay_and_go_on_when_the_jvm_is_killed(server: Serve) -> None:
    with server.connect() as ann, server.connect() as bob, server.connect() as watcher:
        ann.execute("CREATE VIEW even AS SELECT n FROM numbers WHERE n % 2 = 0")
        prepared = bob.execute("SELECT count(*) FROM numbers WHERE n < %s", [10], prepare=True).fetchone()
        assert prepared == (10,)
        thread, results = in_thread(lambda: ann.execute(ENDLESS))
        wait_until(lambda: running(watcher, ENDLESS))
        [pid] = java(server)
        os.kill(pid, signal.SIGKILL)
        thread.join(60)
        [error] = results
        assert isinstance(error, psycopg.Error) and error.sqlstate == "57P02"
        # What needs no Spark is answered meanwhile; what needs it waits.
        assert watcher.execute("SELECT 1").fetchone() == (1,)
        assert total(ann) == 499_500
        assert total(bob, "even") == 249_500
        again = bob.execute("SELECT count(*) FROM numbers WHERE n < %s", [10], prepare=True).fetchone()
        assert again == (10,)
        listed = bob.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        assert {row[0] for row in listed} == {"numbers", "even"}
        ann.execute("DROP VIEW even")
    assert java(server) != [pid] and len(java(server)) == 1


@pytest.mark.soak
def test_a_statement_that_ends_spark_twice_is_refused(fragile: Serve) -> None:
    with fragile.connect() as bob, fragile.connect() as ann:
        for _ in range(2):
            before = java(fragile)
            with pytest.raises(psycopg.Error) as told:
                bob.execute(HUGE)
            assert told.value.sqlstate in ("57P02", "53200")
            wait_until(partial(another, fragile, before))
            # Whoever was in the middle of something sees an error; whoever comes now waits.
            assert total(ann) == 499_500
        pids = java(fragile)
        with pytest.raises(psycopg.Error, match="has ended Spark twice") as told:
            bob.execute(HUGE.lower().replace(" from", "\n  FROM"))
        assert told.value.sqlstate == "53200" and "spark.memory" in str(told.value.diag.message_hint)
        assert total(bob) == 499_500
        assert java(fragile) == pids


def test_the_end_is_prompt_whatever_runs_and_leaves_nothing(fragile: Serve) -> None:
    with fragile.connect() as ann, fragile.connect() as watcher:
        thread, _ = in_thread(lambda: ann.execute(ENDLESS))
        wait_until(lambda: running(watcher, ENDLESS))
        pids = fragile.children()
        begin = time.monotonic()
        assert fragile.stop() == 0
        thread.join(10)
    # Far below what Spark needs to count that far, far above what a busy machine needs to end.
    assert time.monotonic() - begin < 40
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), seconds=20)
