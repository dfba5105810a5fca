"""Passwords and certificates, with the users that the gateway really has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import psycopg
import pytest

from penstock.server.access import Access, Users
from penstock.server.network.certificates import Certificates
from penstock.server.pgwire.server import ALPN
from penstock.store.memory import MemoryStore
from servers.pki import Authority
from tests.server.pgwire.raw import Raw, error, message, startup
from tests.server.pgwire.serving import Serving, serving


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def guarded(authority: Authority) -> Iterator[Serving]:
    users = Users(MemoryStore())
    users.add("ann", "right horse", admin=True)
    users.add("bob")
    own = authority.issue("server")
    with serving(access=Access(users, tls=True), tls=Certificates(own, ALPN)) as running:
        yield running


def _url(guarded: Serving, **parts: str) -> str:
    options = {"host": "127.0.0.1", "port": str(guarded.port), "user": "ann", "dbname": "penstock", **parts}
    return " ".join(f"{name}='{value}'" for name, value in options.items())


@pytest.mark.parametrize(
    "parts",
    [
        {"sslmode": "disable"},
        {"sslmode": "require", "channel_binding": "require"},
        {"sslmode": "require", "sslnegotiation": "direct", "channel_binding": "require"},
        {"sslmode": "require", "max_protocol_version": "latest"},
    ],
)
def test_the_right_password(guarded: Serving, parts: dict[str, str]) -> None:
    with psycopg.connect(_url(guarded, password="right horse", **parts)) as client:
        assert client.execute("SELECT 1").fetchone() == (1,)
        assert client.info.parameter_status("is_superuser") == "on"


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "right horse"), ("bob", "x")])
def test_a_wrong_password(guarded: Serving, user: str, password: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(_url(guarded, user=user, password=password, sslmode="disable"))


def test_asyncpg_logs_in(guarded: Serving) -> None:
    async def ask() -> object:
        client = await asyncpg.connect(
            host="127.0.0.1",
            port=guarded.port,
            user="ann",
            password="right horse",
            database="penstock",
            ssl=False,
        )
        try:
            return await client.fetchval("SELECT 1")
        finally:
            await client.close()

    assert asyncio.run(ask()) == 1


def test_a_certificate_instead_of_a_password(guarded: Serving, authority: Authority) -> None:
    mine = authority.issue("bob")
    shown = {"sslmode": "require", "sslcert": mine.cert, "sslkey": mine.key}
    with psycopg.connect(_url(guarded, user="bob", **shown)) as client:
        assert client.info.parameter_status("session_authorization") == "bob"
    # It is not for others.
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(_url(guarded, user="ann", password="wrong", **shown))


def test_nothing_is_answered_before_the_password(guarded: Serving) -> None:
    for instead in (message("Q", b"SELECT 1\0"), message("p", b"SCRAM-SHA-256\0" + b"\0\0\xff\xff")):
        with Raw(guarded.port) as client:
            client.send(startup({"user": "ann", "database": "penstock"}))
            assert client.read()[0] == "R"
            client.send(instead)
            told = error(client.read_until("E"))
            assert (told["C"], told["S"]) == ("08P01", "FATAL")
            assert client.is_closed()
