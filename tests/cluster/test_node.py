"""Instances with all their threads, over stores that several share: they agree, hand over, and come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.cluster.assignment import moved
from penstock.cluster.codec import decode_control, encode_control
from penstock.cluster.model import Control, Kind, Member, Outcome, Scope, Snapshot
from penstock.cluster.node import Node
from penstock.cluster.records import Records
from penstock.cluster.room import Room
from penstock.cluster.roster import Roster
from penstock.config import ClusterConfig
from penstock.errors import StoreUnavailable
from penstock.store.base import Document, Session, Store
from penstock.store.memory import MemoryStore
from penstock.store.sqlite import SqliteStore
from tests.cluster.support import KEYS, PARTS, SCOPE, Counting, until

pytestmark = pytest.mark.usefixtures("lively")

SHORT = ClusterConfig(
    "test", vnodes=64, lease_ttl=1.2, renew_every=0.3, member_ttl=1.0, barrier_timeout=20.0, history=64
)
LONG = replace(SHORT, lease_ttl=60.0, renew_every=20.0, member_ttl=60.0)
"""Who waits for the end of a lease or session of this length fails the test."""

NAMES = ("ann", "ben", "cyd")


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

    def start(self, *names: str, config: ClusterConfig = SHORT, store: Store | None = None) -> Node:
        for name in names:
            handle = store or self._open()
            self._stores.append(handle)
            self.participants[name] = Counting(name)
            scopes = {SCOPE: self.participants[name]}
            self.nodes[name] = Node(handle, Member(name, "", "1"), config, scopes, {SCOPE: 0.05})
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


@pytest.fixture(params=["memory", "sqlite"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "memory":
        shared = MemoryStore()
        cluster = Cluster(lambda: shared)
    else:
        cluster = Cluster(lambda: SqliteStore(tmp_path / "store.db"))
    yield cluster
    cluster.close()


@pytest.fixture
def memory() -> Iterator[Cluster]:
    shared = MemoryStore()
    cluster = Cluster(lambda: shared)
    yield cluster
    cluster.close()


def test_three_agree(cluster: Cluster) -> None:
    cluster.start(*NAMES)
    assignment = cluster.until_seated(*NAMES)
    cluster.until_epochs(5)
    control = cluster.control
    leading = [name for name, node in cluster.nodes.items() if node.leadership is not None]
    assert leading in ([control.lease.member], [])
    seen = until(
        lambda: {n.control.lease.token for n in cluster.nodes.values()} == {cluster.control.lease.token},
        "everybody knows the leader",
    )
    assert seen
    owned = [part for participant in cluster.participants.values() for part in participant.owned]
    assert sorted(owned) == sorted(PARTS)
    assert {len(assignment.vnodes(name)) > 0 for name in NAMES} == {True}
    assert [member.id for member in cluster.roster.live()] == list(NAMES)
    cluster.assert_consistent()


def test_a_leader_that_leaves_hands_over_at_once(memory: Cluster) -> None:
    memory.start("ann", config=LONG)
    until(memory.leader, "ann leads")
    memory.start("ben", "cyd", config=LONG)
    memory.until_seated(*NAMES)
    memory.until_epochs(2)
    began = time.monotonic()
    assert memory.nodes.pop("ann").leave()
    memory.until_seated("ben", "cyd")
    memory.until_epochs(2)
    assert time.monotonic() - began < 20
    control = memory.control
    assert control.lease.member in ("ben", "cyd")
    assert control.terms[-1].how == "handed over"
    assert [member.id for member in memory.roster.all()] == ["ben", "cyd"]
    assert memory.participants["ann"].owned == {}
    memory.assert_consistent()


def test_a_member_that_leaves_is_drained_first(memory: Cluster) -> None:
    memory.start("ann", config=LONG)
    until(memory.leader, "ann leads")
    memory.start("ben", config=LONG)
    before = memory.until_seated("ann", "ben")
    memory.until_epochs(1)
    assert memory.nodes.pop("ben").leave()
    after = memory.until_seated("ann")
    assert moved(before, after) == before.vnodes("ben")
    log = memory.participants["ben"].log
    drained = max(i for i, line in enumerate(log) if line.startswith("drain"))
    rest = [line.split()[0] for line in log[drained + 1 :]]
    # It may go before it hears how the drain ended: by then nothing is its own any more.
    assert rest in (["fenced"], ["committed", "fenced"], ["committed", "assigned", "fenced"])
    memory.until_epochs(1)
    memory.assert_consistent()


def test_the_last_one_leaves_everything_in_the_store(memory: Cluster) -> None:
    node = memory.start("ann", config=LONG)
    before = memory.until_seated("ann")
    memory.until_epochs(2)
    assert node.leave()
    assert memory.control.lease.owner is None
    assert memory.control.assignment == before
    assert memory.roster.all() == []
    states = memory.records.decision(SCOPE, memory.committed)
    memory.start("ann", config=LONG)
    after = memory.until_seated("ann")
    assert (after.version, moved(before, after)) == (before.version + 1, ())
    memory.until_epochs(1)
    assert states is not None
    memory.assert_consistent()


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_restart_of_the_whole_cluster_keeps_the_assignment(cluster: Cluster) -> None:
    cluster.start(*NAMES)
    before = cluster.until_seated(*NAMES)
    cluster.until_epochs(2)
    cluster.stop(*cluster.nodes.values())
    committed = cluster.committed
    until(lambda: not cluster.roster.live(), "the store has given all of them up")
    cluster.start(*NAMES)
    after = cluster.until_seated(*NAMES)
    cluster.until_epochs(2)
    assert moved(before, after) == ()
    later = [snapshot for snapshot in cluster.records.assignments() if snapshot.version > before.version]
    assert [moved(before, snapshot) for snapshot in later] == [()], "something moved on the way"
    assert cluster.committed > committed
    cluster.assert_consistent()


def test_a_member_that_stops_without_a_word_is_replaced(memory: Cluster) -> None:
    memory.start(*NAMES)
    before = memory.until_seated(*NAMES)
    memory.until_epochs(2)
    gone = memory.control.lease.member
    memory.nodes.pop(gone).stop()
    rest = [name for name in NAMES if name != gone]
    after = memory.until_seated(*rest)
    memory.until_epochs(2)
    assert moved(before, after) == before.vnodes(gone)
    assert memory.control.terms[-1].how == "expired"
    memory.assert_consistent()


def test_a_leader_that_waits_for_an_answer_can_be_stopped(memory: Cluster) -> None:
    leader = memory.start("ann", config=LONG)
    until(memory.leader, "ann leads")
    silent = memory.start("ben", config=LONG)
    memory.until_seated("ann", "ben")
    memory.until_epochs(1)
    silent.stop()
    until(lambda: memory.control.scope(SCOPE).open, "ann waits for ben")
    began = time.monotonic()
    leader.stop()
    assert time.monotonic() - began < LONG.barrier_timeout / 2
    assert memory.control.lease.member == "ann", "it gave up what it only should have let run out"


def test_a_node_whose_session_was_lost_comes_back(memory: Cluster) -> None:
    memory.start("ann", "ben")
    memory.until_seated("ann", "ben")
    memory.until_epochs(1)
    lost = memory.nodes["ben"].session
    assert lost is not None
    assert isinstance(memory.store, MemoryStore)
    memory.store.end_session(lost)
    until(lambda: "fenced" in memory.participants["ben"].log, "ben lets go of everything")
    until(lambda: memory.nodes["ben"].session not in (None, lost), "ben joins anew")
    memory.until_seated("ann", "ben")
    memory.until_epochs(2)
    log = memory.participants["ben"].log
    assert log[log.index("fenced") + 1].startswith("assigned")
    memory.assert_consistent()


class Counted(MemoryStore):
    """Knows how many sessions are open, and can lose the answers to joining."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Session] = []
        self.losing = 0

    def session(self, ttl: float) -> Session:
        self.opened.append(super().session(ttl))
        return self.opened[-1]

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        answer = super().cas(key, expected, value)
        if self.losing and key.startswith(KEYS.members):
            self.losing -= 1
            raise StoreUnavailable
        return answer

    def living(self) -> int:
        return len(self.alive([session.id for session in self.opened]))


def test_a_second_instance_under_the_same_id_waits_its_turn() -> None:
    store = Counted()
    cluster = Cluster(lambda: store)
    try:
        first = cluster.start("ann", config=LONG)
        cluster.until_seated("ann")
        second = cluster.start("ann", config=LONG)
        until(lambda: len(store.opened) >= 3, "the second one tries again")
        assert second.session is None
        assert store.living() <= 2, "each try leaves a session behind"
        assert first.leave()
        until(lambda: second.session, "the second one gets in")
        cluster.until_seated("ann")
    finally:
        cluster.close()


def test_a_join_whose_answer_was_lost_is_no_stranger() -> None:
    """The entry of the first try would keep the id for a whole ttl."""
    store = Counted()
    store.losing = 2
    cluster = Cluster(lambda: store)
    try:
        cluster.start("ann", config=LONG)
        cluster.until_seated("ann")
        assert store.living() == 1
    finally:
        cluster.close()


def test_a_scope_that_nobody_works_on_any_more_keeps_nobody_from_leaving(memory: Cluster) -> None:
    memory.start("ann", "ben", config=LONG)
    memory.until_seated("ann", "ben")
    _edit(memory, lambda control: control.with_scope("dropped", Scope(worked=control.assignment.version)))
    memory.start("cyd", config=LONG)
    memory.until_seated(*NAMES)
    decisions = list(memory.records.decisions("dropped"))
    assert [(d.kind, d.outcome) for d in decisions] == [(Kind.DRAIN, Outcome.COMMIT)]
    memory.until_epochs(1)


def _edit(cluster: Cluster, change: Callable[[Control], Control]) -> None:
    """Put into the control what an earlier time would have left there."""
    while True:
        document = cluster.store.get(KEYS.control)
        assert document is not None
        value = encode_control(change(decode_control(KEYS.control, document.value)))
        if cluster.store.cas(KEYS.control, document.version, value) is not None:
            return


def test_to_leave_while_the_store_is_gone_says_so() -> None:
    class Fragile(MemoryStore):
        gone = False

        def get(self, key: str) -> Document | None:
            if self.gone:
                raise StoreUnavailable
            return super().get(key)

    store = Fragile()
    cluster = Cluster(lambda: store)
    node = cluster.start("ann")
    cluster.until_seated("ann")
    store.gone = True
    assert not node.leave(timeout=0.5)
    assert (node.session, node.leadership) == (None, None)
    assert cluster.participants["ann"].log[-1] == "fenced"
    store.gone = False
    cluster.close()


def test_a_node_that_never_got_in_can_be_stopped() -> None:
    class Dead(MemoryStore):
        def session(self, ttl: float) -> Session:
            raise StoreUnavailable

    cluster = Cluster(Dead)
    node = cluster.start("ann")
    assert node.leave(timeout=1.0)
    assert (node.session, node.leadership, node.control) == (None, None, Control())
    cluster.close()
