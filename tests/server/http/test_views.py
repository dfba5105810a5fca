from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock import __version__
from penstock.batch.runs import runs, views
from penstock.batch.runs.manifests import Fingerprint
from penstock.batch.runs.runs import Run
from penstock.config import Config
from penstock.errors import SqlError, UsageError
from penstock.server.access import Access, Users
from penstock.server.base import QueryInfo, QueryState
from penstock.server.http import Sources, StoreSources, WebServer
from penstock.server.http.metrics import Metric, Tally, one, render
from penstock.server.http.openapi import document
from penstock.storage import Storage
from penstock.store.memory import MemoryStore
from penstock.streams.registry import open_stream
from tests.server.http.browser import Browser
from tests.server.stand_in import StandIn

SAMPLE = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-z_]+="(\\.|[^"\\\n])*"\})? [0-9.e+-]+')


def test_tables(browser: Browser) -> None:
    assert browser.get("/api/v1/tables").json == {
        "tables": [
            {"schema": "public", "name": "numbers", "kind": "table"},
            {"schema": "sys", "name": "queries", "kind": "system"},
        ]
    }
    assert browser.get("/api/v1/tables/public/numbers").json["columns"] == [
        {"name": "n", "type": "bigint", "nullable": False},
        {"name": "name", "type": "text", "nullable": True},
    ]
    assert browser.get("/api/v1/tables/public/none").status == 404


def test_runs_streams_workers_and_the_cluster(browser: Browser) -> None:
    assert browser.get("/api/v1/workers").json == {"workers": [{"id": "w1", "cores": 4}]}
    assert browser.get("/api/v1/runs").json == {"runs": [{"run": "r1"}]}
    assert browser.get("/api/v1/runs/r1").json == {"run": "r1"}
    missing = browser.get("/api/v1/runs/none")
    assert (missing.status, missing.code) == (404, "not-found")
    assert missing.json["error"]["hint"] == "known runs: r1"
    assert browser.get("/api/v1/streams").json == {"streams": [{"name": "s1"}]}
    assert browser.get("/api/v1/streams/s1").json == {"name": "s1"}
    assert browser.get("/api/v1/cluster").json == {
        "version": __version__,
        "ready": True,
        "reason": None,
        "status": None,
    }


def test_probes(browser: Browser, engine: StandIn) -> None:
    assert browser.get("/").json["api"] == "/api/v1"
    assert browser.get("/healthz").json == {"status": "alive"}
    assert browser.get("/readyz").json == {"status": "ready"}
    engine.why = "Spark starts"
    reply = browser.get("/readyz")
    assert (reply.status, reply.json) == (503, {"status": "not ready", "reason": "Spark starts"})
    assert browser.get("/healthz").status == 200


def test_an_engine_that_is_away_is_a_503(
    browser: Browser, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*arguments: object) -> None:
        raise SqlError("this coordinator stands by", sqlstate="57P03")

    for name in ("connect", "queries", "tables"):
        monkeypatch.setattr(engine, name, away)
    assert browser.ask("POST", "/api/v1/queries", {"sql": "SELECT 1"}).status == 503
    assert browser.get("/api/v1/queries").status == 503
    assert browser.get("/api/v1/tables").status == 503
    assert "penstock_ready 0" in browser.get("/metrics").body.decode()


def test_metrics_are_in_prometheus_format(browser: Browser, users: Users) -> None:
    query = browser.submit(wait=5)
    browser.get(f"/api/v1/queries/{query}/result")
    reply = browser.get("/metrics")
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = reply.body.decode()
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or SAMPLE.fullmatch(line), line
    for line in (
        f'penstock_build_info{{version="{__version__}"}} 1',
        "penstock_ready 1",
        'penstock_queries_ended_total{state="finished"} 1',
        'penstock_queries{state="running"} 0',
        "penstock_result_rows_total 3",
        "penstock_auth_failures_total 0",
        'penstock_connections{protocol="pgwire"} 2',
    ):
        assert line in text.splitlines()
    assert re.search(r"^process_resident_memory_bytes \d{7,}$", text, re.MULTILINE)
    names = re.findall(r"# TYPE (\S+)", text)
    assert len(names) == len(set(names))


def test_metrics_escape_what_has_a_meaning() -> None:
    text = render(
        [Metric("a", "gauge", "x\ny\\", [({"l": 'a"b\\c\nd'}, 0.5)]), one("b_total", "counter", "", 3)]
    )
    expected = '# HELP a x\\ny\\\\\n# TYPE a gauge\na{l="a\\"b\\\\c\\nd"} 0.5\n# HELP b_total \n'
    assert text == expected + "# TYPE b_total counter\nb_total 3\n"
    with pytest.raises(ValueError, match="cannot name"):
        render([one("a b", "gauge", "", 1)])


def test_every_query_is_counted_once() -> None:
    def info(id: str, state: QueryState, rows: int) -> QueryInfo:  # noqa: A002
        return QueryInfo(id, "u", "http", "", "", "", state, 0.0, rows=rows, bytes=8 * rows)

    tally = Tally()
    tally.look([info("a", QueryState.RUNNING, 10)])
    tally.look(
        [info("a", QueryState.FINISHED, 30), info("b", QueryState.FAILED, 0), info("c", QueryState.QUEUED, 0)]
    )
    tally.look([info("a", QueryState.FINISHED, 30), info("c", QueryState.QUEUED, 0)])
    tally.look([info("c", QueryState.CANCELED, 5)])
    lines = render(tally.metrics()).splitlines()
    for line in (
        'penstock_queries_ended_total{state="finished"} 1',
        'penstock_queries_ended_total{state="failed"} 1',
        'penstock_queries_ended_total{state="canceled"} 1',
        "penstock_result_rows_total 35",
        "penstock_result_bytes_total 280",
    ):
        assert line in lines


def test_the_store_is_shown_as_commands_show_it(tmp_path: Path) -> None:
    store = MemoryStore()
    sources = StoreSources(store, Storage(str(tmp_path)), Config(store="memory:", storage=str(tmp_path)))
    assert list(sources.runs()) == list(sources.streams()) == list(sources.workers()) == []
    assert sources.cluster() is None
    for look in (sources.run, sources.stream, Sources().run, Sources().stream):
        with pytest.raises(UsageError):
            look("none")
    nothing = Sources()
    assert not [*nothing.workers(), *nothing.runs(), *nothing.streams(), *nothing.metrics()]


def test_runs_and_streams_of_a_store(tmp_path: Path) -> None:
    store = MemoryStore()
    record = Run(
        name="trades",
        id="0",
        pipeline="trades",
        inputs={"trades": "d"},
        registered={"trades": "trades.trades"},
        total_rows=1000,
        partition_rows=500,
        outputs=("trades",),
        output="s3://key:hush@bucket/out",
        output_format="parquet",
        fingerprint=Fingerprint({"trades": "d"}, ()),
        storage="s3://key:hush@bucket/work",
        created="2026-01-05T12:00:00Z",
    )
    _, board = runs.start(store, record, max_failures=5, accept_changed_code=False)
    board.claim(store.session(60), "a", 1)
    definition = {"sources": {"clicks": {"table": {"user": "string"}, "code": "a" * 32}}, "outputs": {}}
    open_stream(store, "clicks", definition)
    config = Config(store="memory:", storage=str(tmp_path))
    server = WebServer(
        StandIn(),
        Access(Users(store)),
        sources=StoreSources(store, Storage(str(tmp_path)), config),
    )
    server.start()
    try:
        browser = Browser(server.port)
        listed = browser.get("/api/v1/runs").json["runs"]
        assert [(run["run"], run["state"]) for run in listed] == [("trades", "running")]
        shown = browser.get("/api/v1/runs/trades").json
        assert shown["owners"] == {"a": 1}
        assert (shown["output"], shown["storage"]) == ("s3://key:***@bucket/out", "s3://key:***@bucket/work")
        assert shown == views.one(store, "trades").to_json(), "what the command shows"
        assert shown["partitions"]["pending"] == {"partitions": 1, "rows": 500}
        for _ in range(2):
            stream = browser.get("/api/v1/streams/clicks").json
            assert (stream["name"], stream["state"]) == ("clicks", "stopped")
        assert [s["name"] for s in browser.get("/api/v1/streams").json["streams"]] == ["clicks"]
        assert browser.get("/api/v1/streams/none").status == 404
        assert browser.get("/api/v1/runs/none").status == 404
        assert browser.get("/api/v1/runs/..%2F..").status == 404
        assert browser.get("/api/v1/workers").json == {"workers": []}
    finally:
        server.stop()


def check(schema: Any, value: Any, root: Any, where: str = "") -> None:
    """As much of JSON Schema as the document uses."""
    if "$ref" in schema:
        return check(root["components"]["schemas"][schema["$ref"].rpartition("/")[2]], value, root, where)
    if "anyOf" in schema:
        kinds = [s for s in schema["anyOf"] if (value is None) == (s.get("type") == "null")]
        return check(kinds[0], value, root, where)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    python: dict[str, Any] = {
        "string": str,
        "number": (int, float),
        "integer": int,
        "boolean": bool,
        "null": type(None),
    }
    python |= {"array": list, "object": dict}
    assert not kinds or any(isinstance(value, python[kind]) for kind in kinds), (where, value)
    assert value in schema.get("enum", [value]), (where, value)
    if isinstance(value, dict) and "properties" in schema:
        assert set(schema["required"]) <= set(value) <= set(schema["properties"]), (where, value)
        for key, item in value.items():
            check(schema["properties"][key], item, root, f"{where}.{key}")
    if isinstance(value, list):
        for item in value:
            check(schema.get("items", {}), item, root, f"{where}[]")
    return None


def test_openapi_names_every_route_and_no_other(server: WebServer) -> None:
    routes = {
        (route.method.lower(), route.resource.canonical)
        for route in server.application().router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    paths = document(__version__)["paths"]
    assert {(method, path) for path, methods in paths.items() for method in methods} == routes
    for path, methods in paths.items():
        for operation in methods.values():
            named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))


def test_openapi_describes_real_answers(browser: Browser) -> None:
    described = browser.get("/api/v1/openapi.json").json
    assert described["openapi"] == "3.1.0"
    query = browser.submit(wait=5)
    asked: list[tuple[str, str, str, Any]] = [
        (
            "GET",
            path,
            path.format(id=query, schema="public", name="r1" if "runs" in path else "numbers"),
            None,
        )
        for path, methods in described["paths"].items()
        if "get" in methods
    ]
    asked.append(("POST", "/api/v1/queries", "/api/v1/queries", {"sql": "SELECT 1"}))
    asked.append(("POST", "/api/v1/queries", "/api/v1/queries", {"sql": "SELECT nope"}))
    asked.append(("POST", "/api/v1/token", "/api/v1/token", {}))
    asked.append(("DELETE", "/api/v1/queries/{id}", f"/api/v1/queries/{query}", None))
    asked.append(("GET", "/api/v1/queries/{id}", "/api/v1/queries/none", None))
    for method, path, address, body in asked:
        reply = browser.ask(method, address, body)
        response = described["paths"][path][method.lower()]["responses"][str(reply.status)]
        kind = reply.headers["Content-Type"].partition(";")[0]
        if kind == "application/json" and "content" in response:
            check(response["content"][kind]["schema"], reply.json, described, path)


def test_start_says_if_the_port_is_taken(server: WebServer, engine: StandIn, users: Users) -> None:
    with pytest.raises(OSError, match="in use"):
        WebServer(engine, Access(users), port=server.port).start()
