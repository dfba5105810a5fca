"""A store on three real etcd nodes while these are killed, stopped and cut off.

Each test lets writers work, breaks something, waits until every writer was acked for new writes,
mends it, waits again, and then checks the whole history.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from penstock.store.etcd import EtcdStore
from servers.etcd import EtcdCluster
from servers.netns import Network
from tests.faults.workload import Writers, until, verify

WRITERS = 6
# How long etcd may take to choose a leader and everybody to find it, on a busy machine.
SOON = 20.0


@contextmanager
def writers(cluster: EtcdCluster, name: str) -> Iterator[Writers]:
    """Writers on a store called ``name``, at work before and after; in the end their history is checked."""
    endpoints = cluster.endpoints
    with ExitStack() as handles:
        # Everybody asks another node first, so that leader and followers all have clients.
        orders = [endpoints[i % 3 :] + endpoints[: i % 3] for i in range(WRITERS)]
        stores = [handles.enter_context(EtcdStore(order, name)) for order in orders]
        with Writers(stores, seed=name) as working:
            working.all_write(5, SOON)
            yield working
            cluster.wait_healthy()
            working.all_write(5, SOON)
        verify(working.history(), stores[0])


def test_the_leader_is_killed(etcd: EtcdCluster) -> None:
    with writers(etcd, "killed") as working:
        for _ in range(3):
            leader = etcd.leader()
            etcd.kill(leader)
            working.all_write(5, SOON)
            etcd.restart(leader)
            etcd.wait_healthy()


def test_all_nodes_are_killed(etcd: EtcdCluster) -> None:
    with writers(etcd, "all-killed") as working:
        for node in range(3):
            etcd.kill(node)
        until(working.all_gave_up, SOON, "everybody gives up")
        etcd.heal()


def test_the_leader_is_stopped_and_wakes_up_again(etcd: EtcdCluster) -> None:
    with writers(etcd, "stopped") as working:
        for _ in range(3):
            leader = etcd.leader()
            etcd.pause(leader)
            working.all_write(5, SOON)
            etcd.resume(leader)
            working.all_write(5, SOON)


def test_the_leader_is_cut_off_from_the_others(etcd_on_network: EtcdCluster, network: Network) -> None:
    """Its clients still reach it: they must not believe what it says."""
    with writers(etcd_on_network, "cut-off") as working:
        leader = etcd_on_network.leader()
        for follower in {0, 1, 2} - {leader}:
            network.cut_between(leader, follower)
        working.all_write(5, SOON)
        until(lambda: not etcd_on_network.healthy(leader), SOON, "the leader knows that it leads no more")
        working.all_write(5, SOON)
        network.heal()


@pytest.mark.parametrize("direction", ["to-follower", "to-leader"])
def test_what_one_node_sends_to_another_is_lost(
    etcd_on_network: EtcdCluster, network: Network, direction: str
) -> None:
    with writers(etcd_on_network, direction) as working:
        leader = etcd_on_network.leader()
        follower = (leader + 1) % 3
        network.one_way(*((leader, follower) if direction == "to-follower" else (follower, leader)))
        until(lambda: not etcd_on_network.healthy(follower), SOON, "the follower misses its leader")
        working.all_write(5, SOON)
        network.heal()
