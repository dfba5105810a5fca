"""Owners that are stopped in the middle of a transaction hold up neither the next owner nor other outputs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from penstock.errors import TransientError
from penstock.sinks.postgres import errors
from penstock.sinks.postgres import writer as postgres_writer
from penstock.sinks.postgres.errors import connected
from penstock.sinks.postgres.sink import PostgresSink
from tests.sinks.databases import Database
from tests.sinks.support import Bench, Rows, number, plain, sales

LOCK = "SELECT 1 FROM penstock_progress WHERE application = 'penstock/sales/s1/out' FOR UPDATE"


def test_an_owner_that_is_stopped_in_its_transaction_holds_up_nobody(
    output: Bench, database: Database, tmp_path: Path
) -> None:
    rows = [(n, "a", n) for n in range(10)]
    with stopped_owner(tmp_path, database, rows) as zombie:
        sink = PostgresSink(database.url, "sale")
        next_owner = output.open(sink, 2)
        next_owner.write(output.frame(rows), number(0))
        output.open(sink, 1, output="other").write(output.frame(sales(1)), number(0))
        zombie.send_signal(signal.SIGCONT)
        assert zombie.wait(120) != 0
    assert database.rows("sale") == plain(rows + sales(1))


def test_other_outputs_do_not_wait_for_one_that_waits(
    output: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is held by somebody that we cannot end and that goes on."""
    monkeypatch.setattr(postgres_writer, "_FENCE_SECONDS", 0.2)
    sink = PostgresSink(database.url, "sales")
    output.open(sink, 1)
    with psycopg.connect(database.url) as holder:
        holder.execute(LOCK)
        with pytest.raises(TransientError, match="lock timeout"):
            output.open(sink, 2)
        output.open(sink, 1, output="other").write(output.frame(sales(0)), number(0))
        output.open(PostgresSink(database.url, "new", create=True), 1, output="new")
    output.open(sink, 2).write(output.frame(sales(1)), number(0))
    assert database.rows() == plain(sales(0) + sales(1))


def test_a_batch_does_not_wait_for_a_lock_without_end(
    output: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "LOCK_SECONDS", 0.2)
    writer = output.open(PostgresSink(database.url, "sales"), 1)
    with psycopg.connect(database.url) as holder:
        holder.execute("LOCK TABLE sales IN SHARE MODE")
        with pytest.raises(TransientError, match="lock timeout"):
            writer.write(output.frame(sales(0)), number(0))
    writer.write(output.frame(sales(0)), number(0))
    assert database.rows() == plain(sales(0))


def test_the_server_ends_a_transaction_of_ours_in_which_nothing_happens(
    output: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the next owner may not end it itself: here it does not know the name."""
    sink = PostgresSink(database.url, "sales")
    output.open(sink, 1)
    with monkeypatch.context() as patched:
        patched.setattr(errors, "IDLE_SECONDS", 0.5)
        stuck = connected(database.url, "somebody")
        stuck.__enter__().execute(LOCK)
        output.open(sink, 2).write(output.frame(sales(0)), number(0))
        with pytest.raises(TransientError, match="idle-in-transaction"):
            stuck.__exit__(None, None, None)
    assert database.rows() == plain(sales(0))


def test_connections_of_later_owners_are_left_alone(output: Bench, database: Database) -> None:
    sink = PostgresSink(database.url, "sales")
    later = output.open(sink, 3)
    with later._connected() as connection:  # type: ignore[attr-defined]
        with pytest.raises(Exception, match="taken over"):
            output.open(sink, 2)
        assert connection.execute("SELECT 1").fetchone() == (1,)


@contextmanager
def stopped_owner(place: Path, database: Database, rows: Rows) -> Iterator[subprocess.Popen[bytes]]:
    """A process that was stopped when it had moved its batch, and not committed."""
    (place / "in").mkdir()
    lines = [json.dumps(dict(zip(("id", "city", "amount"), row, strict=True))) for row in rows]
    (place / "in" / "0.json").write_text("\n".join(lines))
    command = [sys.executable, "-m", "tests.sinks.child", "postgres", str(place), database.url, "1"]
    environment = {**os.environ, "PENSTOCK_FAILPOINTS": "sink.postgres.moved=stop"}
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 180
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert process.poll() is None and time.monotonic() < deadline, (place / "log").read_text()[-2000:]
            time.sleep(0.05)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
