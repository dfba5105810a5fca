"""Owners change: those who lose something stop first, and nothing that was committed is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.cluster.participant import Participation
from penstock.control.cluster.rules.assignment import moved
from penstock.control.cluster.rules.model import Barrier, BarrierKind, Outcome
from tests.control.cluster.support import PARTS, Counting, World, follow, refuse

COMMIT = Outcome.COMMIT


def test_a_join_drains_and_moves_only_what_the_new_one_gets(world: World) -> None:
    ann = world.instances[0]
    ann.epoch()
    before = world.control.assignment
    dan = world.join("dan")
    ann.duties.step()
    after = world.control.assignment
    assert (after.version, world.owners) == (2, {"ann", "ben", "cyd", "dan"})
    assert moved(before, after) == after.vnodes("dan")
    drain = world.decisions[2]
    assert (drain.kind, drain.outcome, drain.assignment) == (BarrierKind.DRAIN, COMMIT, 1)
    assert world.assignments == [before, after]
    ann.epoch()
    world.take_part()
    assert dan.participant.log[-3:] == ["assigned 2", "epoch 3", "committed 3"]
    world.assert_consistent()


def test_a_member_that_leaves_hands_over_and_stays_to_the_end(world: World) -> None:
    ann, ben, _ = world.instances
    ann.epoch()
    ben.roster.join(replace(ben.member, leaving=True))
    ann.duties.step()
    world.take_part()
    assert world.owners == {"ann", "cyd"}
    assert ben.participant.log[-3:] == ["drain 2", "committed 2", "assigned 2"]
    assert ben.participant.owned == {}
    ben.die()
    ann.epoch()
    world.assert_consistent()


def test_a_dead_members_parts_go_on_from_the_last_committed_epoch(world: World) -> None:
    ann, _, cyd = world.instances
    ann.epoch()
    ann.epoch()
    lost = set(cyd.participant.owned)
    assert lost
    cyd.die()
    ann.duties.step()
    drain = world.decisions[3]
    assert (drain.kind, drain.outcome, drain.acked) == (BarrierKind.DRAIN, COMMIT, ("ann", "ben"))
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
    assert (world.owners, world.decisions[2].acked) == ({"dan"}, ())
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
    world.assert_consistent()


def test_members_that_change_during_the_drain_are_drained_for_again(world: World) -> None:
    ann, ben, _ = world.instances
    ann.epoch()
    world.join("dan")

    def one_more(barrier: Barrier) -> None:
        ben.participant.on_prepare = follow
        world.join("eve")

    ben.participant.on_prepare = one_more
    ann.duties.step()
    assert world.owners <= {"ann", "ben", "cyd", "dan"}
    ann.epoch()
    ann.duties.step()
    assert "eve" in world.owners
    ann.epoch()
    world.assert_consistent()


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
