from __future__ import annotations

import base64
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.config.tls import Tls
from penstock.errors import ConfigError, SessionLost, StoreUnavailable, UsageError
from penstock.store.base import Store
from penstock.store.conformance import StoreConformance
from penstock.store.etcd import EtcdStore
from penstock.store.etcd import client as etcd_client
from penstock.store.etcd.channel import LEASE_KEEP_ALIVE, EtcdNode
from servers.etcd import EtcdCluster
from servers.pki import Authority

OpenStore = Callable[..., EtcdStore]


class TestEtcdStore(StoreConformance):
    # etcd lets no lease end before two seconds, and looks twice a second.
    ttl = 2.0
    grace = 1.5

    @pytest.fixture
    def stores(self, etcd: EtcdCluster, open_in: OpenStore) -> tuple[Store, Store]:
        return open_in(etcd), open_in(etcd)


def use(store: EtcdStore) -> None:
    """Read, write, watch and stay alive."""
    since = store.revision()
    version = store.cas("k", 0, b"1")
    assert version and [c.key for c in store.watch("", since, 5).changes] == ["k"]
    session = store.session(60)
    session.keepalive()
    session.close()
    assert store.cas("k", version, None)


# sessions


def test_a_session_lives_at_least_as_long_as_asked(etcd: EtcdCluster, open_in: OpenStore) -> None:
    session = open_in(etcd).session(0.5)
    assert session.ttl == 0.5
    time.sleep(0.5)
    session.keepalive()


def test_a_session_whose_key_is_gone_is_lost(etcd: EtcdCluster, open_in: OpenStore) -> None:
    store = open_in(etcd)
    session = store.session(60)
    key = f"{store.url.rpartition('/')[2]}/s/{session.id}"
    deleted = etcd.request("kv/deleterange", {"key": base64.b64encode(key.encode()).decode()})
    assert deleted["deleted"] == "1"
    with pytest.raises(SessionLost):
        session.keepalive()


@pytest.mark.parametrize("wrong", [{"raft_term": 1}, {"TTL": 0}])
def test_the_word_of_a_leader_of_the_past_does_not_count(
    etcd: EtcdCluster, open_in: OpenStore, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, int]
) -> None:
    session = open_in(etcd).session(60)
    real, asked = EtcdNode.call, []

    def call(node: EtcdNode, method: Any, *rest: Any) -> Any:
        answer = real(node, method, *rest)
        if method is LEASE_KEEP_ALIVE:
            asked.append(method)
            if len(asked) == 1:
                answer.TTL = wrong.get("TTL", answer.TTL)
                answer.header.raft_term = wrong.get("raft_term", answer.header.raft_term)
        return answer

    monkeypatch.setattr(EtcdNode, "call", call)
    session.keepalive()
    assert len(asked) == 2


def test_a_session_for_ever_is_refused(etcd: EtcdCluster, open_in: OpenStore) -> None:
    with pytest.raises(UsageError, match="cannot live that long"):
        open_in(etcd).session(1e30)


# users and passwords


def test_a_user_with_the_right_password_is_let_in(locked_etcd: EtcdCluster, open_in: OpenStore) -> None:
    use(open_in(locked_etcd, user="root", password="secret"))
    hosts = ",".join(locked_etcd.endpoints)
    with EtcdStore.open(f"etcd://root:secret@{hosts}/by-url") as by_url:
        use(by_url)
    with EtcdStore.open(f"etcd://root:old@{hosts}/by-word", password="secret") as by_word:
        use(by_word)


@pytest.mark.parametrize(
    ("user", "password", "what"),
    [
        ("root", "wrong", "user name or the password"),
        ("nobody", "secret", "user name or the password"),
        (None, None, "wants a user"),
    ],
)
def test_others_are_refused_at_once(
    locked_etcd: EtcdCluster, open_in: OpenStore, user: str | None, password: str | None, what: str
) -> None:
    store = open_in(locked_etcd, user=user, password=password)
    began = time.monotonic()
    for call in (lambda: store.get("k"), lambda: store.cas("k", 0, b""), lambda: store.watch("", 0, 5)):
        with pytest.raises(ConfigError, match=what) as caught:
            call()
        assert caught.value.hint and "user:password@" in caught.value.hint
        assert "wrong" not in str(caught.value)
    assert time.monotonic() - began < 10


def test_a_token_that_is_no_longer_valid_is_renewed(locked_etcd: EtcdCluster, open_in: OpenStore) -> None:
    store = open_in(locked_etcd, user="root", password="secret")
    version = store.cas("k", 0, b"1")
    for call in (
        lambda: store.cas("k", version or 0, b"2"),
        lambda: store.watch("", 0, 5).changes,
        lambda: store.session(60),
    ):
        store._client._token = "stale.1"
        assert call()
        assert store._client._token != "stale.1"


def test_a_user_without_permission_learns_what_to_grant(locked_etcd: EtcdCluster, open_in: OpenStore) -> None:
    login = locked_etcd.request("auth/authenticate", {"name": "root", "password": "secret"})
    locked_etcd.request("auth/user/add", {"name": "guest", "password": "guest"}, login["token"])
    store = open_in(locked_etcd, user="guest", password="guest")
    for call in (lambda: store.get("k"), lambda: store.cas("k", 0, b""), lambda: store.watch("", 0, 5)):
        with pytest.raises(ConfigError, match="does not let this user") as caught:
            call()
        assert caught.value.hint and "grant-permission" in caught.value.hint


def test_a_password_does_no_harm_where_there_are_no_users(etcd: EtcdCluster, open_in: OpenStore) -> None:
    use(open_in(etcd, user="root", password="secret"))


# certificates


def test_a_client_of_the_authority_is_let_in(
    tls_etcd: EtcdCluster, open_in: OpenStore, authority: Authority
) -> None:
    use(open_in(tls_etcd, tls=authority.issue("client")))


def test_a_certificate_of_somebody_else_is_refused(
    tls_etcd: EtcdCluster, open_in: OpenStore, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    store = open_in(tls_etcd, tls=other.trusting(other.issue("client"), authority))
    with pytest.raises(ConfigError, match="refuses our certificate") as caught:
        store.get("k")
    assert caught.value.hint and "--trusted-ca-file" in caught.value.hint


def test_certificates_that_were_replaced_are_used_without_a_restart(
    tls_etcd: EtcdCluster, open_in: OpenStore, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    files = other.trusting(other.issue("client"), authority)
    store = open_in(tls_etcd, tls=files)
    with pytest.raises(ConfigError, match="refuses our certificate"):
        store.get("k")
    good = authority.issue("renewed")
    Path(files.key).write_bytes(Path(good.key).read_bytes())
    Path(files.cert).write_bytes(Path(good.cert).read_bytes())
    use(store)


def test_a_server_of_somebody_else_is_not_trusted(
    tls_etcd: EtcdCluster, open_in: OpenStore, tmp_path: Path
) -> None:
    store = open_in(tls_etcd, tls=Authority(tmp_path, "other").issue("client"))
    with pytest.raises(ConfigError, match="not signed by the CA") as caught:
        store.get("k")
    assert caught.value.hint and "`ca` in" in caught.value.hint


def test_a_certificate_for_another_host_is_not_trusted(
    tls_etcd: EtcdCluster, open_in: OpenStore, authority: Authority
) -> None:
    port = tls_etcd.endpoints[0].rpartition(":")[2]
    store = open_in(tls_etcd, [f"localhost:{port}"], tls=authority.issue("client"))
    with pytest.raises(ConfigError, match="another host") as caught:
        store.get("k")
    assert caught.value.hint and "alternative names" in caught.value.hint


def test_a_client_without_certificates_is_refused(
    tls_etcd: EtcdCluster, open_in: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_client, "PATIENCE", 0.5)
    with pytest.raises(StoreUnavailable) as caught:
        open_in(tls_etcd).get("k")
    assert caught.value.hint and "TLS" in caught.value.hint


def test_a_certificate_that_is_not_there_is_named(
    tls_etcd: EtcdCluster, open_in: OpenStore, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        open_in(tls_etcd, tls=Tls(str(tmp_path / "absent.pem"), "x", "x"))


# handles


def test_a_closed_store_says_so(etcd: EtcdCluster, open_in: OpenStore) -> None:
    store = open_in(etcd)
    assert store.cas("k", 0, b"")
    session = store.session(60)
    until = store.watch("", 0, 1).until
    store.close()
    store.close()
    for call in (lambda: store.get("k"), lambda: store.watch("", until, 1), session.keepalive, session.close):
        with pytest.raises(UsageError, match="was closed"):
            call()


def test_closing_ends_a_watch_that_waits(etcd: EtcdCluster, open_in: OpenStore) -> None:
    store = open_in(etcd)
    since = store.revision()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.watch, "", since, 30)
        deadline = time.monotonic() + 5
        while not any(thread.name == "penstock-etcd-watch" for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        store.close()
        with pytest.raises(UsageError, match="was closed"):
            waiting.result(timeout=5)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_it_works_in_a_forked_child_while_the_parent_goes_on(etcd: EtcdCluster, open_in: OpenStore) -> None:
    store = open_in(etcd)
    session = store.session(60)
    store.cas("k", 0, b"parent")
    until = store.watch("", store.revision(), 0).until
    child = os.fork()
    if child == 0:
        good = False
        try:
            document = store.get("k")
            assert document is not None and store.cas("k", document.version, b"child")
            assert store.alive([session.id]) and store.watch("", until, 5).changes
            store.close()
            good = True
        finally:
            os._exit(0 if good else 1)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.02)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert [c.value for c in store.watch("", until, 5).changes] == [b"child"]
    document = store.get("k")
    assert document is not None and store.cas("k", document.version, b"parent again")
    session.keepalive()
