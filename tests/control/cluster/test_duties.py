"""What a leader does from day to day: assign, and drive epochs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.cluster.leader import steady
from penstock.control.cluster.rules.model import Outcome
from penstock.errors import LeadershipLost
from tests.control.cluster.support import CONFIG, SCOPE, World, follow, refuse

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT

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
    world.assert_consistent()
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
    ann.duties._schedule = {SCOPE: steady(10.0)}
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
    world.assert_consistent()


def test_who_does_not_answer_in_time_is_named(world: World) -> None:
    ann, ben, _ = world.instances
    ben.fall_silent()
    began = world.clock.now
    decision = ann.epoch()
    assert decision.reason == "no answer from ben within 30 s"
    assert decision.acked == ("ann", "cyd")
    assert 30 <= world.clock.now - began < 32


def test_an_epoch_may_take_as_long_as_the_leader_knows_it_does(
    world: World,
) -> None:
    ann, ben, _ = world.instances
    ben.fall_silent()
    began = world.clock.now
    # What takes long is known only once the epoch is under way.
    ann.participant.on_patience = lambda: 60.0 if world.clock.now > began + 5 else 0.0
    decision = ann.epoch()
    assert decision.reason == "no answer from ben within 90 s"
    assert 90 <= world.clock.now - began < 92


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
    ben.fall_silent()
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
