from __future__ import annotations

import http.client
import json
import math
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.server.access import Access, Users
from penstock.server.http import WebServer
from penstock.server.http.results import ResultLimits
from penstock.types import postgres
from penstock.types.postgres import Column
from tests.server.http.browser import Browser
from tests.server.stand_in import StandIn, StandInExecution, answer, constant
from tests.server.waiting import wait_until

BATCH = pa.RecordBatch.from_pydict({"n": list(range(10_000))})


def endless(execution: StandInExecution) -> Iterator[pa.RecordBatch]:
    while True:
        yield BATCH


ENDLESS = answer(BATCH.schema, endless)


def test_a_query_from_beginning_to_end(browser: Browser, engine: StandIn) -> None:
    reply = browser.ask(
        "POST",
        "/api/v1/queries",
        {"sql": "SELECT * FROM numbers;", "settings": {"TimeZone": "Europe/Berlin"}, "wait": 5},
    )
    assert reply.status == 201
    told = reply.json
    assert reply.headers["Location"] == f"/api/v1/queries/{told['id']}"
    assert told["result"] == "ready"
    assert told["user"] == "penstock"
    assert told["protocol"] == "http"
    assert told["columns"] == [
        {"name": "n", "type": "bigint", "nullable": False},
        {"name": "name", "type": "text", "nullable": True},
    ]
    wait_until(lambda: browser.get(reply.headers["Location"]).json["state"] == "FINISHED")
    assert engine.executions[told["id"]].settings.timezone == "Europe/Berlin"
    result = browser.get(f"/api/v1/queries/{told['id']}/result")
    assert result.status == 200
    assert result.headers["Content-Type"] == "application/json"
    assert result.json == {
        "columns": told["columns"],
        "rows": [[1, "a"], [2, None], [3, "c"]],
        "row_count": 3,
        "tag": "SELECT",
        "notices": [],
    }
    again = browser.get(f"/api/v1/queries/{told['id']}/result")
    assert (again.status, again.code) == (410, "gone")
    assert browser.get(reply.headers["Location"]).json["result"] == "gone"
    wait_until(lambda: engine.executions[told["id"]].closed and engine.connections[0].closed)


def test_arrow_and_csv(browser: Browser) -> None:
    result = browser.get(f"/api/v1/queries/{browser.submit()}/result?format=arrow")
    assert result.headers["Content-Type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(result.body).read_all()
    assert table.to_pydict() == {"n": [1, 2, 3], "name": ["a", None, "c"]}
    assert not table.schema.field("n").nullable
    accepted = browser.get(f"/api/v1/queries/{browser.submit()}/result", Accept="text/csv")
    assert accepted.headers["Content-Type"].startswith("text/csv")
    assert accepted.body == b'"n","name"\n1,"a"\n2,\n3,"c"\n'
    wrong = browser.get(f"/api/v1/queries/{browser.submit()}/result?format=xml")
    assert (wrong.status, wrong.code) == (400, "bad-request")


def test_every_type_in_json_and_csv(browser: Browser, engine: StandIn) -> None:
    columns = {
        "big": pa.array([2**53, None], pa.int64()),
        "small": pa.array([2**53 - 1, -5], pa.int64()),
        "decimal": pa.array([Decimal("0.10"), Decimal("-12345678901234567.89")], pa.decimal128(20, 2)),
        "float": pa.array([math.nan, -math.inf], pa.float64()),
        "flag": pa.array([True, None]),
        "day": pa.array([date(2026, 1, 5), None]),
        "zoned": pa.array([datetime(2026, 1, 5, 12, 0, 0, 1, UTC), None], pa.timestamp("us", "UTC")),
        "naive": pa.array([datetime(2026, 1, 5, 12), None], pa.timestamp("us")),
        "fine": pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns")),
        "time": pa.array([time(1, 2, 3), None], pa.time64("us")),
        "bytes": pa.array([b"\x00\xff", None], pa.binary()),
        "list": pa.array([[1, None], []], pa.list_(pa.int64())),
        "struct": pa.array([{"a": 2**60, "b": "x"}, None]),
        "duration": pa.array([timedelta(days=1, seconds=61), None], pa.duration("us")),
        "interval": pa.array([(14, 3, -5_500_000_000), (0, 0, 0)], pa.month_day_nano_interval()),
        "nothing": pa.nulls(2),
        "text": pa.array(['"quoted", ü', ""]),
    }
    engine.always = constant(pa.table(columns))
    result = browser.get(f"/api/v1/queries/{browser.submit()}/result").json
    one, two = (dict(zip(columns, row, strict=True)) for row in result["rows"])
    assert one == {
        "big": "9007199254740992",
        "small": 9007199254740991,
        "decimal": "0.10",
        "float": "NaN",
        "flag": True,
        "day": "2026-01-05",
        "zoned": "2026-01-05T12:00:00.000001Z",
        "naive": "2026-01-05T12:00:00",
        "fine": "2023-11-14T22:13:20.123456",
        "time": "01:02:03",
        "bytes": "AP8=",
        "list": [1, None],
        "struct": {"a": str(2**60), "b": "x"},
        "duration": "P1DT1M1S",
        "interval": "P1Y2M3DT-5.5S",
        "nothing": None,
        "text": '"quoted", ü',
    }
    assert two["decimal"] == "-12345678901234567.89"
    assert (two["float"], two["list"], two["interval"], two["text"]) == ("-Infinity", [], "PT0S", "")
    text = browser.get(f"/api/v1/queries/{browser.submit()}/result?format=csv").body.decode()
    assert text.count("\n") == 3
    assert '"0.10"' in text
    assert '""quoted"", ü"' in text
    arrow = browser.get(f"/api/v1/queries/{browser.submit()}/result?format=arrow").body
    assert pa.ipc.open_stream(arrow).read_all().num_rows == 2


def test_json_columns_are_json(browser: Browser, engine: StandIn) -> None:
    told = constant(pa.table({"j": ['{"a": [1, 2]}', "broken"]}))
    engine.always = replace(told, columns=(Column("j", pa.string(), postgres.JSON),))
    result = browser.get(f"/api/v1/queries/{browser.submit()}/result").json
    assert result["rows"] == [[{"a": [1, 2]}], ["broken"]]


def test_many_rows_come_whole_and_limits_cut(browser: Browser, engine: StandIn) -> None:
    engine.always = constant(pa.table({"n": list(range(50_000))}), 7_000)
    result = browser.get(f"/api/v1/queries/{browser.submit()}/result").json
    assert result["rows"] == [[n] for n in range(50_000)]
    short = browser.get(f"/api/v1/queries/{browser.submit()}/result?limit=10").json
    assert short["rows"] == [[n] for n in range(10)]
    assert short["truncated"] is True
    assert short["row_count"] == 10
    none = browser.get(f"/api/v1/queries/{browser.submit()}/result?limit=0").json
    assert none["rows"] == []
    query = browser.submit()
    for wrong in ("x", "-1", "nan", "1e400"):
        assert browser.get(f"/api/v1/queries/{query}/result?limit={wrong}").status == 400


def test_a_statement_without_rows(browser: Browser) -> None:
    query = browser.submit("CREATE VIEW v AS SELECT 1", wait=5)
    assert browser.get(f"/api/v1/queries/{query}").json["columns"] is None
    # It is carried out whether somebody reads its result or not.
    wait_until(lambda: browser.get(f"/api/v1/queries/{query}").json["state"] == "FINISHED")
    result = browser.get(f"/api/v1/queries/{query}/result").json
    assert (result["columns"], result["rows"], result["tag"]) == ([], [], "CREATE VIEW")


def test_parameters_get_the_types_that_the_statement_wants(browser: Browser, engine: StandIn) -> None:
    types = (postgres.INT4, postgres.NUMERIC, postgres.FLOAT8, postgres.TEXT, postgres.BOOL, postgres.JSON)
    engine.always = answer(BATCH.schema, endless, (*types, 1007))
    given = [1, 0.1, 2, "x", True, {"a": 1}, [1, None]]
    query = browser.submit("SELECT $1", parameters=given)
    assert engine.executions[query].values == [1, Decimal("0.1"), 2.0, "x", True, '{"a": 1}', [1, None]]
    engine.always = answer(BATCH.schema, endless, (postgres.INT4,))
    for value, state in (
        (2**31, "22003"),
        (1.5, "22P02"),
        (True, "22P02"),
        ([1], "22P02"),
        ({}, "22P02"),
    ):
        reply = browser.ask("POST", "/api/v1/queries", {"sql": "SELECT $1", "parameters": [value]})
        assert (reply.status, reply.json["error"]["sqlstate"]) == (400, state)
    missing = browser.ask("POST", "/api/v1/queries", {"sql": "SELECT $1"})
    assert missing.json["error"]["sqlstate"] == "08P01"
    assert all(connection.closed for connection in engine.connections[1:])


def test_texts_are_read_as_postgresql_reads_them(browser: Browser, engine: StandIn) -> None:
    engine.always = answer(BATCH.schema, endless, (postgres.DATE, postgres.INT8))
    query = browser.submit("SELECT $1", parameters=["2026-01-05", "9007199254740993"])
    assert engine.executions[query].values == [date(2026, 1, 5), 9007199254740993]


def test_errors_of_statements_have_a_place(browser: Browser, engine: StandIn) -> None:
    wrong = SqlError("syntax error", sqlstate="42601", position=9, hint="write sense")
    engine.answers["SELECT nonsense"] = wrong
    reply = browser.ask("POST", "/api/v1/queries", {"sql": "  SELECT nonsense"})
    assert reply.status == 400
    assert reply.json == {
        "error": {
            "code": "sql",
            "sqlstate": "42601",
            "message": "syntax error",
            "hint": "write sense",
            "position": 9,
        }
    }


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("SELECT 1; SELECT 2", "42601"),
        ("", "42601"),
        ("-- nothing", None),
        ("SET x.y = 1", "0A000"),
        ("BEGIN", "0A000"),
        ("COPY t TO STDOUT", "0A000"),
        ("INSERT INTO t VALUES (1)", "0A000"),
    ],
)
def test_statements_that_have_no_meaning_here(browser: Browser, sql: str, state: str | None) -> None:
    reply = browser.ask("POST", "/api/v1/queries", {"sql": sql})
    assert reply.status == 400
    assert state is None or reply.json["error"]["sqlstate"] == state


def test_a_query_that_fails_before_its_first_row(browser: Browser, engine: StandIn) -> None:
    def fail(execution: StandInExecution) -> Iterator[pa.RecordBatch]:
        if execution.id:
            raise SqlError("division by zero", sqlstate="22012")
        yield BATCH

    engine.always = answer(BATCH.schema, fail)
    query = browser.submit(wait=5)
    told = browser.get(f"/api/v1/queries/{query}").json
    assert (told["state"], told["error"]) == ("FAILED", {"sqlstate": "22012", "message": "division by zero"})
    result = browser.get(f"/api/v1/queries/{query}/result?format=arrow")
    assert (result.status, result.json["error"]["sqlstate"]) == (400, "22012")


def test_a_query_that_fails_after_its_first_row(browser: Browser, engine: StandIn) -> None:
    def fail(execution: StandInExecution) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [1]})
        raise SqlError("a worker burnt", sqlstate="58000")

    engine.always = answer(BATCH.schema, fail)
    result = browser.get(f"/api/v1/queries/{browser.submit()}/result")
    assert result.status == 200
    assert result.json["rows"] == [[1]]
    assert result.json["error"]["message"] == "a worker burnt"
    for kind in ("arrow", "csv"):
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            browser.get(f"/api/v1/queries/{browser.submit()}/result?format={kind}")


def test_an_engine_that_breaks_tells_no_trace(browser: Browser, engine: StandIn) -> None:
    def fail(execution: StandInExecution) -> Iterator[pa.RecordBatch]:
        if execution.id:
            raise RuntimeError("/secret/path")
        yield BATCH

    engine.always = answer(BATCH.schema, fail)
    reply = browser.get(f"/api/v1/queries/{browser.submit()}/result")
    assert reply.status == 500
    assert b"secret" not in reply.body


def test_cancel(browser: Browser, engine: StandIn) -> None:
    started = threading.Event()

    def hang(execution: StandInExecution) -> Iterator[pa.RecordBatch]:
        started.set()
        execution.cancelled.wait(20)
        yield BATCH

    engine.always = answer(BATCH.schema, hang)
    query = browser.submit(wait=0.01)
    assert started.wait(5)
    assert browser.get(f"/api/v1/queries/{query}").json["result"] == "coming"
    reply = browser.ask("DELETE", f"/api/v1/queries/{query}")
    assert (reply.status, reply.json) == (200, {"id": query, "canceled": True})
    wait_until(lambda: browser.get(f"/api/v1/queries/{query}").json["state"] == "CANCELED")
    assert browser.get(f"/api/v1/queries/{query}/result").status == 410
    assert browser.ask("DELETE", f"/api/v1/queries/{query}").json["canceled"] is False
    assert browser.ask("DELETE", "/api/v1/queries/none").status == 404
    assert browser.get("/api/v1/queries/none").status == 404
    assert browser.get("/api/v1/queries/none/result").status == 404


def test_queries_are_listed_newest_first(browser: Browser) -> None:
    queries = [browser.submit(wait=5) for _ in range(3)]
    wait_until(lambda: all(q["state"] == "FINISHED" for q in browser.get("/api/v1/queries").json["queries"]))
    listed = browser.get("/api/v1/queries").json["queries"]
    assert [query["id"] for query in listed] == queries[::-1]
    assert len(browser.get("/api/v1/queries?limit=2").json["queries"]) == 2
    assert browser.get("/api/v1/queries?state=running").json["queries"] == []
    assert browser.get("/api/v1/queries?limit=x").status == 400


def test_nobody_reads_results_of_another(browser: Browser, users: Users, engine: StandIn) -> None:
    users.add("anna", "a")
    users.add("bob", "b")
    users.add("root", "r", admin=True)
    wait_until(lambda: browser.get("/api/v1/me").status == 401)
    anna, bob = browser.as_user("anna", "a"), browser.as_user("bob", "b")
    query = anna.submit()
    for path in (f"/api/v1/queries/{query}", f"/api/v1/queries/{query}/result"):
        assert bob.get(path).status == 404
    assert bob.ask("DELETE", f"/api/v1/queries/{query}").status == 404
    assert bob.get("/api/v1/queries").json["queries"] == []
    assert browser.as_user("root", "r").get(f"/api/v1/queries/{query}").status == 200
    assert anna.get(f"/api/v1/queries/{query}/result").status == 200
    forbidden = anna.ask("POST", "/api/v1/queries", {"sql": "CREATE VIEW v AS SELECT 1"})
    assert (forbidden.status, forbidden.json["error"]["sqlstate"]) == (403, "42501")


def test_a_slow_reader_slows_the_query_and_a_lost_one_ends_it(
    browser: Browser, server: WebServer, engine: StandIn
) -> None:
    engine.always = ENDLESS
    query = browser.submit()
    work = engine.executions[query]
    # Without a reader as much is pulled as may wait, and no more.
    ahead = (1 << 20) // BATCH.nbytes + 2
    wait_until(lambda: work.pulled >= ahead - 2)
    with socket.create_connection(("127.0.0.1", server.port)) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = f"GET /api/v1/queries/{query}/result?format=arrow HTTP/1.1\r\nHost: localhost\r\n\r\n"
        reader.sendall(request.encode())
        assert reader.recv(100).startswith(b"HTTP/1.1 200")
        seen = -1

        def rests() -> bool:
            nonlocal seen
            before, seen = seen, work.pulled
            threading.Event().wait(0.2)
            return before == work.pulled

        wait_until(rests)
        # What waits, and what the system's buffers of a connection take: megabytes, not more.
        assert work.pulled * BATCH.nbytes < 16 << 20
        second = browser.get(f"/api/v1/queries/{query}/result")
        assert (second.status, second.code) == (409, "being-read")
    wait_until(lambda: work.cancelled.is_set() and work.closed)


def test_results_that_wait_are_few(browser: Browser, engine: StandIn) -> None:
    queries = [browser.submit() for _ in range(3)]
    refused = browser.ask("POST", "/api/v1/queries", {"sql": "SELECT 1"})
    assert (refused.status, refused.code) == (429, "too-many-results")
    browser.ask("DELETE", f"/api/v1/queries/{queries[0]}")
    browser.submit()


def test_a_client_that_leaves_while_its_query_is_planned(
    browser: Browser, server: WebServer, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning, go = threading.Event(), threading.Event()
    connect = engine.connect

    def slow(*arguments: object) -> object:
        planning.set()
        go.wait(10)
        return connect(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "connect", slow)
    body = json.dumps({"sql": "SELECT 1"})
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(
            f"POST /api/v1/queries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        assert planning.wait(5)
    threading.Event().wait(0.1)
    go.set()
    wait_until(lambda: bool(engine.connections) and engine.connections[0].closed)


def test_stop_cancels_what_runs(server: WebServer, browser: Browser, engine: StandIn) -> None:
    engine.always = ENDLESS
    work = engine.executions[browser.submit()]
    server.stop()
    wait_until(lambda: work.closed)
    server.stop()


def test_columns_of_one_name(browser: Browser, engine: StandIn) -> None:
    table = pa.table([pa.array([1]), pa.array(["x"])], names=["a", "a"])
    engine.always = constant(table)
    assert browser.get(f"/api/v1/queries/{browser.submit()}/result").json["rows"] == [[1, "x"]]
    arrow = browser.get(f"/api/v1/queries/{browser.submit()}/result?format=arrow").body
    assert pa.ipc.open_stream(arrow).read_all().equals(table)
    text = browser.get(f"/api/v1/queries/{browser.submit()}/result?format=csv").body
    assert text == b'"a","a"\n1,"x"\n'


def test_a_result_that_nobody_reads_is_dropped_and_then_forgotten(
    engine: StandIn, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.http.server._TICK", 0.02)
    engine.always = ENDLESS
    server = WebServer(engine, Access(users), limits=ResultLimits(ahead=1 << 20, kept=0.3))
    server.start()
    try:
        browser = Browser(server.port)
        query = browser.submit()
        wait_until(lambda: engine.executions[query].closed)
        assert engine.executions[query].cancelled.is_set()
        wait_until(lambda: browser.get(f"/api/v1/queries/{query}/result").status == 404)
    finally:
        server.stop()


@pytest.mark.parametrize("kind", ["json", "arrow", "csv"])
def test_a_reader_sees_that_a_cancelled_result_is_not_whole(
    browser: Browser, engine: StandIn, kind: str
) -> None:
    engine.always = ENDLESS
    query = browser.submit()
    connection = http.client.HTTPConnection("127.0.0.1", browser.port, timeout=20)
    connection.request("GET", f"/api/v1/queries/{query}/result?format={kind}")
    with connection.getresponse() as response:
        assert response.read(1000)
        browser.ask("DELETE", f"/api/v1/queries/{query}")
        if kind == "json":
            assert b'"sqlstate":"57014"' in response.read()[-300:]
        else:
            with pytest.raises((http.client.HTTPException, ConnectionError)):
                response.read()
    connection.close()
