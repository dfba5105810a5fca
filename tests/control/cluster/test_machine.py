"""The rules of the control document, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.control.cluster.rules.commands import Abort, Acquire, Command, Prepare, Publish, Resign, Rotate
from penstock.control.cluster.rules.machine import ControlAccepted, ControlRefused, Why, apply, stands_still
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierKind,
    Control,
    Lease,
    Scope,
    Seat,
    Snapshot,
    Term,
)

ANN, BEN, CYD = Seat("ann", "s1"), Seat("ben", "s2"), Seat("cyd", "s3")
SEATS, TARGET = (ANN, BEN), (ANN, BEN, CYD)
LEASE = Lease("a", "ann", token=3, sequence=9, ttl=5.0)
FIRST = Snapshot(4, 2, SEATS, (0, 1), "hash")
NEXT = Snapshot(5, 3, TARGET, (0, 1, 2), "hash")

ORDINARY = Barrier(7, BarrierKind.EPOCH, 4, 3, SEATS, "r1")
DRAIN = Barrier(7, BarrierKind.DRAIN, 4, 3, SEATS, "r1", TARGET)

IDLE = Scope(next=7, committed=6, watermark=50, worked=4, aborted=(2,))
OPEN = replace(IDLE, next=8, open=ORDINARY)
DRAINING = replace(IDLE, next=8, open=DRAIN)
DRAINED = replace(IDLE, next=8, committed=7, drained=TARGET)
RESTING = replace(IDLE, worked=3)


def control(*scopes: Scope, lease: Lease = LEASE, assignment: Snapshot = FIRST) -> Control:
    return Control(lease, (Term(3, "ann", "first"),), assignment, dict(zip("xyz", scopes, strict=False)))


def accept(before: Control, command: Command) -> Control:
    after, answer = apply(before, command)
    assert answer == ControlAccepted()
    return after


def refuse(before: Control, command: Command, why: Why) -> None:
    after, answer = apply(before, command)
    assert answer == ControlRefused(why)
    assert after is before, "a refused command changed something"


def prepare(
    kind: BarrierKind = BarrierKind.EPOCH,
    required: tuple[Seat, ...] = SEATS,
    request: str = "r1",
    scope: str = "x",
) -> Prepare:
    return Prepare("a", 3, scope, kind, required, request, TARGET if kind is BarrierKind.DRAIN else ())


def publish(epoch: int = 7, watermark: int | None = None, scope: str = "x") -> Publish:
    return Publish("a", 3, scope, epoch, watermark)


def abort(epoch: int = 7, scope: str = "x") -> Abort:
    return Abort("a", 3, scope, epoch)


def rotate(snapshot: Snapshot = NEXT) -> Rotate:
    return Rotate("a", 3, snapshot)


# the lease


def test_the_first_leader() -> None:
    after = accept(Control(), Acquire("a", "ann", 4.0, at="noon"))
    assert after.lease == Lease("a", "ann", token=1, sequence=1, ttl=4.0)
    assert after.terms == (Term(1, "ann", "first", "noon"),)


def test_a_renewal_keeps_the_token_and_moves_the_sequence() -> None:
    before = control(OPEN)
    after = accept(before, Acquire("a", "ann", 6.0))
    assert after == replace(before, lease=replace(LEASE, sequence=10, ttl=6.0))


@pytest.mark.parametrize("expired", [None, (3, 8), (3, 10), (2, 9), (4, 9)])
def test_a_held_lease_is_not_taken(expired: tuple[int, int] | None) -> None:
    refuse(control(OPEN), Acquire("b", "ben", 5.0, expired), Why.HELD)


def test_an_expired_lease_is_taken() -> None:
    before = control(OPEN)
    after = accept(before, Acquire("b", "ben", 5.0, (3, 9), "noon"))
    assert after.lease == Lease("b", "ben", token=4, sequence=10, ttl=5.0)
    assert after.terms == (*before.terms, Term(4, "ben", "expired", "noon"))
    assert (after.scopes, after.assignment) == (before.scopes, before.assignment)


def test_a_lease_that_moved_on_since_it_was_seen_is_not_taken() -> None:
    renewed = accept(control(), Acquire("a", "ann", 5.0))
    refuse(renewed, Acquire("b", "ben", 5.0, (3, 9)), Why.HELD)


def test_only_the_first_of_two_takes_it() -> None:
    taken = accept(control(), Acquire("b", "ben", 5.0, (3, 9)))
    refuse(taken, Acquire("c", "cyd", 5.0, (3, 9)), Why.HELD)
    assert taken.lease.member == "ben"


def test_a_lease_that_was_given_up_is_taken_without_waiting() -> None:
    free = accept(control(), Resign("a", 3))
    assert free.lease == replace(LEASE, owner=None, sequence=10)
    after = accept(free, Acquire("b", "ben", 5.0))
    assert (after.lease.token, after.lease.sequence) == (4, 11)
    assert after.terms[-1].how == "handed over"


def test_the_same_owner_gets_a_new_token_once_it_had_resigned() -> None:
    after = accept(accept(control(), Resign("a", 3)), Acquire("a", "ann", 5.0))
    assert after.lease.token == 4


def test_an_acquire_whose_answer_was_lost_is_a_renewal() -> None:
    taken = accept(control(), Acquire("b", "ben", 5.0, (3, 9)))
    again = accept(taken, Acquire("b", "ben", 5.0, (3, 9)))
    assert (again.lease.token, again.terms) == (taken.lease.token, taken.terms)


def test_terms_are_bounded() -> None:
    after = Control()
    for number in range(12):
        seen = (after.lease.token, after.lease.sequence)
        after = accept(after, Acquire(f"o{number}", "m", 5.0, seen, history=8))
    assert [term.token for term in after.terms] == list(range(5, 13))


def test_to_resign_again_changes_nothing() -> None:
    free = accept(control(), Resign("a", 3))
    assert accept(free, Resign("a", 3)) is free


def test_to_resign_is_too_late_once_somebody_else_leads() -> None:
    taken = accept(accept(control(), Resign("a", 3)), Acquire("b", "ben", 5.0))
    refuse(taken, Resign("a", 3), Why.STALE)
    refuse(accept(taken, Resign("b", 4)), Resign("a", 3), Why.STALE)


# the fence

LEADERS: dict[str, Callable[[str, int], Command]] = {
    "resign": Resign,
    "prepare": lambda o, t: Prepare(o, t, "x", BarrierKind.EPOCH, SEATS, "r1"),
    "drain": lambda o, t: Prepare(o, t, "x", BarrierKind.DRAIN, SEATS, "r1", TARGET),
    "publish": lambda o, t: Publish(o, t, "x", 7, None),
    "abort": lambda o, t: Abort(o, t, "x", 7),
    "rotate": lambda o, t: Rotate(o, t, NEXT),
}
STATES = {
    "idle": IDLE,
    "open": OPEN,
    "draining": DRAINING,
    "drained": DRAINED,
    "resting": RESTING,
    "unknown": Scope(),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", LEADERS)
@pytest.mark.parametrize(("owner", "token"), [("b", 3), ("a", 2), ("a", 4), ("b", 4), ("", 3)])
def test_only_the_leader_is_heard(name: str, state: str, owner: str, token: int) -> None:
    refuse(control(STATES[state]), LEADERS[name](owner, token), Why.STALE)


@pytest.mark.parametrize("name", [name for name in LEADERS if name != "resign"])
def test_nobody_is_heard_while_nobody_leads(name: str) -> None:
    refuse(control(OPEN, lease=replace(LEASE, owner=None)), LEADERS[name]("a", 3), Why.STALE)
    refuse(Control(), LEADERS[name]("a", 0), Why.STALE)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", LEADERS)
def test_asked_again_nothing_happens_twice(name: str, state: str) -> None:
    command = LEADERS[name]("a", 3)
    after, answer = apply(control(STATES[state]), command)
    again, repeated = apply(after, command)
    assert again is after
    assert repeated == answer


# announcing


def test_an_epoch_is_announced() -> None:
    after = accept(control(IDLE, OPEN), prepare())
    assert after.scope("x") == replace(IDLE, next=8, open=ORDINARY)
    assert after.scope("y") == OPEN
    assert (after.lease, after.assignment) == (LEASE, FIRST)


def test_a_scope_begins_with_its_first_epoch() -> None:
    after = accept(control(), prepare(scope="new"))
    opened = after.scope("new")
    assert opened.open == replace(ORDINARY, epoch=1)
    assert (opened.next, opened.committed, opened.worked) == (2, 0, 4)


def test_an_epoch_after_a_drain_has_to_be_drained_again() -> None:
    after = accept(control(DRAINED), prepare())
    assert after.scope("x").drained is None
    assert not stands_still(after.scope("x"), 4, TARGET)


def test_another_announcement_waits_for_the_open_one() -> None:
    for state in (OPEN, DRAINING):
        refuse(control(state), prepare(request="r2"), Why.BUSY)
        refuse(control(state), prepare(BarrierKind.DRAIN, request="r2"), Why.BUSY)


@pytest.mark.parametrize(
    "required",
    [(), (ANN,), (BEN, ANN), TARGET, (ANN, replace(BEN, session="s9")), (ANN, replace(BEN, capacity=2))],
)
def test_an_epoch_needs_every_owner(required: tuple[Seat, ...]) -> None:
    refuse(control(IDLE), prepare(required=required), Why.SEATS)


def test_no_epoch_without_an_assignment() -> None:
    refuse(control(IDLE, assignment=Snapshot()), prepare(required=()), Why.SEATS)


@pytest.mark.parametrize("required", [SEATS, (BEN,), ()])
def test_a_drain_goes_without_those_who_are_gone(required: tuple[Seat, ...]) -> None:
    after = accept(control(IDLE), prepare(BarrierKind.DRAIN, required))
    assert after.scope("x") == replace(IDLE, next=8, open=replace(DRAIN, required=required))


@pytest.mark.parametrize("required", [(CYD,), TARGET, (replace(ANN, session="s9"),)])
def test_a_drain_asks_no_strangers(required: tuple[Seat, ...]) -> None:
    refuse(control(IDLE), prepare(BarrierKind.DRAIN, required), Why.SEATS)


# publishing


def test_an_epoch_is_published() -> None:
    after = accept(control(OPEN, OPEN), publish(watermark=60))
    assert after.scope("x") == replace(OPEN, open=None, committed=7, watermark=60)
    assert after.scope("y") == OPEN


@pytest.mark.parametrize(
    ("before", "given", "expected"),
    [(None, None, None), (None, 5, 5), (50, None, 50), (50, 40, 50), (50, 50, 50), (50, 51, 51), (-3, 0, 0)],
)
def test_the_watermark_never_goes_back(before: int | None, given: int | None, expected: int | None) -> None:
    after = accept(control(replace(OPEN, watermark=before)), publish(watermark=given))
    assert after.scope("x").watermark == expected


def test_a_drain_that_is_published_remembers_for_whom() -> None:
    after = accept(control(DRAINING), publish(watermark=50))
    assert after.scope("x") == DRAINED


def test_the_next_leader_publishes_what_it_found() -> None:
    taken = accept(control(OPEN), Acquire("b", "ben", 5.0, (3, 9)))
    assert accept(taken, Publish("b", 4, "x", 7, None)).scope("x").committed == 7


@pytest.mark.parametrize(
    ("state", "epoch"), [(IDLE, 7), (IDLE, 5), (IDLE, 2), (OPEN, 8), (OPEN, 5), (Scope(), 1), (DRAINED, 6)]
)
def test_only_the_open_epoch_is_published(state: Scope, epoch: int) -> None:
    refuse(control(state), publish(epoch), Why.CLOSED)


# giving up


@pytest.mark.parametrize("state", [OPEN, DRAINING])
def test_an_epoch_is_given_up_and_its_number_never_used_again(state: Scope) -> None:
    after = accept(control(state, OPEN), abort())
    assert after.scope("x") == replace(IDLE, next=8, aborted=(2, 7))
    assert after.scope("y") == OPEN
    opened = accept(after, prepare(request="r2")).scope("x").open
    assert opened is not None
    assert opened.epoch == 8


def test_a_drain_that_was_given_up_is_no_drain() -> None:
    after = accept(control(DRAINING), abort())
    refuse(after, rotate(), Why.UNDRAINED)


@pytest.mark.parametrize(
    ("state", "epoch"), [(IDLE, 6), (IDLE, 7), (OPEN, 6), (OPEN, 8), (Scope(), 1), (DRAINED, 7)]
)
def test_what_is_committed_or_was_never_announced_is_not_given_up(state: Scope, epoch: int) -> None:
    refuse(control(state), abort(epoch), Why.CLOSED)


def test_an_abort_asked_again_leaves_the_next_epoch_alone() -> None:
    opened = accept(accept(control(OPEN), abort()), prepare(request="r2"))
    assert accept(opened, abort()) is opened


def test_aborted_epochs_are_kept_up_to_a_limit() -> None:
    after = control(Scope())
    for number in range(100):
        after = accept(after, prepare(request=f"r{number}"))
        after = accept(after, abort(number + 1))
    assert after.scope("x").aborted == tuple(range(37, 101))
    assert after.scope("x").next == 101


# rotating


def test_the_assignment_is_rotated_once_all_stand_still() -> None:
    after = accept(control(DRAINED, RESTING, Scope()), rotate())
    assert after.assignment == NEXT
    assert after.scopes == {"x": replace(DRAINED, drained=None), "y": RESTING, "z": Scope()}
    assert after.lease == LEASE


def test_the_first_assignment_needs_no_drain() -> None:
    first = Snapshot(1, 3, SEATS, (0, 1), "hash")
    assert accept(control(assignment=Snapshot()), rotate(first)).assignment == first


@pytest.mark.parametrize(
    "snapshot", [replace(NEXT, version=v) for v in (0, 3, 4, 6)] + [replace(FIRST, owners=(1, 0))]
)
def test_only_the_next_version_is_taken(snapshot: Snapshot) -> None:
    refuse(control(DRAINED), rotate(snapshot), Why.VERSION)


def test_the_loser_of_a_rotation_finds_the_winners() -> None:
    won = accept(control(DRAINED), rotate())
    other = replace(NEXT, seats=SEATS, owners=(1, 1))
    refuse(won, rotate(other), Why.VERSION)
    assert won.assignment == NEXT


@pytest.mark.parametrize("states", [(OPEN,), (DRAINING,), (DRAINED, OPEN), (replace(RESTING, open=DRAIN),)])
def test_no_rotation_while_an_epoch_is_open(states: tuple[Scope, ...]) -> None:
    refuse(control(*states), rotate(), Why.BUSY)


@pytest.mark.parametrize(
    "states",
    [(IDLE,), (DRAINED, IDLE), (replace(DRAINED, drained=SEATS),), (replace(DRAINED, drained=()), RESTING)],
)
def test_no_rotation_before_owners_have_stopped_for_this_target(states: tuple[Scope, ...]) -> None:
    refuse(control(*states), rotate(), Why.UNDRAINED)


def test_a_drain_counts_for_one_rotation_only() -> None:
    rotated = accept(control(DRAINED), rotate())
    worked = accept(accept(rotated, prepare(required=TARGET)), publish(8))
    refuse(worked, rotate(replace(NEXT, version=6, seats=TARGET)), Why.UNDRAINED)
