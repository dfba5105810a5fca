"""Any single call of the leader may get lost, on its way there or on its way back: the result is the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.control.cluster.rules.model import Barrier, Control, Decision, Outcome, Snapshot
from tests.control.cluster.support import PARTS, SCOPE, World, bare, cut

Result = tuple[Control, list[Decision], list[Snapshot], dict[str, int]]


def lose(world: World, side: str, number: int) -> list[tuple[str, str]]:
    """Cut the call with this number on the leader's line; all calls that were counted."""
    line = world.instances[0].line
    calls: list[tuple[str, str]] = []

    def count(call: str, key: str) -> None:
        calls.append((call, key))
        if len(calls) == number:
            cut(call, key)

    setattr(line, side, count)
    return calls


def result(world: World) -> Result:
    """Everything that is durable, without what differs from one run to the next."""
    control = world.control
    sessions = {seat.session: seat.member for seat in control.assignment.seats}
    named = replace(control, lease=replace(control.lease, owner="", sequence=0), terms=())
    seats = tuple(replace(seat, session=sessions[seat.session]) for seat in control.assignment.seats)
    named = replace(named, assignment=replace(control.assignment, seats=seats))
    decisions = [bare(decision) for decision in world.decisions.values()]
    history = [replace(snapshot, seats=()) for snapshot in world.assignments]
    return named, decisions, history, world.counts


def commit(world: World) -> None:
    world.instances[0].epoch()


def refused(world: World) -> None:
    def refuse(barrier: Barrier) -> None:
        raise OSError("no")

    world.instances[1].participant.on_prepare = refuse
    world.instances[0].epoch()


def rotation(world: World) -> None:
    world.join("dan")
    world.instances[0].duties.step()


def death(world: World) -> None:
    world.instances[1].die()
    world.instances[0].duties.step()


def recovery(world: World) -> None:
    """A barrier that nobody drives, with its record or without."""
    world.instances[0].duties.step()


def leave_open(world: World, *, decided: bool) -> None:
    """Another leader begins an epoch, perhaps decides it, and is gone."""
    ann, ben = world.instances[:2]
    ann.candidate.resign()
    ann.candidate.step()
    ben.leads()

    def stall(call: str, key: str) -> None:
        if call == "cas" and "/epochs/" in key:
            raise KeyboardInterrupt

    setattr(ben.line, "after" if decided else "before", stall)
    with pytest.raises(KeyboardInterrupt):
        ben.epoch()
    ann.candidate._standing = True
    world.take_over(ann)


SCENES: dict[str, tuple[Callable[[World], None], Callable[[World], None]]] = {
    "commit": (lambda world: None, commit),
    "refusal": (lambda world: None, refused),
    "rotation": (lambda world: None, rotation),
    "death": (lambda world: None, death),
    "published by the next": (lambda world: leave_open(world, decided=True), recovery),
    "aborted by the next": (lambda world: leave_open(world, decided=False), recovery),
}


def play(scene: str, side: str, lost: int) -> tuple[Result, int]:
    prepare, act = SCENES[scene]
    world = World("ann", "ben", "cyd")
    world.instances[0].leads().epoch()
    prepare(world)
    calls = lose(world, side, lost)
    act(world)
    world.instances[0].line.before = world.instances[0].line.after = lambda call, key: None
    world.instances[0].epoch()
    world.take_part()
    return result(world), len(calls)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("scene", SCENES)
def test_every_call_in_turn(scene: str, side: str) -> None:
    expected, calls = play(scene, side, 0)
    assert calls > 5
    for lost in range(1, calls + 1):
        found, _ = play(scene, side, lost)
        assert found == expected, f"with call {lost} of {calls} lost"


def test_what_the_scenes_are() -> None:
    """Or the test above would compare nothing with nothing."""
    outcomes = {scene: play(scene, "before", 0)[0][1] for scene in SCENES}
    shown = {scene: [decision.outcome for decision in found] for scene, found in outcomes.items()}
    yes, no = Outcome.COMMIT, Outcome.ABORT
    assert shown == {
        "commit": [yes, yes, yes],
        "refusal": [yes, no, no],
        "rotation": [yes, yes, yes],
        "death": [yes, yes, yes],
        "published by the next": [yes, yes, yes],
        "aborted by the next": [yes, no, yes],
    }
    assert [d.kind for d in outcomes["rotation"]] == ["epoch", "drain", "epoch"]
    assert play("commit", "before", 0)[0][3] == dict.fromkeys(PARTS, 3)


@pytest.mark.parametrize("seed", range(5))
def test_a_store_that_loses_answers_all_the_time(seed: int) -> None:
    """It slows things down and changes nothing."""
    world = World("ann", "ben", "cyd")
    ann = world.instances[0].leads()
    ann.duties.step()
    chance = random.Random(seed)

    def lose_often(call: str, key: str) -> None:
        if chance.random() < 0.3:
            cut(call, key)

    def renew(seconds: float = 0.0) -> None:
        """The lease is kept over a line that is better."""
        line.after = kept
        world.renew()
        line.after = lose_often

    line, kept = ann.line, ann.line.after
    line.idle = ann.duties._pause = renew
    for epoch in range(1, 21):
        line.after = lose_often
        decision = ann.duties.epoch(SCOPE)
        assert decision is not None
        assert (decision.epoch, decision.outcome) == (epoch, Outcome.COMMIT)
    assert world.counts == dict.fromkeys(PARTS, 20)
