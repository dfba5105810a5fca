"""What somebody between a client and a server, or in front of it, could try."""

from __future__ import annotations

import http.client
import socket
import ssl
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from penstock.certs import making
from penstock.config.tls import Tls, certificates, private_key
from penstock.server.access import Access, Users
from penstock.server.access.scram import PLAIN, PLUS, end_point
from penstock.server.http.server import WebServer
from penstock.server.network.certificates import Certificates, common_name
from penstock.server.network.sockets import Unauthenticated
from penstock.server.pgwire.server import ALPN, ClientLimits
from penstock.store.memory import MemoryStore
from servers.pki import Authority
from tests.server.access.scram_client import ScramClient
from tests.server.pgwire.raw import SSL, Raw, error, message, request, startup
from tests.server.pgwire.serving import Serving, serving
from tests.server.stand_in import StandIn
from tests.server.waiting import wait_until

ANN = {"user": "ann", "database": "penstock"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def users() -> Users:
    users = Users(MemoryStore())
    users.add("ann", "right horse")
    return users


@contextmanager
def sql(users: Users, tls: Certificates, limits: ClientLimits | None = None) -> Iterator[Serving]:
    with serving(access=Access(users, tls=True), tls=tls, limits=limits or ClientLimits()) as running:
        yield running


@contextmanager
def web(users: Users, tls: Tls) -> Iterator[WebServer]:
    server = WebServer(StandIn(), Access(users, tls=True), tls=tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def context(ca: str, shown: Tls | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=ca)
    if shown is not None:
        made.load_cert_chain(shown.cert, shown.key)
    return made


def der(tls: Tls) -> bytes:
    return certificates("it", Path(tls.cert).read_bytes(), "")[0].public_bytes(Encoding.DER)


def replaced(old: Tls, new: Tls) -> None:
    for name in ("ca", "cert", "key"):
        if getattr(old, name) != getattr(new, name):
            Path(getattr(old, name)).write_bytes(Path(getattr(new, name)).read_bytes())


def who(server: WebServer, tls: ssl.SSLContext) -> int:
    client = http.client.HTTPSConnection("localhost", server.port, context=tls, timeout=10)
    try:
        client.request("GET", "/api/v1/me")
        return client.getresponse().status
    finally:
        client.close()


def shown_to(port: int, ca: str) -> bytes:
    """The certificate of a server of PostgreSQL's protocol."""
    with Raw(port) as client:
        client.send(request(SSL))
        assert client.receive(1) == b"S"
        with context(ca).wrap_socket(client.sock, server_hostname="localhost") as wrapped:
            return wrapped.getpeercert(binary_form=True) or b""


# certificates that are replaced


def test_certificates_are_replaced_while_servers_run(
    users: Users, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.network.certificates._LOOK", 0.0)
    own, old, client = authority.issue("server"), authority.issue("old"), authority.issue("ann")
    (tmp_path / "new").mkdir()
    other = Authority(tmp_path / "new", "new")
    with sql(users, Certificates(own, ALPN)) as server, web(users, own) as pages:
        assert shown_to(server.port, own.ca) == der(own)
        assert who(pages, context(own.ca, client)) == 200
        replaced(own, old)
        assert shown_to(server.port, own.ca) == der(old)
        url = f"host=127.0.0.1 port={server.port} user=ann dbname=penstock sslmode=require"
        psycopg.connect(f"{url} password='right horse' channel_binding=require").close()
        # Another CA, and the old one is believed no more.
        replaced(own, other.issue("server"))
        assert shown_to(server.port, own.ca) == der(own)
        assert who(pages, context(own.ca)) == 401
        assert who(pages, context(own.ca, other.issue("ann"))) == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            who(pages, context(own.ca, client))
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(f"{url} sslcert={client.cert} sslkey={client.key}")


def test_wrong_files_leave_those_in_use_that_were_right(users: Users, authority: Authority) -> None:
    now = 0.0
    own = authority.issue("server")
    live = Certificates(own, clock=lambda: now)
    before = live.now()
    Path(own.cert).write_text("nonsense")
    now = 2.0
    assert live.now() is before


# clients' certificates


def issued(authority: Authority, name: str, begin: datetime, days: int) -> Tls:
    made = making.issue(authority._signer, name, making.LOCAL, days, begin)
    cert, key = authority._write(f"{name}.pem", made.certificates), authority._write(f"{name}.key", made.key)
    return Tls(authority.path, cert, key)


def test_certificates_that_prove_nothing(users: Users, authority: Authority, tmp_path: Path) -> None:
    own = authority.issue("server")
    (tmp_path / "stranger").mkdir()
    stranger = Authority(tmp_path / "stranger", "stranger").issue("ann")
    expired = issued(authority, "ann", datetime.now(UTC) - timedelta(seconds=2), 0)
    holder = authority.issue("bob")
    signer = private_key("key", Path(holder.key).read_bytes(), "")
    assert isinstance(signer, EllipticCurvePrivateKey)
    of_bob = making.Signer(certificates("it", Path(holder.cert).read_bytes(), "")[0], signer)
    made = making.issue(of_bob, "ann", making.LOCAL, 1, datetime.now(UTC))
    forged = Tls(own.ca, str(tmp_path / "forged.pem"), authority._write("forged.key", made.key))
    Path(forged.cert).write_bytes(made.certificates)
    with sql(users, Certificates(own, ALPN)) as server, web(users, own) as pages:
        url = f"host=127.0.0.1 port={server.port} user=ann dbname=penstock sslmode=require"
        for wrong in (stranger, expired, forged):
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(f"{url} sslcert={wrong.cert} sslkey={wrong.key}")
            with pytest.raises((OSError, http.client.HTTPException)):
                who(pages, context(own.ca, wrong))
        assert who(pages, context(own.ca)) == 401
        assert who(pages, context(own.ca, authority.issue("ann"))) == 200


def test_old_versions_of_tls_are_refused(users: Users, authority: Authority) -> None:
    own = authority.issue("server")
    with web(users, own) as pages:
        old = context(own.ca)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            who(pages, old)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_nobody_comes_back_without_being_looked_at(
    users: Users, authority: Authority, version: ssl.TLSVersion
) -> None:
    own = authority.issue("server")
    with web(users, own) as pages:
        client = context(own.ca, authority.issue("ann"))
        client.maximum_version = version
        session = None
        for _ in range(2):
            with (
                socket.create_connection(("127.0.0.1", pages.port), 10) as plain,
                client.wrap_socket(plain, server_hostname="localhost", session=session) as wrapped,
            ):
                wrapped.sendall(b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b"200 OK" in wrapped.recv(100)
                # A session of TLS 1.2 may go on; that a certificate has ended is seen then, too.
                assert version == ssl.TLSVersion.TLSv1_2 or not wrapped.session_reused
                session = wrapped.session


def test_a_certificate_that_has_ended_names_nobody() -> None:
    class Transport:
        end = "Jan  1 00:00:00 2020 GMT"

        def get_extra_info(self, name: str) -> object:
            return {"subject": ((("commonName", "ann"),),), "notAfter": self.end} if name else None

    assert common_name(Transport()) is None  # type: ignore[arg-type]
    Transport.end = "Jan  1 00:00:00 2099 GMT"
    assert common_name(Transport()) == "ann"  # type: ignore[arg-type]


# channel binding


class Talk:
    """A client of PostgreSQL's protocol that speaks SCRAM as a test says."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self.raw = Raw(port)
        if tls is not None:
            self.raw.send(request(SSL))
            assert self.raw.receive(1) == b"S"
            self.raw.sock = tls.wrap_socket(self.raw.sock, server_hostname="localhost")
        self.raw.send(startup(ANN))
        _, body = self.raw.read()
        self.offered = [each.decode() for each in body[4:].split(b"\0") if each]

    def left(self) -> list[str]:
        """Go; what was offered."""
        self.raw.sock.close()
        return self.offered

    def login(self, mechanism: str, client: ScramClient) -> str:
        """The code of the error, or nothing if the client came in."""
        first = client.first()
        self.raw.send(message("p", mechanism.encode() + b"\0" + len(first).to_bytes(4, "big") + first))
        kind, body = self.raw.read()
        if kind == "R":
            self.raw.send(message("p", client.final(body[4:])))
            kind, body = self.raw.read()
        self.raw.sock.close()
        return error([(kind, body)])["C"] if kind == "E" else ""


def test_channel_binding_cannot_be_talked_down(users: Users, authority: Authority) -> None:
    own, other = authority.issue("server"), authority.issue("another")
    right, wrong = end_point(der(own)), end_point(der(other))
    bound = "p=tls-server-end-point"

    def client(flag: str, binding: bytes = b"") -> ScramClient:
        return ScramClient("right horse", flag=flag, bound=binding)

    with sql(users, Certificates(own, ALPN)) as server:
        tls = context(own.ca)
        assert Talk(server.port, tls).left() == [PLUS, PLAIN]
        assert Talk(server.port, None).left() == [PLAIN]
        assert Talk(server.port, tls).login(PLUS, client(bound, right)) == ""
        assert Talk(server.port, tls).login(PLAIN, client("n")) == ""
        # Somebody hid the offer from the client.
        assert Talk(server.port, tls).login(PLAIN, client("y")) == "28000"
        # Somebody with another certificate passes on what the client says.
        assert Talk(server.port, tls).login(PLUS, client(bound, wrong)) == "28P01"
        assert Talk(server.port, tls).login(PLUS, client(bound)) == "28P01"
        # What does not fit together.
        assert Talk(server.port, tls).login(PLUS, client("n")) == "08P01"
        assert Talk(server.port, tls).login(PLAIN, client(bound, right)) == "08P01"
        assert Talk(server.port, None).login(PLUS, client(bound, right)) == "08P01"
        assert Talk(server.port, tls).login(PLUS, client("p=tls-unique", right)) == "08P01"


# handshakes that are left half open


def test_handshakes_left_half_open_end(users: Users, authority: Authority) -> None:
    limits = ClientLimits(greeting=20, authentication=0.3)
    with sql(users, Certificates(authority.issue("server"), ALPN), limits) as server, ExitStack() as stack:
        begun = [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", request(SSL), request(SSL)[:4], startup(ANN)]
        for number in range(60):
            client = stack.enter_context(Raw(server.port))
            with suppress(OSError):
                client.send(begun[number % len(begun)])
        wait_until(lambda: len(server.server._greeting) == 0)
        assert server.server.connections == 0


def test_half_handshakes_of_https_are_bounded(
    users: Users, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.http.server.UNAUTHENTICATED", 10)
    own = authority.issue("server")
    with web(users, own) as pages, ExitStack() as stack:
        half = [
            stack.enter_context(socket.create_connection(("127.0.0.1", pages.port), 5)) for _ in range(300)
        ]
        assert who(pages, context(own.ca, authority.issue("ann"))) == 200
        assert len(pages._unauthenticated) <= 10
        # All but the newest are ended at once, and not when their time is up.
        for each in half[:-10]:
            with suppress(ConnectionResetError):
                assert each.recv(1) == b""


def test_who_comes_in_is_no_guest_any_more(
    users: Users, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.http.server.UNAUTHENTICATED", 3)
    own = authority.issue("server")
    tls = context(own.ca, authority.issue("ann"))
    with web(users, own) as pages, ExitStack() as stack:
        kept = http.client.HTTPSConnection("localhost", pages.port, context=tls, timeout=10)
        stack.callback(kept.close)
        kept.request("GET", "/api/v1/me")
        assert kept.getresponse().read()
        for _ in range(10):
            stack.enter_context(socket.create_connection(("127.0.0.1", pages.port), 10))
        wait_until(lambda: len(pages._unauthenticated) == 3)
        kept.request("GET", "/api/v1/me")
        assert kept.getresponse().status == 200


@pytest.mark.parametrize("flood", [range(100), range(3)])
def test_who_pushes_most_goes_first(flood: range) -> None:
    crowd: Unauthenticated[str] = Unauthenticated(10)
    crowd.add("honest", "10.0.0.1")
    gone: list[str | None] = [crowd.add(f"bad {number}", "10.0.0.66") for number in flood]
    assert "honest" in crowd.all() and len(crowd) == min(10, len(flood) + 1)
    assert [each for each in gone if each] == [f"bad {number}" for number in range(max(0, len(flood) - 9))]
    assert crowd.add("late", "10.0.0.2") != "honest"
