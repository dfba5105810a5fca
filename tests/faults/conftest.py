"""Real etcd clusters of three nodes, on loopback and on a network whose cables can be pulled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from servers.etcd import EtcdCluster
from servers.netns import Network
from servers.packages import Missing
from tests.servers import started


@contextmanager
def connected(size: int) -> Iterator[Network]:
    """A network; the test is skipped where none can be made."""
    try:
        network = Network(size)
    except Missing as missing:
        pytest.skip(str(missing))
    with network:
        yield network


@pytest.fixture(scope="module")
def module_network() -> Iterator[Network]:
    with connected(3) as network:
        yield network


@pytest.fixture
def network(module_network: Network) -> Network:
    """Three namespaces; nothing is lost when the test begins."""
    module_network.heal()
    return module_network


@pytest.fixture(scope="module")
def module_etcd() -> Iterator[EtcdCluster]:
    with started() as cluster:
        yield cluster


@pytest.fixture
def etcd(module_etcd: EtcdCluster) -> EtcdCluster:
    """Three nodes on loopback; all of them answer when the test begins."""
    module_etcd.heal()
    return module_etcd


@pytest.fixture(scope="module")
def module_etcd_on_network(module_network: Network) -> Iterator[EtcdCluster]:
    with started(network=module_network) as cluster:
        yield cluster


@pytest.fixture
def etcd_on_network(module_etcd_on_network: EtcdCluster, network: Network) -> EtcdCluster:
    """Three nodes, each in its namespace of the network; all of them answer when the test begins."""
    module_etcd_on_network.heal()
    return module_etcd_on_network
