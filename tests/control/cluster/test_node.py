"""Instances with all their threads, over stores that several share: they agree, hand over, and come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.control.cluster.documents.codec import CONTROL
from penstock.control.cluster.rules.assignment import moved
from penstock.control.cluster.rules.model import BarrierKind, Control, Outcome, Scope
from penstock.store.memory import MemoryStore
from penstock.store.sqlite import SqliteStore
from tests.control.cluster.nodes import LONG, Cluster
from tests.control.cluster.support import KEYS, PARTS, SCOPE, until

pytestmark = pytest.mark.usefixtures("lively")

NAMES = ("ann", "ben", "cyd")


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


def test_a_scope_that_nobody_works_on_any_more_keeps_nobody_from_leaving(memory: Cluster) -> None:
    memory.start("ann", "ben", config=LONG)
    memory.until_seated("ann", "ben")
    _edit(memory, lambda control: control.with_scope("dropped", Scope(worked=control.assignment.version)))
    memory.start("cyd", config=LONG)
    memory.until_seated(*NAMES)
    decisions = list(memory.records.decisions("dropped"))
    assert [(d.kind, d.outcome) for d in decisions] == [(BarrierKind.DRAIN, Outcome.COMMIT)]
    memory.until_epochs(1)


def _edit(cluster: Cluster, change: Callable[[Control], Control]) -> None:
    """Put into the control what an earlier time would have left there."""
    while True:
        document = cluster.store.get(KEYS.control)
        assert document is not None
        value = CONTROL.encode(change(CONTROL.decode(KEYS.control, document.value)))
        if cluster.store.cas(KEYS.control, document.version, value) is not None:
            return


def test_work_goes_on_right_after_owners_changed(memory: Cluster) -> None:
    """Although the next epoch would be due much later."""
    memory.start("ann", config=LONG, every=600.0)
    until(lambda: memory.committed == 1, "the first epoch")
    memory.start("ben", config=LONG, every=600.0)
    until(lambda: memory.participants["ben"].owned, "ben works")
    assert memory.until_seated("ann", "ben").version == 2
