"""Who owns which parts, as one member sees it. Every instance computes it from the same assignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.control.cluster.rules.assignment import check_hash, part_owner
from penstock.control.cluster.rules.model import Seat, Snapshot
from penstock.sources.base import PartName


@dataclass(frozen=True, slots=True)
class Former:
    """Who owned parts before the owners changed, and when they committed their last epoch."""

    seats: tuple[Seat, ...]
    at: float


class PartOwners:
    """What ``member`` owns under the assignment that it follows."""

    def __init__(self, member: str, clock: Callable[[], float]) -> None:
        self._member = member
        self._clock = clock
        self._seats: tuple[Seat, ...] = ()
        self._committed_at: float | None = None
        self.version = 0
        self.former: Former | None = None
        """What was before the owners changed last, if this member took part in it."""

    def follow(self, snapshot: Snapshot) -> bool:
        """Take over an assignment; whether this member has a seat in it."""
        check_hash(snapshot)
        if snapshot.version != self.version:
            at = self._committed_at
            self.former = Former(self._seats, at) if at is not None else None
        self.version, self._seats = snapshot.version, snapshot.seats
        return snapshot.seat(self._member) is not None

    def committed(self) -> None:
        """Take note that an epoch was committed under this assignment."""
        self._committed_at = self._clock()

    def fenced(self) -> None:
        """Take note that this member knows nothing of what the others commit from now on."""
        self._committed_at = None

    def owns(self, source: str, part: str) -> bool:
        return part_owner(self._seats, source, part) == self._member

    def is_mine(self, name: PartName) -> bool:
        return self.owns(name.source, name.part)

    def is_lister(self, source: str) -> bool:
        """Whether this member lists the parts of a source."""
        return self.owns(source, "")

    @property
    def keeps_finished(self) -> bool:
        """Whether this member keeps the list of finished parts."""
        return self.owns("", "finished")

    @property
    def writes_session(self) -> bool:
        """Whether this member writes down where the shuffle of journals stands."""
        return self.owns("", "session")

    def leaves(self, name: PartName, target: tuple[Seat, ...]) -> bool:
        """Whether another member owns a part under the seats that come next."""
        return bool(target) and part_owner(target, name.source, name.part) != self._member
