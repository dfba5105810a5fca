"""A member's side of barriers: what a scope's owner must do, and the loop that asks it to."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierAck,
    BarrierKind,
    Control,
    Decision,
    Outcome,
    Scope,
    Seat,
    Snapshot,
)
from penstock.errors import PenstockError, SessionLost, UsageError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EpochWork:
    """What a member brings to an epoch; see `BarrierAck`."""

    states: Mapping[str, str] = field(default_factory=dict)
    frontier: str | None = None
    files: tuple[str, ...] = ()
    watermark: int | None = None
    refusal: str | None = None


class Participant(ABC):
    """What works in epochs on behalf of a member. Calls come one after the other, in the order given here.

    After `assigned` come any number of `prepare`, each followed by `committed` or `aborted`. `fenced` may
    come after any of them instead of what would follow; if the member comes back, `assigned` is next. It is
    the one call that may come from another thread while a call is under way, when the store cannot be
    reached; then it comes once more after that call: whatever it was doing must stop.
    """

    @abstractmethod
    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        """Own what ``snapshot`` gives this member, and nothing else, as of the ``committed`` epoch.

        It comes with the first epoch that is announced under ``snapshot``, or at once where that gives this
        member nothing, and never between `prepare` and its outcome. Everything that left this member was
        stopped by the drain before.

        If it raises, nothing is owned: the epoch is refused with the error, a drain needs nothing of this
        member, and `assigned` comes again with the next barrier.
        """

    @abstractmethod
    def prepare(self, barrier: Barrier) -> EpochWork:
        """Bring the work up to the barrier and say what it is; nothing of it is visible yet.

        For a drain: stop until `aborted`, `assigned` or the next ordinary epoch comes, and be ready to let go
        of everything that ``barrier.target`` gives to others.

        An exception counts as a refusal. It may take long, but not longer than the barrier's timeout and the
        `patience` of the leader's participant.
        """

    def patience(self) -> float:
        """How many seconds the epoch under way may take longer than the barrier's timeout.

        The leader asks its own participant, again and again and from another thread; so it should be what
        all members would say.
        """
        return 0.0

    @abstractmethod
    def committed(self, epoch: int) -> None:
        """The epoch stands: what `prepare` brought is part of the truth."""

    @abstractmethod
    def aborted(self, epoch: int) -> None:
        """The epoch never was: go back to the last one that was committed."""

    @abstractmethod
    def fenced(self) -> None:
        """The others have given this member up, or it leaves: stop everything, and keep nothing."""


class Bystander(Participant):
    """Answers every barrier and does no work: the part of a `penstock cluster join` in the heartbeat.

    The assignment gives its member virtual nodes like any other; nothing is placed on them.
    """

    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        """Nothing to own."""

    def prepare(self, barrier: Barrier) -> EpochWork:
        del barrier
        return EpochWork()

    def committed(self, epoch: int) -> None:
        """Nothing to keep."""

    def aborted(self, epoch: int) -> None:
        """Nothing to undo."""

    def fenced(self) -> None:
        """Nothing to stop."""


class Outsider(Bystander):
    """Stands for a scope that this instance does not know: it has nothing to stop, and does no work.

    Without it, a scope that nobody works on any more would keep owners from ever changing again.
    """

    def prepare(self, barrier: Barrier) -> EpochWork:
        if barrier.kind is BarrierKind.DRAIN:
            return EpochWork()
        return EpochWork(refusal="this instance does not work on it: run the same version everywhere")


class Participation:
    """One member's part in one scope, under one session."""

    def __init__(
        self, room: Room, records: Records, scope: str, seat: Seat, participant: Participant
    ) -> None:
        self._room = room
        self._records = records
        self._scope = scope
        self._seat = seat
        self._participant = participant
        self._version = 0
        self._failed: tuple[int, str] | None = None
        """The version that the participant could not take over, and why."""
        self._asked = False
        """Whether the answer is the participant's own, so that it must hear of the outcome."""
        self._answer: BarrierAck | None = None
        self._written = False
        self._acked: int | None = None
        self._over = False

    def end(self) -> None:
        """The session is over: the participant is asked for nothing more on its behalf."""
        self._over = True

    def _check(self) -> None:
        if self._over:
            raise SessionLost("the session was given up while the store did not answer")

    def step(self, seen: Control | None = None) -> None:
        """Read the control once and do what it asks for. Raises `StoreUnavailable`; then call it again.

        ``seen`` is a control that was just read, if there is one; it must not be older than the last.
        """
        control = seen or self._room.read()
        self._settle(control)
        if self._answer is None:
            self._follow(control)
            self._prepare(control)
        if self._answer is not None and not self._written:
            self._write(self._answer)
            self._written = True

    def _write(self, answer: BarrierAck) -> None:
        try:
            self._acked = self._records.write_ack(self._scope, answer, self._acked)
        except (UsageError, TypeError) as error:
            # Too large, or no text: the leader must hear of it, or the epoch would only time out.
            why = error.what if isinstance(error, UsageError) else f"the work cannot be written: {error}"
            short = replace(answer, states={}, frontier=None, files=(), watermark=None, refusal=why)
            self._acked = self._records.write_ack(self._scope, short)

    def _settle(self, control: Control) -> None:
        """Hand on how the epoch ended that was answered, if it did."""
        answer, scope = self._answer, control.scope(self._scope)
        if answer is None or (scope.open is not None and scope.open.epoch == answer.epoch):
            return
        outcome = self._outcome(scope, answer.epoch)
        self._check()
        if outcome is None:
            self._participant.fenced()
            self._version = 0
        elif self._asked:
            tell = self._participant.committed if outcome is Outcome.COMMIT else self._participant.aborted
            tell(answer.epoch)
        self._answer = None

    def _outcome(self, scope: Scope, epoch: int) -> Outcome | None:
        """How an epoch ended that is not open any more.

        None: so long ago that its record was pruned. The others went on without this session, so they have
        given it up.
        """
        if epoch >= scope.committed or epoch in scope.aborted:
            return Outcome.COMMIT if epoch == scope.committed else Outcome.ABORT
        return self._records.outcome(self._scope, epoch)

    def _follow(self, control: Control) -> None:
        """Take over the assignment, if it changed and work under it may begin."""
        assignment, scope = control.assignment, control.scope(self._scope)
        if assignment.version == self._version or not self._may_begin(assignment, scope):
            return
        if self._has_failed(assignment.version) and scope.open is None:
            return  # it is tried again when somebody wants to know
        committed = scope.committed
        decision = self._records.decision(self._scope, committed) if committed else None
        if committed and decision is None:
            return  # it was pruned: this control is long out of date, and the next step reads a new one
        self._check()
        self._assign(assignment, decision)

    def _assign(self, assignment: Snapshot, decision: Decision | None) -> None:
        try:
            self._participant.assigned(assignment, decision)
        except Exception as error:
            _note(f"version {assignment.version} of the owners of {self._scope} fails", error)
            self._version, self._failed = 0, (assignment.version, _said(error))
            return
        self._version, self._failed = assignment.version, None

    def _may_begin(self, assignment: Snapshot, scope: Scope) -> bool:
        """Whether a drain would stop what begins under ``assignment``.

        No drain asks a seat of another session, nor for a version under which no epoch was announced.
        """
        seat = assignment.seat(self._seat.member)
        if seat is None:
            return True  # there is nothing to begin
        return seat.session == self._seat.session and scope.worked == assignment.version

    def _is_required(self, barrier: Barrier) -> bool:
        me = (self._seat.member, self._seat.session)
        return any((seat.member, seat.session) == me for seat in barrier.required)

    def _prepare(self, control: Control) -> None:
        barrier = control.scope(self._scope).open
        if barrier is None or not self._is_required(barrier):
            return
        if barrier.assignment != self._version and not self._has_failed(barrier.assignment):
            return
        self._check()
        self._asked = barrier.assignment == self._version
        work = self._ask(barrier) if self._asked else self._excuse(barrier)
        self._check()
        self._answer = BarrierAck(
            self._seat.member,
            self._seat.session,
            barrier.epoch,
            barrier.assignment,
            work.states,
            work.frontier,
            work.files,
            work.watermark,
            work.refusal,
        )
        self._written = False

    def _ask(self, barrier: Barrier) -> EpochWork:
        try:
            return self._participant.prepare(barrier)
        except Exception as error:
            _note(f"epoch {barrier.epoch} of {self._scope} is refused", error)
            return EpochWork(refusal=_said(error))

    def _excuse(self, barrier: Barrier) -> EpochWork:
        """The answer where the participant owns nothing, since it failed to take over what it should."""
        if barrier.kind is BarrierKind.DRAIN or self._failed is None:
            return EpochWork()
        return EpochWork(refusal=self._failed[1])

    def _has_failed(self, version: int) -> bool:
        return self._failed is not None and self._failed[0] == version


def _note(what: str, error: Exception) -> None:
    """The leader tells why. Only of an error that nobody foresaw does anybody need to know the place."""
    if isinstance(error, PenstockError):
        _log.info("%s: %s", what, error)
    else:
        _log.exception("%s", what)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
