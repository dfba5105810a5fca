"""Workers that come in over a real Flight port: with a token, with a certificate, and those that may not."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from pyarrow import flight

from penstock.certs import making
from penstock.config import ClusterConfig, Config
from penstock.config.tls import Tls, certificates, private_key
from penstock.errors import ConfigError, PenstockError, SqlError
from penstock.server.access import Access, Users
from penstock.server.flight import FlightSqlServer
from penstock.server.roles.proof import prove
from penstock.server.roles.worker import WorkerRole
from penstock.server.roles.worker_admission import BEAT, CHALLENGE, JOIN, WorkerAdmission
from penstock.server.roles.worker_records import WorkerBoard, join_token, renew_join_token, workers
from penstock.store.base import Store
from penstock.store.sqlite import SqliteStore
from servers.pki import Authority
from tests.server.stand_in import StandIn

OFFER = {"id": "w1", "host": "127.0.0.2", "cores": 1, "memory": "1g", "version": "0.1.0"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return SqliteStore(str(tmp_path / "store.db"))


@contextmanager
def serving(store: Store, tls: Tls | None) -> Iterator[FlightSqlServer]:
    users = Users(store)
    admission = WorkerAdmission(
        store, ClusterConfig(), tls=tls, is_user=lambda name: users.find(name) is not None
    )
    admission.open("spark://127.0.0.1:7077", "s3cret", WorkerBoard(store, "c1", 1))
    access = Access(users, tls=tls is not None)
    server = FlightSqlServer(
        StandIn(), access, host="127.0.0.1", port=0, tls=tls, worker_actions=admission.answer
    )
    try:
        yield server
    finally:
        server.stop()


def invitation(server: FlightSqlServer, tls: Tls, name: str = "w1", **changed: str) -> dict[str, object]:
    """What a worker with a certificate is told; ``changed`` is what it says wrongly."""
    ca, _, _ = tls.credentials()
    client = flight.FlightClient(f"grpc+tls://localhost:{server.port}", tls_root_certs=ca)
    [asked] = client.do_action(flight.Action(CHALLENGE, b"{}"))
    proof = prove(tls, json.loads(asked.body.to_pybytes())["nonce"], name)
    body = json.dumps({"offer": OFFER, **proof, **changed}).encode()
    [answer] = client.do_action(flight.Action(JOIN, body))
    found: dict[str, object] = json.loads(answer.body.to_pybytes())
    return found


def test_a_worker_with_a_certificate_needs_no_token(store: Store, authority: Authority) -> None:
    with serving(store, authority.issue("server")) as server:
        assert invitation(server, authority.issue("w1"))["secret"] == "s3cret"
        assert [worker.id for worker in workers(store)] == ["w1"]


def test_a_certificate_of_a_user_lets_no_worker_in(store: Store, authority: Authority) -> None:
    Users(store).add("ann", "secret")
    with (
        serving(store, authority.issue("server")) as server,
        pytest.raises(flight.FlightUnauthenticatedError, match="that of the user 'ann'"),
    ):
        invitation(server, authority.issue("ann"))


def test_a_certificate_of_another_ca_is_refused(store: Store, authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    with (
        serving(store, authority.issue("server")) as server,
        pytest.raises(flight.FlightUnauthenticatedError, match="not of this cluster's CA"),
    ):
        invitation(server, stranger.trusting(stranger.issue("w1"), authority))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"signature": "AAAA"}, "does not have the key"),
        ({"signature": "not base64!"}, "not complete"),
        ({"certificate": "nonsense"}, "cannot be used"),
        ({"nonce": "made up"}, "not ours"),
    ],
)
def test_who_cannot_prove_the_key_is_refused(
    store: Store, authority: Authority, changed: dict[str, str], why: str
) -> None:
    with (
        serving(store, authority.issue("server")) as server,
        pytest.raises(flight.FlightUnauthenticatedError, match=why),
    ):
        invitation(server, authority.issue("w1"), **changed)
    assert workers(store) == []


def test_a_proof_is_for_one_worker_and_one_time(store: Store, authority: Authority) -> None:
    tls = authority.issue("w1")
    with serving(store, authority.issue("server")) as server:
        with pytest.raises(flight.FlightUnauthenticatedError, match="does not have the key"):
            invitation(server, tls, name="another")
        ca, _, _ = tls.credentials()
        client = flight.FlightClient(f"grpc+tls://localhost:{server.port}", tls_root_certs=ca)
        [asked] = client.do_action(flight.Action(CHALLENGE, b"{}"))
        proof = prove(tls, json.loads(asked.body.to_pybytes())["nonce"], "w1")
        body = json.dumps({"offer": OFFER, **proof}).encode()
        assert list(client.do_action(flight.Action(JOIN, body)))
        with pytest.raises(flight.FlightUnauthenticatedError, match="not ours, or too old"):
            list(client.do_action(flight.Action(JOIN, body)))


def test_the_role_asks_with_what_it_has(store: Store, authority: Authority, tmp_path: Path) -> None:
    server_tls = authority.issue("server")
    with serving(store, server_tls) as server:
        address = f"localhost:{server.port}"
        token = ClusterConfig(coordinator_address=address, worker_id="w1", join_token=join_token(store))
        certificate = replace(token, join_token=None)
        wrong = replace(token, join_token="x" * 40)
        for cluster, allowed in ((token, True), (certificate, True), (wrong, False)):
            config = Config("sqlite:///none", str(tmp_path), cluster=cluster, tls=authority.issue("w1"))
            role = WorkerRole(config, tmp_path, lambda _: None)
            if allowed:
                assert role.invited(address)["master"] == "spark://127.0.0.1:7077"
            else:
                with pytest.raises(PenstockError, match="does not let this worker in") as caught:
                    role.invited(address)
                assert "cluster token" in str(caught.value)


def signed_by(signer: Tls, folder: Path, name: str) -> Tls:
    """A certificate that the holder of another one makes without anybody's leave, and both in a chain."""
    now = datetime.now(UTC)
    key = private_key("key", Path(signer.key).read_bytes(), "")
    assert isinstance(key, EllipticCurvePrivateKey)
    [own, *_] = certificates("cert", Path(signer.cert).read_bytes(), "")
    made = making.issue(making.Signer(own, key), name, making.LOCAL, 1, now)
    tls = Tls(signer.ca, str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
    Path(tls.cert).write_bytes(made.certificates)
    Path(tls.key).touch(mode=0o600)
    Path(tls.key).write_bytes(made.key)
    return tls


def test_who_has_a_certificate_makes_no_others(store: Store, authority: Authority, tmp_path: Path) -> None:
    Users(store).add("ann", "secret")
    forged = signed_by(authority.issue("ann"), tmp_path, "w1")
    with serving(store, authority.issue("server")) as server:
        ca, cert, key = (Path(path).read_bytes() for path in (forged.ca, forged.cert, forged.key))
        with pytest.raises(ConfigError, match="not signed by a CA"):
            forged.credentials()
        client = flight.FlightClient(f"grpc+tls://localhost:{server.port}", tls_root_certs=ca)
        [asked] = client.do_action(flight.Action(CHALLENGE, b"{}"))
        nonce = json.loads(asked.body.to_pybytes())["nonce"]
        signer = private_key("key", key, "")
        assert isinstance(signer, EllipticCurvePrivateKey)
        signature = signer.sign(f"penstock worker joins\n{nonce}\nw1".encode(), ECDSA(SHA256()))
        proof = {"certificate": cert.decode(), "signature": base64.b64encode(signature).decode()}
        body = json.dumps({"offer": OFFER, "nonce": nonce, **proof}).encode()
        with pytest.raises(flight.FlightUnauthenticatedError, match="not of this cluster's CA"):
            list(client.do_action(flight.Action(JOIN, body)))
    assert workers(store) == []


def test_who_asks_for_challenges_without_end_keeps_nobody_out(store: Store, authority: Authority) -> None:
    tls = authority.issue("w1")
    admission = WorkerAdmission(store, ClusterConfig(), tls=authority.issue("server"))
    admission.open("spark://127.0.0.1:7077", "s3cret", WorkerBoard(store, "c1", 1))
    nonce = json.loads(admission.answer(CHALLENGE, b"{}"))["nonce"]
    for _ in range(2000):
        admission.answer(CHALLENGE, b"{}")
    body = json.dumps({"offer": OFFER, **prove(tls, nonce, "w1")}).encode()
    assert json.loads(admission.answer(JOIN, body))["secret"] == "s3cret"


def test_a_challenge_ends_after_a_minute(store: Store, authority: Authority) -> None:
    now = 0.0
    tls = authority.issue("w1")
    admission = WorkerAdmission(store, ClusterConfig(), tls=authority.issue("server"), clock=lambda: now)
    admission.open("spark://127.0.0.1:7077", "s3cret", WorkerBoard(store, "c1", 1))
    nonce = json.loads(admission.answer(CHALLENGE, b"{}"))["nonce"]
    now = 61.0
    with pytest.raises(SqlError, match="not ours, or too old"):
        admission.answer(JOIN, json.dumps({"offer": OFFER, **prove(tls, nonce, "w1")}).encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"number": 1e999}',
        b'{"number": NaN}',
        b'{"id": "\\ud800", "number": 1, "key": "\\udfff"}',
        b'{"certificate": "\\ud800", "nonce": "x"}',
        b'{"a": ' + b"[" * 15_000 + b"]" * 15_000 + b"}",
        b"[]",
        b"\xff",
    ],
)
def test_what_no_worker_says_is_refused(store: Store, authority: Authority, body: bytes) -> None:
    admission = WorkerAdmission(store, ClusterConfig(), tls=authority.issue("server"))
    admission.open("spark://127.0.0.1:7077", "s3cret", WorkerBoard(store, "c1", 1))
    for action in (JOIN, BEAT):
        with pytest.raises(SqlError) as caught:
            admission.answer(action, body)
        assert caught.value.sqlstate == "22023"


def test_a_token_that_was_renewed_lets_nobody_in(store: Store) -> None:
    admission = WorkerAdmission(store, ClusterConfig())
    admission.open("spark://127.0.0.1:7077", "s3cret", WorkerBoard(store, "c1", 1))
    old = join_token(store)
    joined = json.loads(admission.answer(JOIN, json.dumps({"token": old, "offer": OFFER}).encode()))
    new = renew_join_token(store)
    for wrong in (old, new[:-1], "", None, [new], {"token": new}):
        with pytest.raises(SqlError) as caught:
            admission.answer(JOIN, json.dumps({"token": wrong, "offer": OFFER}).encode())
        assert caught.value.sqlstate == "28000"
    said = {"id": "w1", "number": joined["number"], "key": joined["key"]}
    assert json.loads(admission.answer(BEAT, json.dumps(said).encode())) == {"known": True}
    assert json.loads(admission.answer(BEAT, json.dumps({**said, "key": ""}).encode())) == {"known": False}
