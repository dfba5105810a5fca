"""More broken rules: those that matter only where a leader comes back, a look takes long, or somebody is
fenced at the wrong moment, and those that another rule covers, so that only probes show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock.control.cluster import leader
from penstock.control.cluster.candidate import Candidate
from penstock.control.cluster.documents import codec, epoch_records
from penstock.control.cluster.documents.epoch_records import Records, cut
from penstock.control.cluster.leader import Duties
from penstock.control.cluster.participant import EpochWork, Participation
from penstock.control.cluster.rules import barrier as barriers
from penstock.control.cluster.rules import machine
from penstock.control.cluster.rules.commands import Abort, Prepare, Publish, Rotate
from penstock.control.cluster.rules.election import Sighting
from penstock.control.cluster.rules.machine import Result
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierAck,
    BarrierKind,
    Control,
    Decision,
    Outcome,
    Scope,
    Seat,
)

Mutant = Callable[[], Iterator[None]]
MUTANTS: dict[str, Callable[[], Any]] = {}
_step, _publish, _abort = Candidate.step, machine._publish, machine._abort
_committed, _ask = Duties._committed, Participation._ask
_rotate, _stray, _settle = machine._rotate, barriers.stray, Participation._settle
_follow = Participation._follow


def _mutant(change: Mutant) -> Mutant:
    MUTANTS[change.__name__] = contextmanager(change)
    return change


@_mutant
def leader_goes_on_from_its_own_last_decision() -> Iterator[None]:
    def committed(duty: Duties, scope: str, epoch: int) -> Decision | None:
        return duty._last.get(scope) or _committed(duty, scope, epoch)

    with patch.object(Duties, "_committed", committed):
        yield


@_mutant
def clock_is_read_before_the_control() -> Iterator[None]:
    def step(each: Candidate, seen: Control | None = None) -> float:
        clock = each._clock
        early = [clock()]
        control = seen or each._room.read()
        each._clock = lambda: early.pop() if early else clock()
        try:
            return _step(each, control)
        finally:
            each._clock = clock

    with patch.object(Candidate, "step", step):
        yield


@_mutant
def what_was_fenced_meanwhile_is_acked() -> Iterator[None]:
    def ask(part: Participation, barrier: Barrier) -> EpochWork:
        work = _ask(part, barrier)
        part._over = False
        return work

    with patch.object(Participation, "_ask", ask):
        yield


@_mutant
def what_was_fenced_meanwhile_hears_of_the_outcome() -> Iterator[None]:
    def settle(part: Participation, control: Control) -> None:
        over, part._over = part._over, False
        try:
            _settle(part, control)
        finally:
            part._over = part._over or over

    with patch.object(Participation, "_settle", settle):
        yield


@_mutant
def what_was_fenced_meanwhile_is_assigned() -> Iterator[None]:
    def follow(part: Participation, control: Control) -> None:
        with patch.object(part, "_check", lambda: None):
            _follow(part, control)

    with patch.object(Participation, "_follow", follow):
        yield


@_mutant
def everybody_answers_every_barrier() -> Iterator[None]:
    with patch.object(Participation, "_is_required", lambda part, barrier: True):
        yield


@_mutant
def outcome_of_an_older_epoch_is_guessed() -> Iterator[None]:
    def outcome(part: Participation, scope: Scope, epoch: int) -> Outcome:
        return Outcome.COMMIT if epoch == scope.committed else Outcome.ABORT

    with patch.object(Participation, "_outcome", outcome):
        yield


@_mutant
def owner_that_could_not_take_over_acks() -> Iterator[None]:
    with patch.object(Participation, "_excuse", lambda part, barrier: EpochWork()):
        yield


@_mutant
def ack_is_replaced_by_an_older_one() -> Iterator[None]:
    def write_ack(each: Records, scope: str, ack: BarrierAck, known: int | None = None) -> int:
        key, written = each.keys.ack(scope, ack.member), None
        while written is None:
            document = each.store.get(key)
            written = each.store.cas(key, document.version if document else 0, codec.ACK.encode(ack))
        return written

    with patch.object(Records, "write_ack", write_ack):
        yield


@_mutant
def watermark_goes_back() -> Iterator[None]:
    def publish(control: Control, command: Publish) -> Result:
        after, answer = _publish(control, command)
        if after is not control:
            scope = replace(after.scope(command.scope), watermark=command.watermark)
            after = after.with_scope(command.scope, scope)
        return after, answer

    with patch.object(machine, "_publish", publish):
        yield


@_mutant
def epoch_without_an_owner() -> Iterator[None]:
    def may_require(command: Prepare, seats: tuple[Seat, ...]) -> bool:
        if command.kind is BarrierKind.DRAIN:
            return set(command.required) <= set(seats)
        return command.required == seats

    with patch.object(machine, "_may_require", may_require):
        yield


@_mutant
def drain_for_another_target() -> Iterator[None]:
    def stands_still(scope: Scope, version: int, target: tuple[Seat, ...]) -> bool:
        return scope.worked != version or scope.drained is not None

    with (
        patch.object(machine, "stands_still", stands_still),
        patch.object(leader, "stands_still", stands_still),
    ):
        yield


@_mutant
def committed_epoch_is_given_up() -> Iterator[None]:
    def abort(control: Control, command: Abort) -> Result:
        after, answer = _abort(control, command)
        done = control.scope(command.scope).committed >= command.epoch
        return (control, machine.ControlAccepted()) if done else (after, answer)

    with patch.object(machine, "_abort", abort):
        yield


@_mutant
def record_stands_before_its_pages() -> Iterator[None]:
    def decide(each: Records, scope: str, decision: Decision) -> Decision:
        sheets, keys = cut(decision), each.keys
        while each.store.cas(keys.epoch(scope, decision.epoch), 0, sheets.record) is None:
            if (found := each.decision(scope, decision.epoch)) is not None:
                return found
        for number, page in enumerate(sheets.pages):
            assert sheets.named is not None
            each.store.cas(keys.page(scope, decision.epoch, sheets.named.sha256, number), 0, page)
        return decision

    with patch.object(Records, "decide", decide):
        yield


@_mutant
def pages_go_before_their_record() -> Iterator[None]:
    def prune(each: Records, scope: str, before: int, committed: int) -> None:
        keys = each.keys
        each._prune(keys.pages(scope), keys.pages_of(scope, before), keys.pages_of(scope, committed))
        each._prune(keys.epochs(scope), keys.epoch(scope, before), keys.epoch(scope, committed))

    with patch.object(Records, "prune_decisions", prune):
        yield


@_mutant
def committed_decision_is_pruned() -> Iterator[None]:
    prune = Records._prune

    def all_of_it(each: Records, prefix: str, end: str, kept: str = "", page: int = 100) -> None:
        prune(each, prefix, end, "", page)

    with patch.object(epoch_records.Records, "_prune", all_of_it):
        yield


@_mutant
def whoever_leaves_keeps_the_lease() -> Iterator[None]:
    with patch.object(Candidate, "resign", lambda each: setattr(each, "_held", None)):
        yield


@_mutant
def lease_that_was_given_up_is_waited_for() -> Iterator[None]:
    with patch.object(Sighting, "free", Sighting.expired):
        yield


@_mutant
def assignment_skips_a_version() -> Iterator[None]:
    def rotate(control: Control, command: Rotate) -> Result:
        wanted = replace(command.snapshot, version=control.assignment.version + 1)
        after, answer = _rotate(control, replace(command, snapshot=wanted))
        return (after if after is control else replace(after, assignment=command.snapshot)), answer

    with patch.object(machine, "_rotate", rotate):
        yield


@_mutant
def ack_of_another_session_counts() -> Iterator[None]:
    def stray(barrier: Barrier, ack: BarrierAck) -> str | None:
        why = _stray(barrier, ack)
        return None if why == "other session" else why

    with patch.object(barriers, "stray", stray):
        yield


@_mutant
def ack_of_another_assignment_counts() -> Iterator[None]:
    def stray(barrier: Barrier, ack: BarrierAck) -> str | None:
        return _stray(barrier, replace(ack, assignment=barrier.assignment))

    with patch.object(barriers, "stray", stray):
        yield


@_mutant
def nothing_is_ever_pruned() -> Iterator[None]:
    with patch.object(Records, "_prune", lambda *_: None):
        yield
