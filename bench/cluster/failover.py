"""(c) How long a cluster is without a leader after its leader was killed, in multiples of the ttl."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.cluster.members import kill, members, wait_until
from bench.cluster.stores import stores
from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result
from penstock.config import ClusterConfig
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.keys import Keys
from penstock.store import open_store

CONFIG = ClusterConfig()
GOAL = 1.5
NAMES = ("one", "two", "three")


def run(lab: Lab) -> Iterator[Result]:
    for name, urls in stores(lab):
        yield compare(
            f"(c) kill -9 of the leader to the next one ÷ ttl, {name} (s)",
            lambda u=urls: _gap(next(u)),  # type: ignore[misc]
            lambda: CONFIG.lease_ttl,
            repeat=lab.repeat,
            goal=GOAL,
            warm_up=False,
        )


def _gap(url: str) -> float:
    """Seconds from the kill to the write by which the next leader took the lease."""
    with open_store(url) as store, members(url, NAMES, CONFIG) as running:
        room = Room(store, Keys(CONFIG.name))
        wait_until(lambda: len(room.read().assignment.seats) == len(NAMES), "all members")
        lease = room.read().lease
        began = time.monotonic()
        kill(running[lease.member])
        wait_until(lambda: room.read().lease.token > lease.token, "the next leader")
        return time.monotonic() - began
