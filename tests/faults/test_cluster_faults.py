"""Three members on three real etcd nodes, while members are stopped and cut off, and nodes are killed.

Each test breaks something, waits until epochs are committed again, mends it, waits until all three members
work, and then has everything checked that was ever written (see `Chronicle.verify`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.cluster.rules.assignment import part_owners
from penstock.store.etcd.client import TRY
from servers.etcd import EtcdCluster
from servers.netns import Network
from tests.faults.chronicle import Chronicle
from tests.faults.cluster import NAMES, Cluster
from tests.faults.conftest import connected
from tests.faults.member import CONFIG, KEYS, PARTS, SCOPE
from tests.faults.register import Conflict
from tests.servers import started

SECOND = 1_000_000_000


@pytest.fixture
def cluster(etcd: EtcdCluster, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(etcd, tmp_path) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def wide_network() -> Iterator[Network]:
    """Namespaces for three nodes of etcd and three members."""
    with connected(6) as network:
        yield network


@pytest.fixture(scope="module")
def etcd_on_wide_network(wide_network: Network) -> Iterator[EtcdCluster]:
    with started(network=wide_network) as etcd:
        yield etcd


@pytest.fixture
def scattered(etcd_on_wide_network: EtcdCluster, wide_network: Network, tmp_path: Path) -> Iterator[Cluster]:
    """Members each in a namespace of its own."""
    wide_network.heal()
    with Cluster(etcd_on_wide_network, tmp_path, wide_network) as cluster:
        yield cluster


def others(name: str) -> list[str]:
    return [each for each in NAMES if each != name]


def assert_replaced(chronicle: Chronicle, name: str, token: int) -> None:
    """``name`` led with ``token`` until somebody else took over, and has since then decided nothing."""
    taken = chronicle.taken(token + 1)
    assert taken.writer != name
    assert taken.control.terms[-1].how == "expired"
    again = chronicle.leads_again(name, token) or chronicle.controls[-1].number
    decided = [number for number, writer in chronicle.deciders.items() if writer == name]
    assert [number for number in decided if taken.number < number < again] == []


def test_a_leader_that_was_stopped_wakes_up_as_one_of_the_others(cluster: Cluster) -> None:
    lease = cluster.control.lease
    cluster.stop_before_it_decides(lease.member)
    cluster.until_seated(*others(lease.member))
    cluster.until_epochs(3)
    woken = time.monotonic_ns()
    cluster.resume(lease.member)
    cluster.until_logged(lease.member, "fenced", woken)
    cluster.until_seated(*NAMES)
    chronicle = cluster.chronicle()
    assert_replaced(chronicle, lease.member, lease.token)
    late = [each for each in chronicle.tries(lease.member) if each.invoked >= woken]
    refused = [each.key for each in late if isinstance(each.outcome, Conflict)]
    assert any(key.startswith(KEYS.epochs(SCOPE)) for key in refused), "it did not try to commit"


def test_the_parts_of_a_member_that_is_cut_off_move_to_the_others(
    scattered: Cluster, wide_network: Network
) -> None:
    before = scattered.control
    lost = others(before.lease.member)[0]
    cut = time.monotonic_ns()
    scattered.cut_off(lost)
    after = scattered.until_seated(*others(lost))
    old, new = (part_owners(each.assignment, SCOPE, PARTS) for each in (before, after))
    assert {part for part in PARTS if old[part] != new[part]} == {p for p in PARTS if old[p] == lost}
    scattered.until_epochs(3)
    # Nobody can tell it: it lets go by itself.
    scattered.until_logged(lost, "fenced", cut)
    wide_network.heal()
    scattered.until_seated(*NAMES)
    scattered.chronicle()


def test_a_leader_that_is_cut_off_stops_before_the_next_one_begins(
    scattered: Cluster, wide_network: Network
) -> None:
    lease = scattered.control.lease
    cut = time.monotonic_ns()
    scattered.cut_off(lease.member)
    scattered.until_seated(*others(lease.member))
    scattered.until_epochs(3)
    healed = time.monotonic_ns()
    wide_network.heal()
    scattered.until_seated(*NAMES)
    chronicle = scattered.chronicle()
    assert_replaced(chronicle, lease.member, lease.token)
    taken = chronicle.taken(lease.token + 1).invoked
    assert not [each for each in chronicle.tries(lease.member) if taken <= each.invoked <= healed]
    assert taken - cut < (1.5 * CONFIG.lease_ttl + TRY) * SECOND


def test_the_leader_of_etcd_is_killed(cluster: Cluster, etcd: EtcdCluster) -> None:
    before = cluster.control
    for _ in range(2):
        leader = etcd.leader()
        etcd.kill(leader)
        cluster.until_epochs(3)
        etcd.restart(leader)
        etcd.wait_healthy()
    after = cluster.until_seated(*NAMES)
    assert after.assignment.version >= before.assignment.version
    cluster.chronicle()


def test_all_nodes_of_etcd_are_killed(cluster: Cluster, etcd: EtcdCluster) -> None:
    before = cluster.control
    for node in range(3):
        etcd.kill(node)
    # By their own clocks, all leases have run out when etcd is back.
    time.sleep(CONFIG.member_ttl)
    etcd.heal()
    cluster.until_epochs(3)
    after = cluster.until_seated(*NAMES)
    assert after.assignment.version >= before.assignment.version
    assert after.lease.token >= before.lease.token
    cluster.chronicle()
