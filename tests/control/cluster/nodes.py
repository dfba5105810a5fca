"""Nodes with all their threads on one backend, for tests that let them run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

from penstock.config import ClusterConfig
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.leader import steady
from penstock.control.cluster.node import Node
from penstock.control.cluster.rules.model import Control, Member, Outcome, Snapshot
from penstock.store.base import Store
from tests.control.cluster.support import KEYS, PARTS, SCOPE, Counting, until

SHORT = ClusterConfig(
    "test", vnodes=64, lease_ttl=3.0, renew_every=0.7, member_ttl=2.5, barrier_timeout=20.0, history=64
)
LONG = replace(SHORT, lease_ttl=60.0, renew_every=20.0, member_ttl=60.0)
"""Who waits for the end of a lease or session of this length fails the test."""


class Cluster:
    """Nodes on one backend, each with a handle of its own."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self.store = open_store()
        self.nodes: dict[str, Node] = {}
        self.participants: dict[str, Counting] = {}
        self.room, self.records = Room(self.store, KEYS), Records(self.store, KEYS)
        self.roster = Roster(self.store, KEYS)
        self._stores: list[Store] = [self.store]
        self._all: list[Node] = []

    def start(
        self, *names: str, config: ClusterConfig = SHORT, store: Store | None = None, every: float = 0.05
    ) -> Node:
        for name in names:
            handle = store or self._open()
            self._stores.append(handle)
            self.participants[name] = Counting(name)
            scopes = {SCOPE: self.participants[name]}
            self.nodes[name] = Node(handle, Member(name, "", "1"), config, scopes, {SCOPE: steady(every)})
            self._all.append(self.nodes[name].start())
        return self.nodes[names[-1]]

    def stop(self, *nodes: Node) -> None:
        """All at once, without a word."""
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(Node.stop, nodes))

    def close(self) -> None:
        self.stop(*self._all)
        for store in self._stores:
            store.close()

    @property
    def control(self) -> Control:
        return self.room.read()

    @property
    def committed(self) -> int:
        return self.control.scope(SCOPE).committed

    def seated(self, *names: str) -> Snapshot | None:
        """The assignment, if exactly these have a seat under the sessions that they have now."""
        assignment = self.control.assignment
        wanted = [(name, self.nodes[name].session) for name in names]
        return assignment if [(s.member, s.session) for s in assignment.seats] == wanted else None

    def until_seated(self, *names: str) -> Snapshot:
        found: Snapshot = until(lambda: self.seated(*names), f"{names} have seats")
        return found

    def until_epochs(self, count: int = 3) -> None:
        goal = self.committed + count
        until(lambda: self.committed >= goal, f"{count} more epochs are committed")

    def leader(self) -> Node | None:
        return next((node for node in self.nodes.values() if node.leadership is not None), None)

    def assert_consistent(self) -> None:
        """Each part was worked on once in each epoch that its owner acked, and nothing was forgotten."""
        decisions = [d for d in self.records.decisions(SCOPE) if d.outcome is Outcome.COMMIT]
        for before, after in pairwise(decisions):
            assert after.previous == before.epoch
            for part in PARTS:
                step = int(after.states.get(part, 0)) - int(before.states.get(part, 0))
                assert step in ((1,) if len(after.acked) == len(before.acked) else (0, 1)), (after, part)
