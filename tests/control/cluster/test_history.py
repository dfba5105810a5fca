"""What is kept in the store stays small and bounded, and what is still needed is never forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.cluster.documents import epoch_records
from penstock.control.cluster.rules.model import Outcome
from penstock.store.backends import MAX_DOCUMENT
from tests.control.cluster.support import CONFIG, KEYS, PARTS, SCOPE, Instance, World, follow, refuse

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


def test_a_decision_that_is_too_large_aborts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = world.instances[0]
    ann.epoch()
    before = world.counts
    with monkeypatch.context() as heavy:
        heavy.setattr(epoch_records, "MOST", 3)
        for instance in world.instances:
            _make_heavy(heavy, instance)
        decision = ann.epoch()
    assert decision.outcome is ABORT
    assert "bytes" in decision.reason
    assert (decision.states, decision.files) == ({}, ())
    world.take_part()
    assert [i.participant.log[-1] for i in world.instances] == ["aborted 2"] * 3
    assert world.counts == before
    ann.epoch()
    world.assert_consistent()


def _make_heavy(monkeypatch: pytest.MonkeyPatch, instance: Instance) -> None:
    prepare = instance.participant.prepare
    monkeypatch.setattr(
        instance.participant,
        "prepare",
        lambda barrier: replace(prepare(barrier), frontier="x" * (MAX_DOCUMENT // 2)),
    )


@pytest.mark.parametrize("refusing", [False, True])
def test_history_is_bounded_and_the_last_commit_is_always_kept(world: World, refusing: bool) -> None:
    ann, ben, _ = world.instances
    for _ in range(3):
        ann.epoch()
    ben.participant.on_prepare = refuse if refusing else follow
    for _ in range(100):
        ann.epoch()
        world.renew()
    kept = sorted(world.decisions)
    assert len(kept) <= CONFIG.history + 16 + refusing
    assert kept[-CONFIG.history :] == list(range(104 - CONFIG.history, 104))
    assert world.scope.committed == (3 if refusing else 103)
    assert world.scope.committed in kept
    ben.participant.on_prepare = follow
    ann.epoch()
    assert world.counts == dict.fromkeys(PARTS, 4 if refusing else 104)


def test_past_assignments_are_bounded(world: World) -> None:
    ann = world.instances[0]
    for number in range(20):
        ann.epoch()
        guest = world.join(f"guest-{number}")
        ann.duties.step()
        guest.die()
        ann.duties.step()
        world.renew()
    versions = [snapshot.version for snapshot in world.assignments]
    current = world.control.assignment.version
    assert versions == list(range(current - CONFIG.history + 1, current + 1))
    assert world.store.list(KEYS.acks(SCOPE)) != []
    assert [ack.member for ack in ann.records.acks(SCOPE)] == ["ann", "ben", "cyd"]


def test_documents_stay_small() -> None:
    world = World(*(f"member-{i}" for i in range(8)), config=replace(CONFIG, history=64, vnodes=256))
    leader = world.instances[0].leads()
    for _ in range(200):
        assert leader.epoch().outcome is COMMIT
        world.renew()
    sizes = [len(document.value) for document in world.store.scan("")]
    assert world.scope.committed == 200
    assert max(sizes) < 64 * 1024
    assert len(sizes) < 1 + 8 + 8 + 64 + 16 + 2
