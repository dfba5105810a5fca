"""How connections begin and end."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.server.network.certificates import Certificates
from penstock.server.pgwire.server import ALPN, ClientLimits
from servers.pki import Authority
from tests.server.pgwire.raw import CANCEL, GSSENC, SSL, Raw, error, kinds, query, request, rows, startup
from tests.server.pgwire.serving import Serving, serving
from tests.server.stand_in import StandIn
from tests.server.waiting import wait_until

SOMEONE = {"user": "someone", "database": "penstock"}


def test_a_client_comes_in_and_asks(server: Serving) -> None:
    with Raw(server.port) as client:
        said = client.enter(application_name="tests")
        assert kinds(said) == "R" + "S" * (len(said) - 3) + "KZ"
        assert len(client.key) == 4
        assert client.parameters["server_version"].startswith("18.")
        assert client.parameters["client_encoding"] == "UTF8"
        assert client.parameters["standard_conforming_strings"] == "on"
        assert client.parameters["application_name"] == "tests"
        assert client.parameters["session_authorization"] == "someone"
        assert client.parameters["is_superuser"] == "off"
        said = client.ask(query("SELECT 1"))
        assert kinds(said) == "TDCZ" and rows(said) == [[b"1"]]


def test_protocol_3_2_has_long_cancel_keys(server: Serving) -> None:
    with Raw(server.port) as client:
        assert "v" not in kinds(client.enter(minor=2))
        assert len(client.key) == 32


def test_newer_versions_and_unknown_options_are_negotiated(server: Serving) -> None:
    with Raw(server.port) as client:
        kind, body = client.enter(minor=9, **{"_pq_.future": "1"})[0]
        assert kind == "v"
        version, count = struct.unpack(">ii", body[:8])
        assert version == (3 << 16) | 2 and count == 1 and body[8:] == b"_pq_.future\0"
        assert len(client.key) == 32


def test_an_older_protocol_is_refused(server: Serving) -> None:
    with Raw(server.port) as client:
        client.send(startup(SOMEONE, major=2))
        kind, _ = client.read()
        assert kind == "E" and client.is_closed()


def test_encryption_that_is_not_there_is_refused_politely(server: Serving) -> None:
    with Raw(server.port) as client:
        client.send(request(GSSENC))
        assert client.receive(1) == b"N"
        client.send(request(SSL))
        assert client.receive(1) == b"N"
        client.enter()


@pytest.mark.parametrize(
    ("parameters", "sqlstate"),
    [
        ({"database": "penstock"}, "28000"),
        ({**SOMEONE, "database": "other"}, "3D000"),
        ({**SOMEONE, "nonsense": "1"}, "42704"),
        ({**SOMEONE, "client_encoding": "LATIN1"}, "22023"),
        ({**SOMEONE, "replication": "database"}, "0A000"),
        ({**SOMEONE, "options": "-c statement_timeout=soon"}, "22023"),
    ],
)
def test_what_a_client_cannot_have(server: Serving, parameters: dict[str, str], sqlstate: str) -> None:
    with Raw(server.port) as client:
        client.send(startup(parameters))
        kind, body = client.read()
        while kind != "E":
            kind, body = client.read()
        told = error([(kind, body)])
        assert (told["C"], told["S"]) == (sqlstate, "FATAL")
        assert client.is_closed()


def test_options_set_what_reset_goes_back_to(server: Serving) -> None:
    with psycopg.connect(server.url, options="-c statement_timeout=5s -c search_path=a,b") as client:
        client.execute("SET statement_timeout = 1")
        client.execute("RESET statement_timeout")
        assert client.execute("SHOW statement_timeout").fetchone() == ("5s",)
        assert client.execute("SHOW search_path").fetchone() == ("a, b",)


def test_too_many_clients() -> None:
    with (
        serving(limits=ClientLimits(connections=2)) as server,
        Raw(server.port) as one,
        Raw(server.port) as two,
    ):
        one.enter()
        two.enter()
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            psycopg.connect(server.url)
        one.sock.close()
        wait_until(lambda: server.server.connections == 1)
        psycopg.connect(server.url).close()


def test_a_server_that_stands_by_or_starts_says_so() -> None:
    engine = StandIn()
    why: list[str | None] = ["another coordinator leads"]
    with serving(engine, standby=lambda: why[0]) as server:
        for expected in ("another coordinator leads", "Spark is starting"):
            with Raw(server.port) as client:
                client.send(startup(SOMEONE))
                told = error([client.read()])
                assert told["C"] == "57P03" and told["M"] == expected
            why[0], engine.why = None, "Spark is starting"
        engine.why = None
        psycopg.connect(server.url).close()


def test_clients_are_told_when_the_server_stops() -> None:
    with serving() as server, Raw(server.port) as idle, Raw(server.port) as busy:
        idle.enter()
        busy.enter()
        busy.send(query("SELECT * FROM slow()"))
        assert server.engine.started.acquire(timeout=10)
        server.stop()
        assert error([idle.read()])["C"] == "57P01"
        said = busy.read_until("E")
        assert error(said)["C"] == "57P01"
        assert busy.is_closed()
        assert not server.engine.running and server.engine.clients == 0


def test_who_says_nothing_is_sent_away() -> None:
    with serving(limits=ClientLimits(authentication=0.2)) as server, Raw(server.port) as silent:
        assert silent.is_closed()
        with Raw(server.port) as half:
            half.send(startup(SOMEONE)[:6])
            assert error(half.read_until("E"))["M"].startswith("canceling authentication")


def test_idle_clients_are_sent_away_when_they_asked_for_it(raw: Raw) -> None:
    raw.ask(query("SET idle_session_timeout = 50"))
    assert error(raw.read_until("E"))["C"] == "57P05"
    assert raw.is_closed()


def test_idle_transactions_end(raw: Raw) -> None:
    raw.ask(query("SET idle_in_transaction_session_timeout = 50"))
    raw.ask(query("SELECT 1"))
    raw.ask(query("BEGIN"))
    assert error(raw.read_until("E"))["C"] == "25P03"


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[Serving]:
    own = authority.issue("server")
    with serving(tls=Certificates(own, ALPN)) as running:
        yield running


def _client_context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.path)


def test_tls_and_direct_tls(secured: Serving, authority: Authority) -> None:
    url = secured.url.replace("sslmode=disable", f"sslmode=verify-full sslrootcert={authority.path}")
    for negotiation in ("postgres", "direct"):
        with psycopg.connect(f"{url} sslnegotiation={negotiation}") as client:
            assert client.pgconn.ssl_in_use
            assert client.execute("SELECT 1").fetchone() == (1,)
            found = client.execute("SELECT * FROM numbers(50000)").fetchall()
            assert len(found) == 50_000


def test_direct_tls_needs_its_protocol(secured: Serving, authority: Authority) -> None:
    context = _client_context(authority)
    with (
        socket.create_connection(("127.0.0.1", secured.port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        wrapped.sendall(startup(SOMEONE))
        assert wrapped.recv(1) == b"E"


def test_what_comes_before_tls_is_not_believed(secured: Serving) -> None:
    with Raw(secured.port) as client:
        client.send(request(SSL) + startup(SOMEONE))
        assert client.receive(1) == b"E"
        assert client.is_closed()


def test_garbage_instead_of_tls(secured: Serving) -> None:
    with Raw(secured.port) as client:
        client.send(request(SSL))
        assert client.receive(1) == b"S"
        client.send(b"this is no TLS" * 10)
        assert client.is_closed()
    psycopg.connect(secured.url).close()


# cancel


def _cancel(port: int, process: int, key: bytes) -> None:
    with Raw(port) as client:
        client.send(request(CANCEL, struct.pack(">I", process) + key))
        assert client.is_closed()


@pytest.mark.parametrize("minor", [0, 2])
def test_cancel_needs_the_right_key(server: Serving, minor: int) -> None:
    with Raw(server.port) as client:
        client.enter(minor)
        client.send(query("SELECT * FROM slow()"))
        assert server.engine.started.acquire(timeout=10)
        wrong = bytes(each ^ 1 for each in client.key)
        for key in (wrong, client.key[:-1] + b"\0\0", b"\0\0\0\0"):
            _cancel(server.port, client.process, key)
        _cancel(server.port, client.process + 12345, client.key)
        assert len(server.engine.running) == 1
        _cancel(server.port, client.process, client.key)
        said = client.read_until()
        assert error(said)["C"] == "57014"
        # One that comes too late hits nothing.
        _cancel(server.port, client.process, client.key)
        assert rows(client.ask(query("SELECT 1"))) == [[b"1"]]


def test_client_certificates(secured: Serving, authority: Authority, tmp_path: Path) -> None:
    mine = authority.issue("someone")
    url = secured.url.replace("sslmode=disable", f"sslmode=require sslcert={mine.cert} sslkey={mine.key}")
    with psycopg.connect(url) as client:
        assert client.execute("SELECT 1").fetchone() == (1,)
