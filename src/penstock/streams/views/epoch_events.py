"""What a leader tells of a stream's epochs: what each brought, and what a change of owners cost."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.control.cluster.rules.assignment import part_owner
from penstock.control.cluster.rules.model import BarrierKind, Decision, Outcome, Seat, Snapshot
from penstock.streams.ingest.worker import StreamWorker
from penstock.streams.model import Brought
from penstock.streams.views import events
from penstock.streams.views.events import Listener


class EpochEvents:
    """Turns the decisions of this leader into events.

    For the first epoch of a leader, what was before is taken from its worker. A leader that owned nothing
    before does not know it, and tells of no move.
    """

    def __init__(
        self,
        worker: StreamWorker,
        assignment: Callable[[], Snapshot],
        listener: Listener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = worker
        self._assignment = assignment
        self._listener = listener
        self._clock = clock
        self._last: float | None = None
        self._version = 0
        self._seats: tuple[Seat, ...] = ()
        self._problem = ""

    def decided(self, decision: Decision) -> None:
        """Take a decision in, once."""
        if decision.outcome is Outcome.ABORT:
            if decision.reason != self._problem:
                self._listener(events.problem(f"epoch {decision.epoch} was given up: {decision.reason}"))
            self._problem = decision.reason
            return
        if decision.kind is BarrierKind.DRAIN:
            return
        self._problem = ""
        now, snapshot = self._clock(), self._assignment()
        self._follow(decision.assignment, snapshot, now)
        brought = [Brought.decode(text) for text in decision.files]
        self._listener(
            events.epoch_committed(
                decision.epoch,
                rows=sum(each.rows for each in brought),
                late=sum(each.late for each in brought),
                size=sum(each.bytes for each in brought),
                seconds=decision.seconds,
            )
        )

    def _follow(self, version: int, snapshot: Snapshot, now: float) -> None:
        """Take note of an epoch under a version of the owners.

        ``snapshot`` may be of another version; then the owners become known with a later epoch.
        """
        if version != self._version:
            if snapshot.version != version:
                return
            self._tell_move(snapshot, now)
            self._version, self._seats = version, snapshot.seats
        self._last = now

    def _tell_move(self, snapshot: Snapshot, now: float) -> None:
        before, last = self._seats, self._last
        if last is None and (former := self._worker.former) is not None:
            before, last = former.seats, former.at
        if last is None or not before or not snapshot.seats:
            return
        members = tuple(seat.member for seat in snapshot.seats)
        moved = self._moved(before, snapshot.seats)
        self._listener(events.rescaled(snapshot.version, members, moved=moved, pause=now - last))

    def _moved(self, before: tuple[Seat, ...], after: tuple[Seat, ...]) -> float:
        """The share of the parts that have another owner."""
        names = self._worker.names
        changed = sum(
            part_owner(before, n.source, n.part) != part_owner(after, n.source, n.part) for n in names
        )
        return changed / len(names) if names else 0.0
