"""A member's side of barriers: what a scope's owner must do, and the loop that asks it to."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.cluster.model import Ack, Barrier, Control, Decision, Outcome, Seat, Snapshot
from penstock.cluster.records import Records
from penstock.cluster.room import Room
from penstock.errors import UsageError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """What a member brings to an epoch; see `Ack`."""

    states: Mapping[str, str] = field(default_factory=dict)
    frontier: str | None = None
    files: tuple[str, ...] = ()
    watermark: int | None = None
    refusal: str | None = None


class Participant(ABC):
    """What works in epochs on behalf of a member. Calls come from one thread, in the order given here.

    After `assigned` come any number of `prepare`, each followed by `committed` or `aborted`. `fenced` may
    come after any of them instead of what would follow; if the member comes back, `assigned` is next.
    """

    @abstractmethod
    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        """Own what ``snapshot`` gives this member, and nothing else, as of the ``committed`` epoch.

        Not called between `prepare` and its outcome. Everything that left this member was stopped by the
        drain before.
        """

    @abstractmethod
    def prepare(self, barrier: Barrier) -> Work:
        """Bring the work up to the barrier and say what it is; nothing of it is visible yet.

        For a drain: stop, and be ready to let go of everything that ``barrier.target`` gives to others.
        An exception counts as a refusal. It may take long, but not longer than the barrier's timeout.
        """

    @abstractmethod
    def committed(self, epoch: int) -> None:
        """The epoch stands: what `prepare` brought is part of the truth."""

    @abstractmethod
    def aborted(self, epoch: int) -> None:
        """The epoch never was: go back to the last one that was committed."""

    @abstractmethod
    def fenced(self) -> None:
        """The others have given this member up: stop everything, and keep nothing."""


class Bystander(Participant):
    """Answers every barrier and owns nothing: for the cluster's own heartbeat."""

    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        """Nothing to own."""

    def prepare(self, barrier: Barrier) -> Work:
        del barrier
        return Work()

    def committed(self, epoch: int) -> None:
        """Nothing to keep."""

    def aborted(self, epoch: int) -> None:
        """Nothing to undo."""

    def fenced(self) -> None:
        """Nothing to stop."""


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
        self._answer: Ack | None = None
        self._written = False

    def step(self) -> None:
        """Read the control once and do what it asks for. Raises `StoreUnavailable`; then call it again."""
        control = self._room.read()
        self._settle(control)
        if self._answer is None:
            self._follow(control)
            self._prepare(control)
        if self._answer is not None and not self._written:
            self._write(self._answer)
            self._written = True

    def _write(self, answer: Ack) -> None:
        try:
            self._records.write_ack(self._scope, answer)
        except UsageError as error:
            # Too large for the store: the leader must hear of it, or the epoch would only time out.
            short = replace(answer, states={}, frontier=None, files=(), refusal=error.what)
            self._records.write_ack(self._scope, short)

    def _settle(self, control: Control) -> None:
        """Hand on how the epoch ended that was answered, if it did."""
        answer, scope = self._answer, control.scope(self._scope)
        if answer is None or (scope.open is not None and scope.open.epoch == answer.epoch):
            return
        if scope.committed == answer.epoch or self._was_committed(answer.epoch):
            self._participant.committed(answer.epoch)
        else:
            self._participant.aborted(answer.epoch)
        self._answer = None

    def _was_committed(self, epoch: int) -> bool:
        decision = self._records.decision(self._scope, epoch)
        return decision is not None and decision.outcome is Outcome.COMMIT

    def _follow(self, control: Control) -> None:
        """Take over the assignment, if it changed."""
        if control.assignment.version == self._version:
            return
        committed = control.scope(self._scope).committed
        decision = self._records.decision(self._scope, committed) if committed else None
        self._participant.assigned(control.assignment, decision)
        self._version = control.assignment.version

    def _prepare(self, control: Control) -> None:
        barrier = control.scope(self._scope).open
        if barrier is None or barrier.assignment != self._version or self._seat not in barrier.required:
            return
        try:
            work = self._participant.prepare(barrier)
        except Exception as error:
            _log.exception("epoch %d of %s is refused", barrier.epoch, self._scope)
            work = Work(refusal=f"{type(error).__name__}: {error}"[:500])
        self._answer = Ack(
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
