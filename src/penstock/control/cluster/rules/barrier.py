"""How acks become a decision: pure, and the same whoever leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.control.cluster.rules.model import Barrier, BarrierAck, BarrierKind, Decision, Outcome, Scope

_REASON = 2000
"""How much of a reason is kept: a refusal says whatever its member likes."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """An open barrier and the answers so far. An answer that does not belong to it is counted, once."""

    barrier: Barrier
    acks: Mapping[str, BarrierAck] = field(default_factory=dict)
    strays: frozenset[tuple[str, str, str, int]] = frozenset()
    """Why, member, session and epoch of each ack that was ignored."""

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(seat.member for seat in self.barrier.required if seat.member not in self.acks)

    @property
    def refusal(self) -> str | None:
        """The first refusal, with the name of its member."""
        refused = (ack for ack in self.acks.values() if ack.refusal is not None)
        return next((f"{ack.member} refused: {ack.refusal}" for ack in refused), None)

    @property
    def aligned(self) -> bool:
        return not self.missing and self.refusal is None

    @property
    def ignored(self) -> dict[str, int]:
        """How many acks were ignored, by reason."""
        return dict(Counter(why for why, *_ in self.strays))

    def receive(self, ack: BarrierAck) -> Alignment:
        """The alignment after an ack; one that is repeated changes nothing."""
        why = stray(self.barrier, ack)
        if why is not None:
            return replace(self, strays=self.strays | {(why, ack.member, ack.session, ack.epoch)})
        if ack.member in self.acks:
            return self
        return replace(self, acks={**self.acks, ack.member: ack})


def stray(barrier: Barrier, ack: BarrierAck) -> str | None:
    """Why an ack does not count for this barrier; None if it does."""
    if ack.epoch != barrier.epoch:
        return "other epoch"
    if ack.assignment != barrier.assignment:
        return "other assignment"
    seat = next((seat for seat in barrier.required if seat.member == ack.member), None)
    if seat is None:
        return "not required"
    return None if seat.session == ack.session else "other session"


def watermark(before: int | None, acks: Iterable[BarrierAck]) -> int | None:
    """The least of those who have a say; it never goes back."""
    said = [ack.watermark for ack in acks if ack.watermark is not None]
    known = [mark for mark in (before, min(said, default=None)) if mark is not None]
    return max(known, default=None)


def commit(alignment: Alignment, scope: Scope, before: Decision | None) -> Decision:
    """The record of an aligned epoch. Parts that nobody acked keep the state of the epoch before.

    A drain does not move the watermark: members that are gone have no say in it, and what they owned goes
    on from where it was.
    """
    barrier, acks = alignment.barrier, alignment.acks
    states: dict[str, str] = dict(before.states) if before else {}
    # Those who are gone do not ack a drain; whoever follows them needs to know how far they were.
    frontiers = dict(before.frontiers) if before and barrier.kind is BarrierKind.DRAIN else {}
    for ack in acks.values():
        states |= ack.states
    moving = acks.values() if barrier.kind is BarrierKind.EPOCH else ()
    return Decision(
        epoch=barrier.epoch,
        outcome=Outcome.COMMIT,
        kind=barrier.kind,
        assignment=barrier.assignment,
        token=barrier.token,
        previous=scope.committed,
        watermark=watermark(scope.watermark, moving),
        acked=tuple(sorted(acks)),
        states=states,
        frontiers=frontiers | {a.member: a.frontier for a in acks.values() if a.frontier is not None},
        files=tuple(file for member in sorted(acks) for file in acks[member].files),
        ignored=alignment.ignored,
    )


def abort(barrier: Barrier, scope: Scope, reason: str, alignment: Alignment | None = None) -> Decision:
    """The record of an epoch that is given up."""
    return Decision(
        epoch=barrier.epoch,
        outcome=Outcome.ABORT,
        kind=barrier.kind,
        assignment=barrier.assignment,
        token=barrier.token,
        previous=scope.committed,
        watermark=scope.watermark,
        reason=reason[:_REASON],
        acked=tuple(sorted(alignment.acks)) if alignment else (),
        ignored=alignment.ignored if alignment else {},
    )
