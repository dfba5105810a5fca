"""Rules of the control plane, each broken in one place. The simulation must notice every one of them.

Storms show each of them by what happens. Those that another rule covers are in `fine_mutants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock.control.cluster import candidate, leader
from penstock.control.cluster.candidate import Candidate
from penstock.control.cluster.documents import codec
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.leader import Duties
from penstock.control.cluster.node import Node
from penstock.control.cluster.participant import Participation
from penstock.control.cluster.rules import barrier, machine
from penstock.control.cluster.rules.commands import Abort, Acquire
from penstock.control.cluster.rules.election import Leadership, Sighting
from penstock.control.cluster.rules.machine import Result
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierAck,
    BarrierKind,
    Control,
    Decision,
    Lease,
    Scope,
    Seat,
    Snapshot,
)

Mutant = Callable[[], Iterator[None]]
MUTANTS: dict[str, Callable[[], Any]] = {}
_commit, _acquire, _abort = barrier.commit, machine._acquire, machine._abort
_resolve, _barrier, _decide = Duties._resolve, Duties._barrier, Duties._decide


def _mutant(change: Mutant) -> Mutant:
    MUTANTS[change.__name__] = contextmanager(change)
    return change


@_mutant
def no_token_check() -> Iterator[None]:
    with patch.object(machine, "leads", lambda lease, command: True):
        yield


@_mutant
def no_drain() -> Iterator[None]:
    with (
        patch.object(machine, "stands_still", lambda scope, version, target: True),
        patch.object(leader, "stands_still", lambda scope, version, target: True),
    ):
        yield


@_mutant
def aborted_epoch_is_used_again() -> Iterator[None]:
    def again(control: Control, command: Abort) -> Result:
        after, answer = _abort(control, command)
        if after is not control:
            scope = after.scope(command.scope)
            after = after.with_scope(command.scope, replace(scope, next=command.epoch))
        return after, answer

    with patch.object(machine, "_abort", again):
        yield


@_mutant
def leader_ignores_its_clock() -> Iterator[None]:
    held: Callable[[Candidate], Leadership | None] = lambda each: each._held  # noqa: E731
    with patch.object(Candidate, "held", property(held)):
        yield


@_mutant
def token_stays_on_takeover() -> Iterator[None]:
    def taken(control: Control, command: Acquire) -> Result:
        after, answer = _acquire(control, command)
        kept = max(control.lease.token, 1)
        return replace(after, lease=replace(after.lease, token=kept)), answer

    with patch.object(machine, "_acquire", taken):
        yield


@_mutant
def lease_taken_before_its_end() -> Iterator[None]:
    with patch.object(Sighting, "expired", lambda sighting, now: now > sighting.since + 1.0):
        yield


@_mutant
def decision_is_overwritten() -> Iterator[None]:
    def decide(records: Records, scope: str, decision: Decision) -> Decision:
        key, written = records.keys.epoch(scope, decision.epoch), None
        while written is None:
            document = records.store.get(key)
            expected = document.version if document else 0
            written = records.store.cas(key, expected, codec.DECISION.encode(decision))
        return decision

    with patch.object(Records, "decide", decide):
        yield


@_mutant
def acks_of_others_count() -> Iterator[None]:
    with patch.object(barrier, "stray", lambda barrier, ack: None):
        yield


@_mutant
def watermark_is_the_newest() -> Iterator[None]:
    def newest(before: int | None, acks: Iterable[BarrierAck]) -> int | None:
        return min((ack.watermark for ack in acks if ack.watermark is not None), default=before)

    with patch.object(barrier, "watermark", newest):
        yield


@_mutant
def recovery_ignores_the_record() -> Iterator[None]:
    def resolve(duty: Duties, scope: str, open_: Barrier) -> None:
        duty._lead(lambda lead: Abort(lead.owner, lead.token, scope, open_.epoch))

    with patch.object(Duties, "_resolve", resolve):
        yield


@_mutant
def recovery_gives_up_what_was_committed() -> Iterator[None]:
    def resolve(duty: Duties, scope: str, open_: Barrier) -> None:
        if duty._records.decision(scope, open_.epoch) is None:
            _resolve(duty, scope, open_)
        else:
            duty._lead(lambda lead: Abort(lead.owner, lead.token, scope, open_.epoch))

    with patch.object(Duties, "_resolve", resolve):
        yield


@_mutant
def parts_of_the_dead_begin_anew() -> Iterator[None]:
    def commit(alignment: barrier.Alignment, scope: Scope, before: Decision | None) -> Decision:
        return _commit(alignment, scope, None)

    with patch.object(barrier, "commit", commit):
        yield


@_mutant
def work_begins_before_an_epoch_is_announced() -> Iterator[None]:
    def may_begin(part: Participation, assignment: Snapshot, scope: Scope) -> bool:
        seat = assignment.seat(part._seat.member)
        return seat is None or seat.session == part._seat.session

    with patch.object(Participation, "_may_begin", may_begin):
        yield


@_mutant
def work_begins_on_the_seat_of_another_session() -> Iterator[None]:
    def may_begin(part: Participation, assignment: Snapshot, scope: Scope) -> bool:
        return scope.worked == assignment.version or assignment.seat(part._seat.member) is None

    with patch.object(Participation, "_may_begin", may_begin):
        yield


@_mutant
def leaving_owners_are_not_drained() -> Iterator[None]:
    def ask(
        duty: Duties, scope: str, kind: BarrierKind, required: tuple[Seat, ...], target: tuple[Seat, ...] = ()
    ) -> Decision | None:
        staying = tuple(seat for seat in required if seat in target)
        return _barrier(duty, scope, kind, staying if kind is BarrierKind.DRAIN else required, target)

    with patch.object(Duties, "_barrier", ask):
        yield


@_mutant
def refusals_are_ignored() -> Iterator[None]:
    with patch.object(barrier.Alignment, "refusal", None):
        yield


@_mutant
def published_before_it_is_recorded() -> Iterator[None]:
    def decide(duty: Duties, scope: str, decision: Decision) -> Decision:
        duty._lead(lambda lead: leader._consequence(lead, scope, decision))
        return _decide(duty, scope, decision)

    with patch.object(Duties, "_decide", decide):
        yield


@_mutant
def lost_session_is_not_noticed() -> Iterator[None]:
    with patch.object(Node, "_end", lambda node, life: None):
        yield


@_mutant
def living_members_are_swept() -> Iterator[None]:
    with patch.object(Roster, "sweep", lambda roster: [m for m in roster.live() if m.id != "m1"]):
        yield


@_mutant
def leader_without_margin() -> Iterator[None]:
    def leadership(lease: Lease, sent: float) -> Leadership:
        return Leadership(lease.owner or "", lease.token, sent + lease.ttl)

    with patch.object(candidate, "leadership", leadership):
        yield
