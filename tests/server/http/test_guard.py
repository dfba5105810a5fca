from __future__ import annotations

import base64
import gzip
import json
import random
import socket
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.certs import Authority
from penstock.config.tls import Tls
from penstock.server.access import Access, Users
from penstock.server.http import WebServer
from penstock.server.http.guard import Guard, host_of
from penstock.store.memory import MemoryStore
from tests.server.http.browser import Browser
from tests.server.stand_in import StandIn
from tests.server.waiting import wait_until

POST = "/api/v1/queries"


@pytest.fixture
def closed(browser: Browser, users: Users) -> Browser:
    """A server with users."""
    users.add("anna", "pä:ss", schemas=["public"])
    users.add("root", "secret", admin=True)
    wait_until(lambda: browser.get("/api/v1/me").status == 401)
    return browser


def test_trust_and_its_end(browser: Browser, users: Users) -> None:
    assert browser.get("/api/v1/me").json == {
        "name": "penstock",
        "admin": True,
        "writes": True,
        "schemas": None,
    }
    assert browser.as_user("me", "anything").get("/api/v1/me").json["name"] == "me"
    users.add("anna", "x")
    wait_until(lambda: browser.get("/api/v1/me").status == 401)


def test_a_proxy_on_this_machine_is_not_trusted(browser: Browser) -> None:
    for headers in ({"X-Forwarded-For": "8.8.8.8"}, {"Forwarded": "for=8.8.8.8"}, {"Via": "1.1 proxy"}):
        assert browser.ask("GET", "/api/v1/me", headers=headers).status == 401
        assert browser.as_user("me", "x").ask("GET", "/api/v1/me", headers=headers).status == 401


def test_passwords_and_tokens(closed: Browser) -> None:
    refused = closed.get("/api/v1/tables")
    assert refused.headers["WWW-Authenticate"].startswith("Basic ")
    assert refused.code == "unauthorized"
    anna = closed.as_user("anna", "pä:ss")
    assert anna.get("/api/v1/me").json == {
        "name": "anna",
        "admin": False,
        "writes": False,
        "schemas": ["public"],
    }
    made = anna.ask("POST", "/api/v1/token", {"ttl": 60})
    assert made.status == 201
    assert made.json["expires_in"] == 60
    bearer = {"Authorization": f"Bearer {made.json['token']}"}
    assert closed.ask("GET", "/api/v1/me", headers=bearer).json["name"] == "anna"
    # Whoever finds a token cannot keep it alive.
    again = closed.ask("POST", "/api/v1/token", {"ttl": 60}, headers=bearer)
    assert (again.status, again.code) == (403, "token-for-token")
    for header in (
        "Bearer x",
        "Bearer ",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe").decode(),
        "Basic " + base64.b64encode(b"anna").decode(),
        "Digest x",
        "Negotiate",
    ):
        assert closed.ask("GET", "/api/v1/me", headers={"Authorization": header}).status == 401, header
    for wrong in (1e9, 0, -1, 10**400, True):
        assert anna.ask("POST", "/api/v1/token", {"ttl": wrong}).status == 400


def test_guessing_ends_in_a_wait(closed: Browser) -> None:
    guesser = closed.as_user("anna", "wrong")
    replies = [guesser.get("/api/v1/me") for _ in range(6)]
    assert [reply.status for reply in replies] == [401] * 5 + [429]
    assert "Retry-After" in replies[-1].headers


def test_what_needs_the_system_schema(closed: Browser) -> None:
    anna = closed.as_user("anna", "pä:ss")
    for path in ("workers", "runs", "runs/r1", "streams", "streams/s1", "cluster"):
        assert anna.get(f"/api/v1/{path}").status == 403
    assert [t["schema"] for t in anna.get("/api/v1/tables").json["tables"]] == ["public"]
    assert anna.get("/api/v1/tables/sys/queries").status == 404


def test_probes_are_open_and_metrics_are_not(closed: Browser) -> None:
    assert closed.get("/healthz").status == closed.get("/readyz").status == closed.get("/").status == 200
    assert closed.get("/metrics").status == 401
    assert closed.get("/api/v1/openapi.json").status == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "10.0.0.1"]
)
def test_foreign_names_are_refused(browser: Browser, host: str) -> None:
    for path in ("/api/v1/me", "/", "/metrics"):
        reply = browser.ask("GET", path, headers={"Host": host})
        assert (reply.status, reply.code) == (421, "wrong-host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "[::1]"])
def test_own_names_are_not(browser: Browser, host: str) -> None:
    assert browser.ask("GET", "/api/v1/me", headers={"Host": host}).status == 200


def test_other_pages_are_refused(browser: Browser) -> None:
    own = f"127.0.0.1:{browser.port}"
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{browser.port + 1}"},
        {"Origin": "http://[bad"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        reply = browser.ask("POST", POST, {"sql": "SELECT 1"}, headers=headers)
        assert (reply.status, reply.code) == (403, "cross-origin"), headers
    fine = {"Origin": f"http://{own}", "Sec-Fetch-Site": "same-origin", "Host": own}
    reply = browser.ask("POST", POST, {"sql": "SELECT 1"}, headers=fine)
    assert reply.status == 201
    assert "Access-Control-Allow-Origin" not in reply.headers
    preflight = browser.ask("OPTIONS", POST, headers={"Origin": "https://evil.example"})
    assert preflight.status == 403
    assert browser.ask("OPTIONS", POST).status == 405


def test_a_form_of_a_page_is_no_json(browser: Browser) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        reply = browser.ask("POST", POST, {"sql": "SELECT 1"}, headers={"Content-Type": kind})
        assert (reply.status, reply.code) == (415, "not-json")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"SELECT 1"',
        b"{}",
        b"\xff\xfe",
        b'{"sql": 1}',
        b'{"sql": null}',
        b'{"sql": "SELECT 1", "more": 1}',
        b'{"sql": "SELECT 1", "wait": "x"}',
        b'{"sql": "SELECT 1", "wait": true}',
        b'{"sql": "SELECT 1", "wait": -1}',
        b'{"sql": "SELECT 1", "wait": 61}',
        b'{"sql": "SELECT 1", "wait": NaN}',
        b'{"sql": "SELECT 1", "parameters": {}}',
        b'{"sql": "SELECT 1", "settings": []}',
        b'{"sql": "SELECT 1", "settings": {"timezone": []}}',
        b'{"sql": "SELECT 1", "settings": {"timezone": "Nowhere/Town"}}',
        b'{"sql": "SELECT 1", "settings": {"is_superuser": "on"}}',
        b'{"sql": ' + b"[" * 100_000,
        # Without the time of day, which would be in the test's name: it has to be the same in all processes.
        gzip.compress(b'{"sql": "SELECT 1"}', mtime=0),
    ],
)
def test_malformed_requests(browser: Browser, engine: StandIn, body: bytes) -> None:
    reply = browser.ask("POST", POST, body)
    assert reply.status == 400, reply.body
    assert reply.json["error"]["message"]
    assert not engine.executions


def test_requests_that_are_too_large(browser: Browser) -> None:
    reply = browser.ask("POST", POST, b'{"sql": "' + b"x" * (1 << 20) + b'"}')
    assert (reply.status, reply.code) == (413, "too-large")
    bomb = gzip.compress(b" " * (100 << 20))
    assert browser.ask("POST", POST, bomb, headers={"Content-Encoding": "gzip"}).status == 400
    assert browser.get("/api/v1/me", Cookie="x" * 100_000).status in (400, 431)


def test_paths_and_methods_that_are_not_there(browser: Browser) -> None:
    for path in (
        "/api",
        "/api/v1",
        "/api/v1/",
        "/api/v2/me",
        "/etc/passwd",
        "/api/v1/%2e%2e/x",
        "/%00",
        "//",
    ):
        reply = browser.get(path)
        assert (reply.status, reply.code) == (404, "not-found"), path
    reply = browser.ask("PUT", POST, {"sql": "SELECT 1"})
    assert (reply.status, reply.code) == (405, "wrong-method")
    assert "POST" in reply.headers["Allow"]


def test_headers_that_browsers_heed(browser: Browser) -> None:
    for path in ("/", "/api/v1/me", "/nowhere", f"/api/v1/queries/{browser.submit()}/result"):
        headers = browser.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Server"] == "penstock"
        assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_random_bytes_do_not_bring_it_down(browser: Browser) -> None:
    generator = random.Random(3)
    pieces = [b"GET / HTTP/1.1\r\n", b"Host: localhost\r\n", b"\r\n", b"\x00\xff", b"Content-Length: 99\r\n"]
    pieces += [b"Transfer-Encoding: chunked\r\n", b"ffffffff\r\n", b"POST /api/v1/queries HTTP/1.1\r\n"]
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", browser.port), timeout=5) as connection:
            connection.sendall(b"".join(generator.choices(pieces, k=generator.randrange(1, 8))))
    assert browser.get("/healthz").status == 200


def test_a_connection_that_asks_nothing_is_closed(
    engine: StandIn, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.http.server._IDLE", 0.1)
    server = WebServer(engine, Access(users))
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as slow:
            slow.sendall(b"GET / HT")
            with suppress(ConnectionResetError):
                assert slow.recv(1) == b""
    finally:
        server.stop()


def test_too_many_connections_are_refused(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.http.server.CONNECTIONS", 0)
    answer = browser.get("/me")
    assert answer.status == 503 and answer.json["error"]["code"] == "too-many-connections"


def test_hosts_without_ports() -> None:
    assert [host_of(h) for h in ("A:1", "a", "[::1]:5", "[::1]", "")] == ["a", "a", "[::1]", "[::1]", ""]


class _Request:
    """A request from the network, which a test on loopback cannot make."""

    remote = "10.0.0.9"
    secure = False
    transport = None

    def __init__(self, **headers: str) -> None:
        self.headers = headers


def test_passwords_do_not_cross_the_network_in_the_clear() -> None:
    from penstock.server.http.errors import HttpError

    users = Users(MemoryStore())
    users.add("anna", "x")
    access = Access(users, host="0.0.0.0")
    basic = "Basic " + base64.b64encode(b"anna:x").decode()
    with pytest.raises(HttpError) as caught:
        Guard(access, "0.0.0.0").authenticate(_Request(Authorization=basic))  # type: ignore[arg-type]
    assert caught.value.status == 403
    behind = Guard(access, "0.0.0.0", plain_passwords=True)
    assert behind.authenticate(_Request(Authorization=basic)).name == "anna"  # type: ignore[arg-type]
    token = f"Bearer {access.issue(behind.authenticate(_Request(Authorization=basic)))}"  # type: ignore[arg-type]
    assert Guard(access, "0.0.0.0").authenticate(_Request(Authorization=token)).name == "anna"  # type: ignore[arg-type]
    # A name of its own is fine for a server that trusts nobody.
    Guard(access, "0.0.0.0").check_source(_Request(Host="penstock.example"))  # type: ignore[arg-type]


def test_https_and_client_certificates(tmp_path: Path, engine: StandIn) -> None:
    authority = Authority(tmp_path)
    authority.create()
    server_tls, client_tls = certificate(authority, "localhost"), certificate(authority, "anna")
    users = Users(MemoryStore())
    users.add("anna")
    users.add("bob", "x")
    server = WebServer(engine, Access(users, tls=True), tls=server_tls)
    server.start()
    try:
        url = f"https://localhost:{server.port}/api/v1/me"
        with_certificate = client_tls.client_context()
        assert fetched(url, with_certificate)["name"] == "anna"
        without = ssl.create_default_context(cafile=server_tls.ca)
        basic = "Basic " + base64.b64encode(b"bob:x").decode()
        assert fetched(url, without, basic)["name"] == "bob"
        with pytest.raises(urllib.error.HTTPError):
            fetched(url, without)
    finally:
        server.stop()


def certificate(authority: Authority, name: str) -> Tls:
    authority.issue(name)
    folder = authority.folder
    return Tls(str(folder / "ca.pem"), str(folder / f"{name}.pem"), str(folder / f"{name}.key"))


def fetched(url: str, context: ssl.SSLContext, authorization: str | None = None) -> dict[str, object]:
    request = urllib.request.Request(url)
    if authorization:
        request.add_header("Authorization", authorization)
    with urllib.request.urlopen(request, context=context, timeout=10) as response:
        found: dict[str, object] = json.load(response)
    return found
