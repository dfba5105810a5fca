"""What is there after a restart, and after the end of a server that had no time to tidy up."""

from __future__ import annotations

import threading
from contextlib import suppress

import psycopg

from tests.server.clients.conftest import ENDLESS, Gateway
from tests.server.serve import is_running, wait_until


def test_a_kill_leaves_nothing_behind_and_loses_nothing(gateway: Gateway) -> None:
    gateway.asked(
        "CREATE SCHEMA kept; CREATE VIEW kept.big AS SELECT n_name FROM nation WHERE n_nationkey > 20;"
        "CREATE TABLE kept.rates USING csv OPTIONS (header 'true') LOCATION 'data/rates.csv';"
        "CREATE VIEW kept.gone AS SELECT 1 AS one; DROP VIEW kept.gone;"
    )
    processes = [gateway.serve.process.pid, *gateway.serve.children()]
    assert len(processes) > 2
    with psycopg.connect(gateway.url(), autocommit=True) as connection:
        thread = threading.Thread(target=_asked, args=(connection,))
        thread.start()
        asked = "SELECT count(*) FROM sys.queries WHERE state = 'RUNNING' AND sql LIKE '%range%'"
        wait_until(lambda: int(gateway.asked(asked)) >= 1, seconds=30)
        gateway.serve.kill()
        thread.join(30)
    wait_until(lambda: not any(is_running(pid) for pid in processes), seconds=30)
    gateway.start()
    assert gateway.asked("SELECT count(*) FROM kept.big") == "4"
    assert gateway.asked("SELECT rate FROM kept.rates WHERE currency = 'USD'") == "1.08"
    assert "kept|big|view" in gateway.asked(r"\dv kept.*") and "gone" not in gateway.asked(r"\dv kept.*")
    assert "rate|" in gateway.asked(r"\d kept.rates")
    gateway.asked("DROP VIEW kept.big; DROP TABLE kept.rates; DROP SCHEMA kept;")
    assert (gateway.folder / "data" / "rates.csv").exists()


def _asked(connection: psycopg.Connection) -> None:
    with suppress(psycopg.OperationalError):
        connection.execute(ENDLESS)
