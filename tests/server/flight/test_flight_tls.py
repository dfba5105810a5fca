from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pytest
from adbc_driver_flightsql import DatabaseOptions

from penstock.config.tls import Tls
from penstock.server.access import Access, Users
from penstock.server.flight import FlightSqlServer
from penstock.server.flight.following import FollowingServer
from penstock.server.flight.open_statements import OpenStatements
from penstock.store.base import Store
from penstock.store.sqlite import SqliteStore
from servers.pki import Authority
from tests.server.serve import wait_until
from tests.server.stand_in import StandIn

OFFER = {"id": "w1", "host": "127.0.0.2", "cores": 1, "memory": "1g", "version": "0.1.0"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return SqliteStore(str(tmp_path / "store.db"))


@contextmanager
def serving(store: Store, tls: Tls, *, certificates: bool = False) -> Iterator[FlightSqlServer]:
    server = FlightSqlServer(
        StandIn(),
        Access(Users(store), tls=True),
        host="127.0.0.1",
        port=0,
        tls=tls,
        certificates=certificates,
    )
    try:
        yield server
    finally:
        server.stop()


def names(server: FlightSqlServer | FollowingServer, **options: str) -> list[Any]:
    with (
        adbc.connect(f"grpc+tls://localhost:{server.port}", db_kwargs=options, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT * FROM people")
        return [name for _, name in cursor.fetchall()]


def root(tls: Tls) -> dict[str, str]:
    return {DatabaseOptions.TLS_ROOT_CERTS.value: Path(tls.ca).read_text()}


def shown(tls: Tls) -> dict[str, str]:
    return {
        DatabaseOptions.MTLS_CERT_CHAIN.value: Path(tls.cert).read_text(),
        DatabaseOptions.MTLS_PRIVATE_KEY.value: Path(tls.key).read_text(),
    }


def test_clients_that_believe_the_ca_come_in(store: Store, authority: Authority) -> None:
    with serving(store, authority.issue("server")) as server:
        tls = authority.issue("client")
        assert names(server, **root(tls)) == ["ann", None, "cid"]
        with pytest.raises(adbc_driver_manager.Error):
            names(server)


def test_where_certificates_are_wanted_nobody_comes_in_without(
    store: Store, authority: Authority, tmp_path: Path
) -> None:
    with serving(store, authority.issue("server"), certificates=True) as server:
        tls = authority.issue("client")
        assert names(server, **root(tls), **shown(tls)) == ["ann", None, "cid"]
        with pytest.raises(adbc_driver_manager.Error):
            names(server, **root(tls))
        stranger = Authority(tmp_path, "stranger").issue("client")
        with pytest.raises(adbc_driver_manager.Error):
            names(server, **root(tls), **shown(stranger))


def test_certificates_are_followed_and_streams_go_on(
    store: Store, authority: Authority, tmp_path: Path
) -> None:
    """New files are shown within seconds, what a client has begun is kept, and wrong files change nothing."""
    tls = copied(authority.issue("server"), tmp_path)
    access = Access(Users(store), tls=True)

    def make(port: int, statements: OpenStatements | None) -> FlightSqlServer:
        return FlightSqlServer(StandIn(), access, host="127.0.0.1", port=port, tls=tls, statements=statements)

    server = FollowingServer(make, 0, tls, look=0.05)
    try:
        first = certificate(server.port)
        with (
            adbc.connect(
                f"grpc+tls://localhost:{server.port}", db_kwargs=root(tls), autocommit=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT * FROM people")
            Path(tls.cert).write_bytes(b"no certificate")
            time.sleep(0.3)
            assert certificate(server.port) == first
            copied(authority.issue("renewed"), tmp_path)
            wait_until(lambda: certificate(server.port) not in ("", first))
            assert len(cursor.fetchall()) == 3
            cursor.execute("SELECT * FROM people")
            assert len(cursor.fetchall()) == 3
        assert names(server, **root(tls)) == ["ann", None, "cid"]
    finally:
        server.stop()
    assert not certificate(server.port)


def copied(tls: Tls, folder: Path) -> Tls:
    found = Tls(ca=str(folder / "ca.pem"), cert=str(folder / "cert.pem"), key=str(folder / "key.pem"))
    for one, other in ((tls.ca, found.ca), (tls.key, found.key), (tls.cert, found.cert)):
        Path(other).write_bytes(Path(one).read_bytes())
    Path(found.key).chmod(0o600)
    return found


def certificate(port: int) -> str:
    """What the server shows; nothing while it is being replaced."""
    try:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=5)
    except OSError:
        return ""
