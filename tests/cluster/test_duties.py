"""What a leader does: assign, drain, drive epochs, end what another one left, and forget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.cluster import duties
from penstock.cluster.assignment import moved
from penstock.cluster.model import Barrier, Kind, Outcome
from penstock.cluster.participant import Participation
from penstock.errors import LeadershipLost
from penstock.store.keys import MAX_DOCUMENT
from tests.cluster.support import CONFIG, KEYS, PARTS, SCOPE, Counting, Instance, World

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


@pytest.fixture
def world() -> World:
    """Three members; ann leads and assigned everything."""
    world = World("ann", "ben", "cyd")
    ann = world.instances[0].leads()
    ann.duties.step()
    return world


def refuse(barrier: Barrier) -> None:
    raise OSError(f"cannot do {barrier.epoch}")


def follow(_: Barrier) -> None:
    """Nothing special."""


def silence(instance: Instance) -> None:
    """It stays alive and does not answer; the leader keeps its lease while it waits."""
    world = instance.world
    world.instances.remove(instance)

    def idle() -> None:
        instance.session.keepalive()
        world.renew()

    for other in world.instances:
        other.line.idle = idle


def owners(world: World) -> set[str]:
    assignment = world.control.assignment
    return {assignment.seats[index].member for index in assignment.owners}


def assert_consistent(world: World) -> None:
    """Every part was worked on once for each committed epoch, except by owners that were gone."""
    committed = [decision for decision in world.decisions.values() if decision.outcome is COMMIT]
    assert [decision.previous for decision in committed] == [0, *(d.epoch for d in committed[:-1])]
    assert world.counts == dict.fromkeys(PARTS, len(committed))


# assigning


def test_the_first_leader_assigns_everything(world: World) -> None:
    assignment = world.control.assignment
    assert (assignment.version, assignment.token, len(assignment.owners)) == (1, 1, CONFIG.vnodes)
    assert [seat.member for seat in assignment.seats] == ["ann", "ben", "cyd"]
    assert world.assignments == [assignment]


def test_nothing_changes_while_members_stay(world: World) -> None:
    revision = world.store.revision()
    world.instances[0].duties.step()
    assert world.store.revision() == revision


def test_who_does_not_lead_does_nothing(world: World) -> None:
    world.join("dan")
    revision = world.store.revision()
    world.instances[1].duties.step()
    assert world.store.revision() == revision


def test_those_who_only_show_themselves_own_nothing(world: World) -> None:
    ann = world.instances[0]
    batch = replace(ann.member, id="run", session=world.store.session(60).id, serves=False)
    ann.roster.join(batch)
    ann.duties.step()
    assert world.control.assignment.version == 1


def test_another_number_of_virtual_nodes_is_another_assignment(world: World) -> None:
    world.config = replace(CONFIG, vnodes=32)
    world.instances[0].candidate.resign()
    world.instances[0].candidate.step()
    world.join("dan").leads().duties.step()
    assert len(world.control.assignment.owners) == 32


# epochs


def test_an_epoch_is_committed_with_the_work_of_all(world: World) -> None:
    for number, instance in enumerate(world.instances):
        instance.participant.watermark = 10 + number
    decision = world.instances[0].epoch()
    assert decision == world.decisions[1]
    assert (decision.outcome, decision.acked, decision.watermark) == (COMMIT, ("ann", "ben", "cyd"), 10)
    assert (decision.assignment, decision.token, decision.previous) == (1, 1, 0)
    assert decision.frontiers == {name: f"{name}@1" for name in decision.acked}
    assert decision.files == ("ann/1", "ben/1", "cyd/1")
    assert decision.at and decision.request
    assert (world.scope.committed, world.scope.open, world.scope.watermark) == (1, None, 10)


def test_epochs_follow_each_other(world: World) -> None:
    for _ in range(5):
        world.instances[0].epoch()
    world.take_part()
    assert world.scope.committed == 5
    assert_consistent(world)
    for instance in world.instances:
        assert instance.participant.log[-2:] == ["epoch 5", "committed 5"]


def test_no_epoch_without_members() -> None:
    world = World("ann")
    ann = world.instances[0].leads()
    ann.roster.leave(ann.member)
    ann.duties.step()
    assert ann.duties.epoch(SCOPE) is None
    assert (world.scope.next, world.control.assignment.version) == (1, 0)


def test_epochs_are_driven_when_they_are_due() -> None:
    world = World("ann")
    ann = world.instances[0].leads()
    ann.line.idle = world.renew
    ann.duties._schedule = {SCOPE: 10.0}
    committed = []
    for _ in range(21):
        world.renew()
        ann.duties.step()
        committed.append(world.scope.committed)
        world.clock.move(1)
    assert committed == [1] * 10 + [2] * 10 + [3]


def test_a_refusal_aborts_and_the_number_is_never_used_again(world: World) -> None:
    ann, ben, _ = world.instances
    ann.epoch()
    ben.participant.on_prepare = refuse
    decision = ann.epoch()
    assert (decision.epoch, decision.outcome) == (2, ABORT)
    assert decision.reason == "ben refused: OSError: cannot do 2"
    assert (world.scope.committed, world.scope.aborted, world.scope.open) == (1, (2,), None)
    ben.participant.on_prepare = follow
    assert ann.epoch().epoch == 3
    assert_consistent(world)


def test_who_does_not_answer_in_time_is_named(world: World) -> None:
    ann, ben, _ = world.instances
    silence(ben)
    began = world.clock.now
    decision = ann.epoch()
    assert decision.reason == "no answer from ben within 30 s"
    assert decision.acked == ("ann", "cyd")
    assert 30 <= world.clock.now - began < 32


def test_who_is_gone_is_not_waited_for(world: World) -> None:
    ann, _, cyd = world.instances
    ann.epoch()
    cyd.die()
    decision = ann.duties.epoch(SCOPE)
    assert decision is not None
    assert (decision.outcome, decision.reason) == (ABORT, "cyd is gone")


def test_an_ack_that_comes_too_late_is_counted_once(world: World) -> None:
    ann, ben, _ = world.instances
    assert ann.epoch().ignored == {}
    silence(ben)
    assert ann.epoch().ignored == {}
    (ack,) = [ack for ack in ann.records.acks(SCOPE) if ack.member == "ben"]
    ann.records.write_ack(SCOPE, replace(ack, epoch=2))
    third, fourth = ann.epoch(), ann.epoch()
    assert (third.outcome, third.ignored) == (ABORT, {"other epoch": 1})
    assert fourth.ignored == {}
    world.instances.append(ben)
    fifth = ann.epoch()
    assert (fifth.outcome, fifth.ignored) == (COMMIT, {})


def test_a_leader_that_is_held_up_too_long_does_not_go_on(world: World) -> None:
    ann, ben, _ = world.instances
    world.instances.remove(ben)
    ann.line.idle = ben.session.keepalive
    with pytest.raises(LeadershipLost):
        ann.epoch()
    assert world.scope.open is not None
    assert world.decisions == {}
    ann.leads().duties.step()
    assert (world.control.scope(SCOPE).open, world.scope.aborted) == (None, (1,))


def test_a_leader_in_a_second_term_does_not_finish_what_it_began_in_the_first(world: World) -> None:
    """Its barrier was resolved in between, and the tokens tell."""
    ann, ben, _ = world.instances

    def lose_and_regain() -> None:
        ann.line.idle = world.take_part
        world.take_over(ben).duties.step()
        ben.candidate.resign()
        ben.candidate.step()
        ann.leads()

    ann.line.idle = lose_and_regain
    with pytest.raises(LeadershipLost, match="in between"):
        ann.epoch()
    assert (world.control.lease.token, world.scope.aborted) == (3, (1,))
    assert ann.epoch().token == 3


# owners change


def test_a_join_drains_and_moves_only_what_the_new_one_gets(world: World) -> None:
    ann = world.instances[0]
    ann.epoch()
    before = world.control.assignment
    dan = world.join("dan")
    ann.duties.step()
    after = world.control.assignment
    assert (after.version, owners(world)) == (2, {"ann", "ben", "cyd", "dan"})
    assert moved(before, after) == after.vnodes("dan")
    drain = world.decisions[2]
    assert (drain.kind, drain.outcome, drain.assignment) == (Kind.DRAIN, COMMIT, 1)
    assert world.assignments == [before, after]
    ann.epoch()
    world.take_part()
    assert dan.participant.log[-3:] == ["assigned 2", "epoch 3", "committed 3"]
    assert_consistent(world)


def test_a_member_that_leaves_hands_over_and_stays_to_the_end(world: World) -> None:
    ann, ben, _ = world.instances
    ann.epoch()
    ben.roster.join(replace(ben.member, leaving=True))
    ann.duties.step()
    world.take_part()
    assert owners(world) == {"ann", "cyd"}
    assert ben.participant.log[-3:] == ["drain 2", "committed 2", "assigned 2"]
    assert ben.participant.owned == {}
    ben.die()
    ann.epoch()
    assert_consistent(world)


def test_a_dead_members_parts_go_on_from_the_last_committed_epoch(world: World) -> None:
    ann, _, cyd = world.instances
    ann.epoch()
    ann.epoch()
    lost = set(cyd.participant.owned)
    assert lost
    cyd.die()
    ann.duties.step()
    drain = world.decisions[3]
    assert (drain.kind, drain.outcome, drain.acked) == (Kind.DRAIN, COMMIT, ("ann", "ben"))
    assert world.counts == {part: 2 if part in lost else 3 for part in PARTS}
    ann.epoch()
    assert world.counts == {part: 3 if part in lost else 4 for part in PARTS}
    assert [member.id for member in ann.roster.all()] == ["ann", "ben"]


def test_a_dead_member_does_not_let_the_watermark_run_ahead(world: World) -> None:
    ann, ben, cyd = world.instances
    for instance, mark in ((ann, 90), (ben, 95), (cyd, 20)):
        instance.participant.watermark = mark
    ann.epoch()
    cyd.die()
    ann.duties.step()
    assert world.scope.watermark == 20


def test_all_owners_dead_nothing_is_lost(world: World) -> None:
    ann, ben, cyd = world.instances
    ann.epoch()
    for instance in (ann, ben, cyd):
        instance.die()
    dan = world.take_over(world.join("dan"))
    dan.duties.step()
    assert (owners(world), world.decisions[2].acked) == ({"dan"}, ())
    dan.epoch()
    assert world.counts == dict.fromkeys(PARTS, 2)


def test_owners_do_not_change_while_somebody_refuses_to_stop(world: World) -> None:
    ann, ben, _ = world.instances
    ann.epoch()
    ben.participant.on_prepare = refuse
    world.join("dan")
    ann.duties.step()
    ann.duties.step()
    assert (world.control.assignment.version, world.scope.aborted) == (1, (2, 3))
    ben.participant.on_prepare = follow
    ann.duties.step()
    assert (world.control.assignment.version, world.scope.committed) == (2, 4)
    ann.epoch()
    assert_consistent(world)


def test_members_that_change_during_the_drain_are_drained_for_again(world: World) -> None:
    ann, ben, _ = world.instances
    ann.epoch()
    world.join("dan")

    def one_more(barrier: Barrier) -> None:
        ben.participant.on_prepare = follow
        world.join("eve")

    ben.participant.on_prepare = one_more
    ann.duties.step()
    assert owners(world) <= {"ann", "ben", "cyd", "dan"}
    ann.epoch()
    ann.duties.step()
    assert "eve" in owners(world)
    ann.epoch()
    assert_consistent(world)


def test_without_an_epoch_in_between_no_drain_is_needed(world: World) -> None:
    world.join("dan")
    world.instances[0].duties.step()
    assert (world.control.assignment.version, world.scope.next) == (2, 1)


@pytest.mark.parametrize("refusing", [False, True])
def test_every_scope_has_to_stand_still(world: World, refusing: bool) -> None:
    ann = world.instances[0]
    other = Counting("ann")
    parts = [
        Participation(i.room, i.records, "other", i.member.seat, other if i is ann else Counting(i.member.id))
        for i in world.instances
    ]

    def idle() -> None:
        world.renew()
        for part in parts:
            part.step()

    ann.line.idle = idle
    ann.epoch()
    ann.duties.epoch("other")
    other.on_prepare = refuse if refusing else follow
    world.join("dan")
    ann.duties.step()
    assert world.control.assignment.version == (1 if refusing else 2)
    assert [line for line in other.log if line.startswith("drain")] == ["drain 2"]
    other.on_prepare = follow
    ann.duties.step()
    assert world.control.assignment.version == 2


# what another leader left


class Died(BaseException):
    """Stands for the death of the process at a point."""


def die_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def reach(name: str) -> None:
        if name == point:
            raise Died

    monkeypatch.setattr(duties, "reach", reach)


LEFT = {
    "epoch.prepared": ABORT,
    "epoch.deciding": ABORT,
    "epoch.decided": COMMIT,
    "epoch.published": COMMIT,
}


@pytest.mark.parametrize("point", LEFT)
@pytest.mark.parametrize("gone", [True, False], ids=["dead", "restarted"])
def test_the_next_leader_ends_what_was_begun(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, gone: bool
) -> None:
    ann, ben, _ = world.instances
    ann.epoch()
    with monkeypatch.context() as broken:
        die_at(broken, point)
        with pytest.raises(Died):
            ann.epoch()
    if gone:
        ann.die()
    world.take_over(ben).duties.step()
    world.take_part()
    assert world.decisions[2].outcome is LEFT[point]
    assert (2 in world.scope.aborted) == (LEFT[point] is ABORT)
    assert world.scope.open is None
    expected = "committed 2" if LEFT[point] is COMMIT else "aborted 2"
    for instance in world.instances:
        told = [line for line in instance.participant.log if line in ("committed 2", "aborted 2")]
        assert told == ([expected] if "epoch 2" in instance.participant.log else [])
    after = ben.epoch()
    assert after.epoch == (4 if gone else 3)
    assert after.outcome is COMMIT
    if not gone:
        assert_consistent(world)


@pytest.mark.parametrize("point", ["rotate.before", "rotate.after"])
def test_the_next_leader_goes_on_with_a_rotation(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    ann, ben, _ = world.instances
    ann.epoch()
    world.join("dan")
    with monkeypatch.context() as broken:
        die_at(broken, point)
        with pytest.raises(Died):
            ann.duties.step()
    drained = world.scope.committed
    world.take_over(ben).duties.step()
    assert world.scope.committed == drained, "what was drained was drained again"
    assert (world.control.assignment.version, "dan" in owners(world)) == (2, True)
    ben.epoch()
    assert_consistent(world)
    world.join("eve")
    ben.duties.step()
    assert [snapshot.version for snapshot in world.assignments] == [1, 2, 3], "a hole in the history"


# limits


def test_a_decision_that_is_too_large_aborts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = world.instances[0]
    ann.epoch()
    before = world.counts
    with monkeypatch.context() as heavy:
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
    assert_consistent(world)


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
