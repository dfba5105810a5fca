"""Workers that come in over a real Flight port: with a token, with a certificate, and those that may not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import flight

from penstock.config import ClusterConfig, Config
from penstock.errors import PenstockError
from penstock.gateway.access import Access, Users
from penstock.gateway.flight import FlightSqlServer
from penstock.gateway.roles.board import WorkerBoard, join_token, workers
from penstock.gateway.roles.proof import prove
from penstock.gateway.roles.reception import CHALLENGE, JOIN, Reception
from penstock.gateway.roles.worker import WorkerRole
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
def serving(store: Store, tls: Tls | None) -> Iterator[FlightSqlServer]:
    users = Users(store)
    reception = Reception(store, ClusterConfig(), tls=tls, is_user=lambda name: users.find(name) is not None)
    reception.open("spark://127.0.0.1:7077", "s3cret", WorkerBoard(store, "c1", 1))
    access = Access(users, tls=tls is not None)
    server = FlightSqlServer(StandIn(), access, host="127.0.0.1", port=0, tls=tls, reception=reception.answer)
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
