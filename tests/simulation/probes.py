"""What if? In every state that a storm leads to, the rules are also asked what nobody in it would ask.

Most rules protect against something that another rule prevents as well, so that no storm shows whether they
hold. A probe asks for it, of the control as it is, and expects what is written down here a second time.
Nothing comes of the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from penstock.control.cluster.rules import barrier as answers
from penstock.control.cluster.rules import machine
from penstock.control.cluster.rules.commands import Abort, Acquire, Command, Prepare, Publish, Resign, Rotate
from penstock.control.cluster.rules.machine import ControlAccepted
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierAck,
    BarrierKind,
    Control,
    Lease,
    Outcome,
    Scope,
    Seat,
    Snapshot,
)
from tests.simulation.world import World

_EACH = 2
_OWNERLESS = 0.2
"""How often a probe supposes that the lease was just given up."""
_STRANGER = Seat("stranger", "nobody-0", 1)
_PLAYERS = ("a", "b", "rows")


class Probes:
    """Asks a few questions at a time, chosen by lot."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Of its own: what is asked must not change what happens.
        self._random = Random(world.seed)
        self._control = Control()

    def ask(self, control: Control) -> None:
        for probe in self._random.sample(_PROBES, _EACH):
            self._control = control
            if self._random.random() < _OWNERLESS:
                self._control = replace(control, lease=replace(control.lease, owner=None))
            probe(self)

    # the lease

    def _a_stale_leader(self) -> None:
        lease = self._control.lease
        owner, token = self._random.choice(
            [("stranger#nobody-0", lease.token), (lease.owner or "", lease.token - 1), ("", lease.token + 1)]
        )
        if (owner, token) == (lease.owner, lease.token):
            return
        scope, seats = self._scope_name(), self._control.assignment.seats
        epoch = self._control.scope(scope).next - 1
        commands: list[Command] = [
            Resign(owner, token if lease.owner else token + 1),
            Prepare(owner, token, scope, BarrierKind.EPOCH, seats, "probe"),
            Publish(owner, token, scope, epoch, None),
            Abort(owner, token, scope, epoch),
            Rotate(owner, token, replace(self._control.assignment, version=epoch + 1)),
        ]
        command = self._random.choice(commands)
        if not (isinstance(command, Resign) and lease.owner is None and command.token == lease.token):
            self._refused(command)

    def _a_lease_that_is_held(self) -> None:
        lease = self._control.lease
        if lease.owner is not None:
            wrong = [None, (lease.token, lease.sequence - 1), (lease.token - 1, lease.sequence)]
            for expired in wrong:
                self._refused(Acquire("stranger#nobody-0", "stranger", 5.0, expired))

    def _a_takeover(self) -> None:
        lease = self._control.lease
        expired = (lease.token, lease.sequence) if lease.owner else None
        after = self._accepted(Acquire("stranger#nobody-0", "stranger", 5.0, expired, "", 3))
        new = after.lease
        numbers = (new.owner, new.token - lease.token, new.sequence - lease.sequence)
        self._expect(numbers == ("stranger#nobody-0", 1, 1), lambda: f"{lease} was taken over as {new}")
        how = "first" if lease.token == 0 else "handed over" if lease.owner is None else "expired"
        last = after.terms[-1]
        told = (last.token, last.how, last.member) == (new.token, how, "stranger")
        self._expect(told and len(after.terms) <= 3, lambda: f"terms are {after.terms}")
        self._same(after, lease)

    def _a_renewal(self) -> None:
        lease = self._control.lease
        if lease.owner is not None:
            after = self._accepted(Acquire(lease.owner, lease.member, lease.ttl))
            renewed = replace(lease, sequence=lease.sequence + 1)
            self._expect(after.lease == renewed, lambda: f"{lease} was renewed as {after.lease}")
            self._same(after, lease)

    def _a_resignation(self) -> None:
        lease = self._control.lease
        if lease.owner is not None:
            after = self._accepted(Resign(lease.owner, lease.token))
            given = replace(lease, owner=None, sequence=lease.sequence + 1)
            self._expect(after.lease == given, lambda: f"{lease} was given up as {after.lease}")
            self._same(after, lease)
            self._control = after
            again = self._accepted(Resign(lease.owner, lease.token))
            self._expect(again == after, "a lease was given up twice")
            self._refused(Resign(lease.owner, lease.token + 1))

    # epochs

    def _an_epoch_with_others_than_the_owners(self) -> None:
        seats = self._control.assignment.seats
        for required in {seats[1:], (*seats, _STRANGER), ()} - ({seats} if seats else set()):
            self._refused(self._prepare(BarrierKind.EPOCH, required))

    def _a_drain_of_somebody_without_a_seat(self) -> None:
        self._refused(self._prepare(BarrierKind.DRAIN, (*self._control.assignment.seats, _STRANGER)))

    def _an_announcement(self) -> None:
        name = self._scope_name()
        scope, snapshot = self._control.scope(name), self._control.assignment
        kind = self._random.choice((BarrierKind.EPOCH, BarrierKind.DRAIN))
        required = snapshot.seats if kind is BarrierKind.EPOCH else snapshot.seats[1:]
        command = replace(self._prepare(kind, required), scope=name)
        if scope.open is not None:
            self._refused(command)
            again = replace(command, request=scope.open.request)
            self._expect(self._accepted(again) == self._control, "an epoch was announced twice")
        elif snapshot.seats:
            after = self._accepted(command).scope(name)
            old = (scope.worked, scope.drained)
            worked, drained = (snapshot.version, None) if kind is BarrierKind.EPOCH else old
            opened = after.open
            self._expect(
                opened is not None
                and (opened.epoch, opened.required, opened.target) == (scope.next, required, command.target)
                and replace(scope, next=scope.next + 1, open=opened, worked=worked, drained=drained) == after,
                lambda: f"{command} made {after} of {scope}",
            )

    def _a_publication(self) -> None:
        name, scope, lead = self._scope()
        if scope.open is None:
            return
        low = self._random.choice((None, -(10**9), 10**9))
        after = self._accepted(Publish(*lead, name, scope.open.epoch, low)).scope(name)
        known = [mark for mark in (low, scope.watermark) if mark is not None]
        drained = scope.open.target if scope.open.kind is BarrierKind.DRAIN else scope.drained
        expected = replace(
            scope,
            open=None,
            committed=scope.open.epoch,
            watermark=max(known, default=None),
            drained=drained,
        )
        self._expect(after == expected, lambda: f"publishing {low} made {after} of {scope}")

    def _a_publication_of_another_epoch(self) -> None:
        name, scope, lead = self._scope()
        known = scope.committed, scope.open.epoch if scope.open else None
        for epoch in {scope.next, scope.next - 1, scope.committed - 1, scope.committed + 1} - set(known):
            self._refused(Publish(*lead, name, epoch, None))
        if scope.committed:
            again = self._accepted(Publish(*lead, name, scope.committed, None))
            self._expect(again == self._control, "an epoch was published twice")

    def _an_abort(self) -> None:
        name, scope, lead = self._scope()
        for epoch in {scope.committed, scope.committed - 1, scope.next, 0}:
            self._refused(Abort(*lead, name, epoch))
        for epoch in {scope.committed + 1, scope.next - 1} - {scope.open.epoch if scope.open else None}:
            if scope.committed < epoch < scope.next:
                again = self._accepted(Abort(*lead, name, epoch))
                self._expect(again == self._control, "an epoch was given up twice")
        if scope.open is not None:
            after = self._accepted(Abort(*lead, name, scope.open.epoch)).scope(name)
            aborted = (*scope.aborted, scope.open.epoch)[-64:]
            self._expect(
                after == replace(scope, open=None, aborted=aborted),
                lambda: f"an abort made {after} of {scope}",
            )

    # owners

    def _a_rotation(self) -> None:
        lead = self._lead()
        control, current = self._control, self._control.assignment
        drained = [scope.drained for scope in control.scopes.values() if scope.drained is not None]
        seats = self._random.choice([*drained, current.seats, (*current.seats, _STRANGER), (_STRANGER,)])
        wanted = Snapshot(current.version + 1, lead[1], seats, (0,) * 4, current.hash)
        quiet = all(
            scope.open is None and (scope.worked != current.version or scope.drained == seats)
            for scope in control.scopes.values()
        )
        for version in (current.version - 1, current.version, current.version + 2):
            self._refused(Rotate(*lead, replace(wanted, version=version, token=-1)))
        if not quiet:
            self._refused(Rotate(*lead, wanted))
            return
        after = self._accepted(Rotate(*lead, wanted))
        scopes = {name: replace(scope, drained=None) for name, scope in control.scopes.items()}
        self._expect(
            after == replace(control, assignment=wanted, scopes=scopes), lambda: f"{wanted} made {after}"
        )

    def _a_rotation_that_was_made(self) -> None:
        again = self._accepted(Rotate(*self._lead(), self._control.assignment))
        self._expect(again == self._control, "owners were changed twice")

    # answers

    def _an_answer(self) -> None:
        barrier = self._opened()
        if barrier is None or not barrier.required:
            return
        seat = self._random.choice(barrier.required)
        good = BarrierAck(seat.member, seat.session, barrier.epoch, barrier.assignment)
        others = [
            replace(good, epoch=good.epoch - 1),
            replace(good, assignment=good.assignment - 1),
            replace(good, session="nobody-0"),
            replace(good, member="stranger"),
        ]
        alignment = answers.Alignment(barrier)
        for ack in others:
            self._expect(not alignment.receive(ack).acks, "the answer of somebody else counts")
        counted = alignment.receive(good)
        self._expect(seat.member in counted.acks, lambda: f"{good} does not count for {barrier}")
        self._expect(counted.aligned == (len(barrier.required) == 1), lambda: f"{counted} is aligned or not")
        refused = alignment.receive(replace(good, refusal="no"))
        self._expect(not refused.aligned and refused.refusal is not None, lambda: f"{refused} is aligned")

    def _a_decision(self) -> None:
        barrier = self._opened()
        if barrier is None:
            return
        name, scope, _ = self._scope()
        given_up = answers.abort(barrier, scope, "probe")
        kept = (given_up.outcome, given_up.previous, given_up.watermark)
        self._expect(kept == (Outcome.ABORT, scope.committed, scope.watermark), lambda: f"{name}: {given_up}")

    # helpers

    def _scope_name(self) -> str:
        return self._random.choice(sorted(self._control.scopes) or _PLAYERS)

    def _scope(self) -> tuple[str, Scope, tuple[str, int]]:
        name = self._scope_name()
        return name, self._control.scope(name), self._lead()

    def _opened(self) -> Barrier | None:
        opened = [scope.open for scope in self._control.scopes.values() if scope.open is not None]
        return self._random.choice(opened) if opened else None

    def _lead(self) -> tuple[str, int]:
        """Who leads; somebody does, also where the lease has just been given up."""
        lease = self._control.lease
        if lease.owner is None:
            self._control = replace(self._control, lease=replace(lease, owner="probe#p-0"))
        return self._control.lease.owner or "", self._control.lease.token

    def _prepare(self, kind: BarrierKind, required: tuple[Seat, ...]) -> Prepare:
        target = required[1:] if kind is BarrierKind.DRAIN else ()
        return Prepare(*self._lead(), self._scope_name(), kind, required, "probe", target)

    def _refused(self, command: Command) -> None:
        after, answer = machine.apply(self._control, command)
        self._expect(
            not isinstance(answer, ControlAccepted) and after == self._control,
            lambda: f"{command} was accepted by {self._control}",
        )

    def _accepted(self, command: Command) -> Control:
        after, answer = machine.apply(self._control, command)
        self._expect(
            isinstance(answer, ControlAccepted), lambda: f"{command} was refused by {self._control}: {answer}"
        )
        return after

    def _same(self, after: Control, lease: Lease) -> None:
        """Nothing has changed but the lease, and who had it."""
        unchanged = replace(after, lease=lease, terms=self._control.terms) == self._control
        self._expect(unchanged, lambda: f"{after} was made of {self._control}")

    def _expect(self, holds: bool, what: str | Callable[[], str]) -> None:
        if not holds:
            self._world.fail(f"asked on trial: {what if isinstance(what, str) else what()}")


_PROBES: list[Callable[[Probes], None]] = [
    Probes._a_stale_leader,
    Probes._a_lease_that_is_held,
    Probes._a_takeover,
    Probes._a_renewal,
    Probes._a_resignation,
    Probes._an_epoch_with_others_than_the_owners,
    Probes._a_drain_of_somebody_without_a_seat,
    Probes._an_announcement,
    Probes._a_publication,
    Probes._a_publication_of_another_epoch,
    Probes._an_abort,
    Probes._a_rotation,
    Probes._a_rotation_that_was_made,
    Probes._an_answer,
    Probes._a_decision,
]
