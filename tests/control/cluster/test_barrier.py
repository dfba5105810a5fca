"""How acks become a decision."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from penstock.control.cluster.rules.barrier import Alignment, abort, commit, stray, watermark
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierAck,
    BarrierKind,
    Decision,
    Outcome,
    Scope,
    Seat,
)

ANN, BEN = Seat("ann", "s1"), Seat("ben", "s2")
BARRIER = Barrier(7, BarrierKind.EPOCH, 4, 3, (ANN, BEN), "r")
DRAIN = replace(BARRIER, kind=BarrierKind.DRAIN, target=(ANN,))
SCOPE = Scope(next=8, open=BARRIER, committed=5, watermark=50)


def ack(member: str = "ann", **fields: Any) -> BarrierAck:
    session = {"ann": "s1", "ben": "s2"}.get(member, "s9")
    return replace(BarrierAck(member, session, 7, 4), **fields)


def aligned(*acks: BarrierAck, barrier: Barrier = BARRIER) -> Alignment:
    alignment = Alignment(barrier)
    for one in acks:
        alignment = alignment.receive(one)
    return alignment


def before(**states: str) -> Decision:
    return Decision(5, Outcome.COMMIT, BarrierKind.EPOCH, 4, 3, previous=4, watermark=50, states=states)


# which acks count

STRAYS = {
    "other epoch": ack(epoch=6),
    "other assignment": ack(assignment=3),
    "other session": ack(session="s0"),
    "not required": ack("cyd"),
}


@pytest.mark.parametrize("why", STRAYS)
def test_what_does_not_belong_is_ignored_and_counted_once(why: str) -> None:
    late = STRAYS[why]
    assert stray(BARRIER, late) == why
    alignment = aligned(late, late, ack("ben"), late)
    assert alignment.missing == ("ann",)
    assert not alignment.aligned
    assert alignment.ignored == {why: 1}


def test_an_ack_of_a_later_epoch_is_not_believed_either() -> None:
    assert stray(BARRIER, ack(epoch=8)) == "other epoch"
    assert stray(BARRIER, ack(assignment=5)) == "other assignment"


def test_strays_are_counted_by_reason() -> None:
    alignment = aligned(*STRAYS.values(), ack(epoch=5), ack("ben", epoch=6))
    assert alignment.ignored == {
        "other epoch": 3,
        "other assignment": 1,
        "other session": 1,
        "not required": 1,
    }


def test_strays_spoil_nothing() -> None:
    alignment = aligned(*STRAYS.values(), ack(), ack("ben"), replace(STRAYS["other session"], refusal="no"))
    assert alignment.aligned
    assert alignment.refusal is None


def test_aligned_with_all_acks_in_any_order() -> None:
    assert not aligned().aligned
    assert not aligned(ack()).aligned
    for order in permutations([ack(), ack("ben")]):
        assert aligned(*order).aligned


def test_a_repeated_ack_changes_nothing() -> None:
    once = aligned(ack(frontier="f"))
    assert once.receive(ack(frontier="f")) is once
    assert once.receive(ack(frontier="other")) is once


def test_a_drain_of_nobody_is_aligned_at_once() -> None:
    assert aligned(barrier=replace(DRAIN, required=())).aligned


def test_a_refusal_is_named() -> None:
    alignment = aligned(ack(), ack("ben", refusal="disk full"))
    assert alignment.missing == ()
    assert not alignment.aligned
    assert alignment.refusal == "ben refused: disk full"


# the watermark


@pytest.mark.parametrize(
    ("known", "said", "expected"),
    [
        (None, [], None),
        (None, [None, None], None),
        (None, [7, 3, None], 3),
        (50, [], 50),
        (50, [None], 50),
        (50, [60, 55], 55),
        (50, [60, 40], 50),
        (0, [-5], 0),
        (None, [0], 0),
        (-9, [-3, None], -3),
    ],
)
def test_the_watermark_is_the_least_that_was_said_and_never_goes_back(
    known: int | None, said: list[int | None], expected: int | None
) -> None:
    assert watermark(known, [ack(watermark=mark) for mark in said]) == expected


# decisions


def test_a_commit_says_what_everybody_did() -> None:
    alignment = aligned(
        ack("ben", states={"p2": "b"}, files=("b1",), watermark=70),
        ack(epoch=6),
        ack(states={"p1": "a"}, frontier="fa", files=("a1", "a2"), watermark=60),
    )
    assert commit(alignment, SCOPE, before()) == Decision(
        epoch=7,
        outcome=Outcome.COMMIT,
        kind=BarrierKind.EPOCH,
        assignment=4,
        token=3,
        previous=5,
        watermark=60,
        acked=("ann", "ben"),
        states={"p1": "a", "p2": "b"},
        frontiers={"ann": "fa"},
        files=("a1", "a2", "b1"),
        ignored={"other epoch": 1},
    )


def test_parts_that_nobody_acked_keep_their_state() -> None:
    alignment = aligned(ack(states={"p1": "new"}), ack("ben"))
    decision = commit(alignment, SCOPE, before(p1="old", p2="kept"))
    assert decision.states == {"p1": "new", "p2": "kept"}


def test_states_are_carried_through_epochs_in_which_nobody_owns_them() -> None:
    gone = aligned(barrier=replace(DRAIN, required=()))
    assert commit(gone, SCOPE, before(p1="a", p2="b")).states == {"p1": "a", "p2": "b"}
    assert commit(gone, Scope(), None).states == {}


def test_frontiers_and_files_are_those_of_this_epoch_alone() -> None:
    old = replace(before(), frontiers={"ann": "old"}, files=("old",))
    decision = commit(aligned(ack(), ack("ben")), SCOPE, old)
    assert (decision.frontiers, decision.files) == ({}, ())


def test_a_drain_keeps_how_far_those_were_who_are_gone() -> None:
    old = replace(before(), frontiers={"ann": "1", "ben": "2"})
    alignment = aligned(ack(frontier="3"), barrier=replace(DRAIN, required=(ANN,)))
    assert commit(alignment, SCOPE, old).frontiers == {"ann": "3", "ben": "2"}


def test_a_drain_does_not_move_the_watermark() -> None:
    """Whoever is gone has no say in it, and what it owned goes on from where it was."""
    alignment = aligned(ack(watermark=99), barrier=replace(DRAIN, required=(ANN,)))
    assert commit(alignment, SCOPE, before()).watermark == 50
    assert commit(alignment, replace(SCOPE, watermark=None), None).watermark is None


def test_an_abort_keeps_nothing_but_the_reason() -> None:
    alignment = aligned(ack(states={"p": "1"}, files=("f",), watermark=99), ack("ben", epoch=1))
    decision = abort(BARRIER, SCOPE, "no answer from ben", alignment)
    assert decision == Decision(
        epoch=7,
        outcome=Outcome.ABORT,
        kind=BarrierKind.EPOCH,
        assignment=4,
        token=3,
        previous=5,
        watermark=50,
        reason="no answer from ben",
        acked=("ann",),
        ignored={"other epoch": 1},
    )


def test_an_abort_of_what_another_leader_left() -> None:
    decision = abort(DRAIN, SCOPE, "left open")
    assert (decision.outcome, decision.kind, decision.acked) == (Outcome.ABORT, BarrierKind.DRAIN, ())
