"""Writes that etcd has made and whose answers never arrived: nobody believes a conflict with himself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from penstock.errors import StoreUnavailable
from penstock.store.base import Write
from penstock.store.etcd import EtcdStore
from penstock.store.etcd.channel import LEASE_REVOKE, TXN, EtcdNode
from penstock.store.etcd.wire_pb2 import LeaseRevokeRequest
from servers.etcd import EtcdCluster

OpenStore = Callable[..., EtcdStore]


class Lost(grpc.RpcError):
    """The network's fault."""


class Network:
    """Between a handle and the nodes: loses the next answer, or the next request, of a transaction."""

    def __init__(self, store: EtcdStore, call: Callable[..., Any]) -> None:
        self._nodes = store._client._nodes
        self._call = call
        self._then: Callable[[], object] | None = None
        self._arrives = True
        self.kept: Callable[[], object] = lambda: None
        """Delivers the request that was lost."""

    def lose_answer(self, then: Callable[[], object] = lambda: None) -> None:
        self._then, self._arrives = then, True

    def lose_request(self, then: Callable[[], object] = lambda: None) -> None:
        self._then, self._arrives = then, False

    def call(self, node: EtcdNode, method: Any, *rest: Any) -> Any:
        if self._then is None or method is not TXN or node not in self._nodes:
            return self._call(node, method, *rest)
        then, self._then = self._then, None
        if self._arrives:
            self._call(node, method, *rest)
        self.kept = lambda: self._call(node, method, *rest)
        then()
        raise Lost("the answer was lost")


@pytest.fixture
def store(etcd: EtcdCluster, open_in: OpenStore) -> EtcdStore:
    return open_in(etcd)


@pytest.fixture
def other(etcd: EtcdCluster, open_in: OpenStore) -> EtcdStore:
    return open_in(etcd)


@pytest.fixture
def network(store: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    between = Network(store, EtcdNode.call)

    def call(node: EtcdNode, *rest: Any) -> Any:
        return between.call(node, *rest)

    monkeypatch.setattr(EtcdNode, "call", call)
    yield between
    assert between._then is None, "nothing was lost"


def must(version: int | None) -> int:
    assert version is not None
    return version


def overwrite(store: EtcdStore, key: str, value: bytes | None) -> int:
    document = store.get(key)
    return must(store.cas(key, document.version if document else 0, value))


def first_change(store: EtcdStore, since: int) -> int:
    return store.watch("", since, 5).changes[0].version


def compact(cluster: EtcdCluster, revision: int) -> None:
    cluster.request("kv/compaction", {"revision": revision, "physical": True})


# replacing a document


def test_a_replacement_is_found_in_the_document(store: EtcdStore, network: Network) -> None:
    first = must(store.cas("k", 0, b"1"))
    network.lose_answer()
    second = must(store.cas("k", first, b"2"))
    document = store.get("k")
    assert document is not None and (document.value, document.version) == (b"2", second)


def test_a_replacement_that_was_overwritten_is_found_in_history(
    store: EtcdStore, other: EtcdStore, network: Network
) -> None:
    first = must(store.cas("k", 0, b"1"))
    seen: list[int] = []

    def go_on() -> None:
        document = other.get("k")
        assert document is not None and document.value == b"mine"
        seen.append(document.version)
        for value in (b"yours", None, b"again", b"and again"):
            overwrite(other, "k", value)

    network.lose_answer(go_on)
    assert store.cas("k", first, b"mine") == seen[0]
    document = store.get("k")
    assert document is not None and document.value == b"and again"


def test_a_replacement_whose_request_was_lost_is_made_once(store: EtcdStore, network: Network) -> None:
    first = must(store.cas("k", 0, b"1"))
    network.lose_request()
    second = must(store.cas("k", first, b"2"))
    network.kept()
    document = store.get("k")
    assert document is not None and (document.value, document.version) == (b"2", second)


@pytest.mark.parametrize("then", [[b"yours"], [None], [None, b"yours"]])
def test_a_replacement_that_came_too_late_is_a_conflict(
    store: EtcdStore, other: EtcdStore, network: Network, then: list[bytes | None]
) -> None:
    first = must(store.cas("k", 0, b"1"))
    network.lose_request(lambda: [overwrite(other, "k", value) for value in then])
    assert store.cas("k", first, b"mine") is None
    document = store.get("k")
    assert (document.value if document else None) == then[-1]


def test_compaction_up_to_the_expected_version_hides_nothing(
    store: EtcdStore, other: EtcdStore, network: Network, etcd: EtcdCluster
) -> None:
    first = must(store.cas("k", 0, b"1"))
    for i in range(3):
        before = must(store.cas(f"elsewhere{i}", 0, b""))

    def go_on() -> None:
        overwrite(other, "k", b"yours")
        compact(etcd, before)

    network.lose_answer(go_on)
    assert must(store.cas("k", first, b"mine")) > before


def test_what_cannot_be_known_is_not_guessed(
    store: EtcdStore, other: EtcdStore, network: Network, etcd: EtcdCluster
) -> None:
    first = must(store.cas("k", 0, b"1"))
    network.lose_answer(lambda: compact(etcd, overwrite(other, "k", b"yours")))
    with pytest.raises(StoreUnavailable) as caught:
        store.cas("k", first, b"mine")
    assert caught.value.left and "not known" in caught.value.left


# creating one


@pytest.mark.parametrize("then", [[], [b"yours"], [None], [None, b"yours"]])
def test_a_creation_is_known_by_its_receipt(
    store: EtcdStore, other: EtcdStore, network: Network, then: list[bytes | None]
) -> None:
    since = store.revision()
    network.lose_answer(lambda: [overwrite(other, "k", value) for value in then])
    version = store.cas("k", 0, b"mine")
    assert version == first_change(store, since)
    document = store.get("k")
    assert (document.value if document else None) == [b"mine", *then][-1]


def test_a_creation_that_came_too_late_is_a_conflict_for_ever(
    store: EtcdStore, other: EtcdStore, network: Network
) -> None:
    network.lose_request(lambda: overwrite(other, "k", b"yours"))
    assert store.cas("k", 0, b"mine") is None
    overwrite(other, "k", None)
    network.kept()
    assert store.get("k") is None


def test_a_creation_is_not_made_again_by_a_late_request(
    store: EtcdStore, other: EtcdStore, network: Network
) -> None:
    network.lose_request()
    assert store.cas("k", 0, b"mine")
    overwrite(other, "k", None)
    network.kept()
    assert store.get("k") is None


# deleting one


@pytest.mark.parametrize("then", [[], [b"yours"], [b"yours", None]])
def test_a_deletion_is_known_by_its_receipt(
    store: EtcdStore, other: EtcdStore, network: Network, then: list[bytes | None]
) -> None:
    first = must(store.cas("k", 0, b"1"))
    network.lose_answer(lambda: [overwrite(other, "k", value) for value in then])
    assert store.cas("k", first, None) == first_change(store, first)
    document = store.get("k")
    assert (document.value if document else None) == [None, *then][-1]


@pytest.mark.parametrize("then", [[b"yours"], [None], [None, b"yours"]])
def test_a_deletion_that_came_too_late_is_a_conflict(
    store: EtcdStore, other: EtcdStore, network: Network, then: list[bytes | None]
) -> None:
    first = must(store.cas("k", 0, b"1"))
    network.lose_request(lambda: [overwrite(other, "k", value) for value in then])
    assert store.cas("k", first, None) is None
    document = store.get("k")
    assert (document.value if document else None) == then[-1]


# many at once


def test_each_of_many_writes_is_looked_up(store: EtcdStore, other: EtcdStore, network: Network) -> None:
    at = {key: must(store.cas(key, 0, b"old")) for key in ("replaced", "deleted", "overwritten", "refused")}
    since = overwrite(other, "refused", b"yours")
    network.lose_answer(lambda: [overwrite(other, key, b"yours") for key in ("overwritten", "created")])
    outcome = store.cas_many(
        [
            Write("replaced", at["replaced"], b"mine"),
            Write("refused", at["refused"], b"mine"),
            Write("deleted", at["deleted"], None),
            Write("overwritten", at["overwritten"], b"mine"),
            Write("created", 0, b"mine"),
        ]
    )
    version = first_change(store, since)
    assert outcome == [version, None, version, version, version]
    assert {d.key: d.value for d in store.list("")} == {
        "replaced": b"mine",
        "refused": b"yours",
        "overwritten": b"yours",
        "created": b"yours",
    }


def test_receipts_go_on_when_their_lease_is_gone(store: EtcdStore) -> None:
    version = must(store.cas("k", 0, b"1"))
    store._client.call(LEASE_REVOKE, LeaseRevokeRequest(ID=store._writer._receipts._lease))
    assert store.cas("k", version, None)
    store._client.call(LEASE_REVOKE, LeaseRevokeRequest(ID=store._writer._receipts._lease))
    assert None not in store.cas_many([Write("a", 0, b""), Write("b", 0, b"")])


# receipts that have ended


@pytest.mark.parametrize("value", [b"mine", None], ids=["creation", "deletion"])
def test_a_write_whose_receipt_has_ended_is_not_called_refused(
    store: EtcdStore, network: Network, value: bytes | None
) -> None:
    """As after minutes of sleep in the middle of a write: it was made, and nobody can tell any more."""
    version = must(store.cas("k", 0, b"old")) if value is None else 0
    must(store.cas("other", 0, b""))
    lease = store._writer._receipts._lease

    def end_receipts() -> None:
        store._client.call(LEASE_REVOKE, LeaseRevokeRequest(ID=lease))

    network.lose_answer(end_receipts)
    with pytest.raises(StoreUnavailable) as caught:
        store.cas("k", version, value)
    assert caught.value.left == "it is not known whether this write was made"
    document = store.get("k")
    assert (document and document.value) == value
