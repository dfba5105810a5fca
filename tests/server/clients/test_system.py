"""System tables over every protocol, while all cores of Spark are held."""

from __future__ import annotations

import json
import os
import threading
import urllib.request
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import adbc_driver_flightsql.dbapi
import psycopg
import pytest
from psycopg import errors

from tests.server.clients.conftest import ENDLESS, PASSWORDS, Gateway
from tests.server.serve import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNNING = "SELECT count(*) FROM sys.queries q WHERE state = 'RUNNING' AND q.user = 'bob' AND sql = $1"


@pytest.fixture(scope="module")
def busy(gateway: Gateway) -> Iterator[Gateway]:
    """A query of bob's on each core, all the time."""
    cores = os.cpu_count() or 1
    connections = [psycopg.connect(gateway.url("bob"), autocommit=True) for _ in range(cores)]

    def run(connection: psycopg.Connection[Any]) -> None:
        with suppress(psycopg.Error):
            connection.execute(ENDLESS)

    threads = [threading.Thread(target=run, args=[each]) for each in connections]
    for thread in threads:
        thread.start()
    try:
        with psycopg.connect(gateway.url(), autocommit=True, options="-c statement_timeout=60s") as ann:
            asked = RUNNING.replace("$1", "%s")
            wait_until(lambda: ann.execute(asked, [ENDLESS]).fetchone() == (cores,), gateway.serve.why)
        yield gateway
    finally:
        for connection in connections:
            connection.cancel_safe()
        for thread in threads:
            thread.join(60)
        for connection in connections:
            connection.close()


@pytest.fixture
def ann(busy: Gateway) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(busy.url(), autocommit=True, options="-c statement_timeout=60s") as connection:
        yield connection


@pytest.mark.parametrize("binary", [False, True])
def test_simple_and_extended(ann: psycopg.Connection[Any], binary: bool) -> None:
    sql = (
        "SELECT q.user, state, rows, submitted, ended FROM sys.queries q WHERE sql = %s AND state = 'RUNNING'"
    )
    found = ann.cursor(binary=binary).execute(sql, [ENDLESS], prepare=True).fetchall()
    assert len(found) == (os.cpu_count() or 1)
    user, state, rows, submitted, ended = found[0]
    assert (user, state, rows, ended) == ("bob", "RUNNING", 0, None) and submitted.tzinfo is not None
    with psycopg.ClientCursor(ann) as simple:
        assert len(simple.execute(sql, [ENDLESS]).fetchall()) == len(found)
    described = ann.execute("SELECT sum(rows), count(*), max(submitted) FROM sys.queries").description
    assert [column.type_code for column in described or ()] == [1700, 20, 1184]


def test_cursors_and_copy(ann: psycopg.Connection[Any]) -> None:
    with ann.transaction(), ann.cursor("slowly") as cursor:
        cursor.execute(
            "SELECT n, q.user FROM sys.queries q, generate_series(1, 5000) n"
            " WHERE sql = %s AND state = 'RUNNING'",
            [ENDLESS],
        )
        assert [row[1] for row in cursor.fetchmany(3)] == ["bob"] * 3
        assert cursor.fetchone() is not None
    with (
        ann.cursor() as plain,
        plain.copy(
            f"COPY (SELECT DISTINCT q.user, 1.5, sum(0::numeric) FROM sys.queries q WHERE sql = '{ENDLESS}'"
            " AND state = 'RUNNING' GROUP BY 1) TO STDOUT (FORMAT csv)"
        ) as copied,
    ):
        assert b"".join(bytes(part) for part in copied) == b"bob,1.5,0\n"


def test_rights_on_connections_that_are_shared(busy: Gateway, ann: psycopg.Connection[Any]) -> None:
    sql = "SELECT DISTINCT q.user FROM sys.queries q"
    with psycopg.connect(busy.url("eve"), autocommit=True) as eve:
        for _ in range(5):
            assert ("bob",) in ann.execute(sql).fetchall()
            assert eve.execute(sql).fetchall() == [("eve",)]
        with pytest.raises(errors.InsufficientPrivilege):
            eve.execute("SELECT * FROM sys.members")
        assert eve.execute("SELECT current_setting('penstock.sys_queries_1', true)").fetchone() in [
            ("",),
            (None,),
        ]


def test_flight(busy: Gateway) -> None:
    login = {"username": "ann", "password": PASSWORDS["ann"]}
    with (
        adbc_driver_flightsql.dbapi.connect(busy.flight, db_kwargs=login, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(RUNNING, (ENDLESS,))
        assert cursor.fetch_arrow_table().to_pylist() == [{"count": os.cpu_count() or 1}]


def test_http(busy: Gateway) -> None:
    login = b64encode(f"ann:{PASSWORDS['ann']}".encode()).decode()

    def asked(path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{busy.serve.ports['web']}/api/v1/queries{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    told = asked("", {"sql": RUNNING, "parameters": [ENDLESS]})
    assert asked(f"/{told['id']}?wait=30")["state"] != "FAILED"
    assert asked(f"/{told['id']}/result")["rows"] == [[os.cpu_count() or 1]]
