from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pytest
from adbc_driver_flightsql import DatabaseOptions

from penstock.gateway.access import Access, Users
from penstock.gateway.flight import FlightSqlServer
from penstock.store.base import Store
from penstock.store.sqlite import SqliteStore
from penstock.tls import Tls
from servers.pki import Authority
from tests.gateway.stand_in import StandIn

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


def names(server: FlightSqlServer, **options: str) -> list[Any]:
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
