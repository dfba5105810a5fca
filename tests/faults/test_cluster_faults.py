"""Three members on three real etcd nodes, while members are stopped and cut off, and nodes are killed.

Each test breaks something, waits until epochs are committed again, mends it, waits until all three members
work, and then has everything checked that was ever written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster.assignment import part_owners
from servers.etcd import EtcdCluster
from servers.netns import Network
from tests.faults.cluster import NAMES, Cluster
from tests.faults.conftest import connected
from tests.faults.member import CONFIG, PARTS, SCOPE
from tests.servers import started


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
def scattered(
    etcd_on_wide_network: EtcdCluster, wide_network: Network, tmp_path: Path
) -> Iterator[Cluster]:
    """Members each in a namespace of its own."""
    wide_network.heal()
    with Cluster(etcd_on_wide_network, tmp_path, wide_network) as cluster:
        yield cluster


def others(name: str) -> list[str]:
    return [each for each in NAMES if each != name]


def test_a_leader_that_was_stopped_wakes_up_as_one_of_the_others(cluster: Cluster) -> None:
    lease = cluster.control.lease
    zombie, token = lease.member, lease.token
    cluster.pause(zombie)
    t=time.monotonic()
    cluster.until_seated(*others(zombie))
    print("seated", time.monotonic()-t)
    cluster.until_epochs(3)
    woken = time.monotonic_ns()
    cluster.resume(zombie)
    t=time.monotonic()
    cluster.until_logged(zombie, "fenced", woken)
    print("fenced", time.monotonic()-t)
    cluster.until_seated(*NAMES)
    print("seated", time.monotonic()-t)
    cluster.until_epochs(3)
    t=time.monotonic()
    chronicle = cluster.chronicle()
    print("verify", time.monotonic()-t)


def test_a_member_that_is_cut_off_loses_its_parts(scattered: Cluster, wide_network: Network) -> None:
    before = scattered.control
    lost = others(before.lease.member)[0]
    t=time.monotonic()
    now = time.monotonic_ns()
    scattered.cut_off(lost)
    after = scattered.until_seated(*others(lost))
    print("seated", time.monotonic()-t)
    scattered.until_epochs(3)
    fenced = scattered.until_logged(lost, "fenced", now)
    print("fenced", (fenced.at-now)/1e9)
    wide_network.heal()
    t=time.monotonic()
    scattered.until_seated(*NAMES)
    print("seated", time.monotonic()-t)
    scattered.until_epochs(3)
    scattered.chronicle()

def test_a_leader_that_is_cut_off(scattered: Cluster, wide_network: Network) -> None:
    before = scattered.control
    lost = before.lease.member
    t=time.monotonic()
    now = time.monotonic_ns()
    scattered.cut_off(lost)
    after = scattered.until_seated(*others(lost))
    print("seated", time.monotonic()-t)
    scattered.until_epochs(3)
    wide_network.heal()
    t=time.monotonic()
    fenced = scattered.until_logged(lost, "fenced", now)
    print("fenced", (fenced.at-now)/1e9)
    scattered.until_seated(*NAMES)
    print("seated", time.monotonic()-t)
    scattered.until_epochs(3)
    c = scattered.chronicle()
    print("taken after", (c.taken(before.lease.token + 1).invoked - now)/1e9)


def test_the_leader_of_etcd_is_killed(cluster: Cluster, etcd: EtcdCluster) -> None:
    before = cluster.control
    node = etcd.leader()
    t=time.monotonic()
    etcd.kill(node)
    cluster.until_epochs(3)
    print("epochs", time.monotonic()-t)
    etcd.restart(node)
    etcd.wait_healthy()
    cluster.until_seated(*NAMES)
    print("seated", time.monotonic()-t)
    print(before.lease.token, before.assignment.version)
    after = cluster.control
    print(after.lease.token, after.assignment.version)
    cluster.chronicle()

def test_all_nodes_of_etcd_are_killed(cluster: Cluster, etcd: EtcdCluster) -> None:
    before = cluster.control
    now = time.monotonic_ns()
    t=time.monotonic()
    for node in range(3):
        etcd.kill(node)
    cluster.until_logged(before.lease.member, "follows", now)
    print("follows", time.monotonic()-t)
    etcd.heal()
    print("healed", time.monotonic()-t)
    cluster.until_epochs(3)
    print("epochs", time.monotonic()-t)
    cluster.until_seated(*NAMES)
    print("seated", time.monotonic()-t)
    print(before.lease.token, before.assignment.version)
    after = cluster.control
    print(after.lease.token, after.assignment.version)
    cluster.chronicle()
