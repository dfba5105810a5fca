"""What a leader tells of a stream's epochs: what each brought, and what a change of owners cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from penstock.cluster.assignment import part_owner
from penstock.cluster.model import Decision, Kind, Outcome, Seat, Snapshot
from penstock.streams import events
from penstock.streams.events import Listener
from penstock.streams.model import Brought
from penstock.streams.worker import StreamWorker


class Chronicle:
    """Turns the decisions of this leader into events."""

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
        self._seats: Mapping[int, tuple[Seat, ...]] = {}
        self._problem = ""

    def decided(self, decision: Decision) -> None:
        """Take a decision in, once."""
        if decision.outcome is Outcome.ABORT:
            if decision.reason != self._problem:
                self._listener(events.problem(f"epoch {decision.epoch} was given up: {decision.reason}"))
            self._problem = decision.reason
            return
        if decision.kind is Kind.DRAIN:
            return
        self._problem = ""
        now, snapshot = self._clock(), self._assignment()
        self._tell_move(decision, snapshot, now)
        self._last = now
        self._seats = {decision.assignment: snapshot.seats}
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

    def _tell_move(self, decision: Decision, snapshot: Snapshot, now: float) -> None:
        if (
            self._last is None
            or decision.assignment in self._seats
            or snapshot.version != decision.assignment
        ):
            return
        (before,) = self._seats.values()
        members = tuple(seat.member for seat in snapshot.seats)
        moved = self._moved(before, snapshot.seats)
        self._listener(events.rescaled(snapshot.version, members, moved=moved, pause=now - self._last))

    def _moved(self, before: tuple[Seat, ...], after: tuple[Seat, ...]) -> float:
        """The share of the parts that have another owner."""
        names = [(s, part) for s, parts in self._worker.holding.listed.items() for part in parts]
        changed = sum(part_owner(before, *name) != part_owner(after, *name) for name in names)
        return changed / len(names) if names else 0.0
