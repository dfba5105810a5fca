"""How many members a cluster takes: as many as the control document has room for.

The document lists every seat and is written as a whole. One that grows beyond what the store takes could not
be written any more, and nothing would move; so it is measured before anybody gets a seat.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.control.cluster.documents import codec
from penstock.control.cluster.rules.model import Barrier, BarrierKind, Control, Seat, Snapshot
from penstock.errors import UsageError
from penstock.store.backends import MAX_DOCUMENT

_ROOM = MAX_DOCUMENT - 64 * 1024
"""What seats may fill. The rest is for what comes and goes: terms, aborted epochs, longer numbers."""


def admitted(control: Control, seats: tuple[Seat, ...], vnodes: int) -> tuple[Seat, ...]:
    """As many of ``seats`` as can have one now. Who has one keeps it; of the others the first ones get one.

    Others may follow once the seats of those that are gone are not listed any more.
    """
    if fits(control, seats, vnodes):
        return seats
    owners = set(control.assignment.seats)
    kept = [seat for seat in seats if seat in owners]
    fresh = [seat for seat in seats if seat not in owners]
    low, high = (0 if kept else 1), len(fresh)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(control, tuple(sorted(kept + fresh[:middle])), vnodes):
            low = middle
        else:
            high = middle - 1
    return tuple(sorted(kept + fresh[:low]))


def fits(control: Control, seats: tuple[Seat, ...], vnodes: int) -> bool:
    """Whether the control can be written all the way from the owners of now to ``seats``, and after."""
    after = Snapshot(control.assignment.version + 1, 0, seats, (len(seats),) * vnodes)
    draining = _opened(control, BarrierKind.DRAIN, control.assignment.seats, seats)
    working = _opened(replace(control, assignment=after), BarrierKind.EPOCH, seats, ())
    return all(len(codec.CONTROL.encode(each)) <= _ROOM for each in (draining, working))


def check_room(control: Control, seats: tuple[Seat, ...], vnodes: int) -> None:
    """Raise `UsageError` if ``seats`` are more than a cluster takes, were they all that it has."""
    among = replace(control, assignment=replace(control.assignment, seats=seats, owners=()))
    if not fits(among, seats, vnodes):
        raise UsageError(
            f"the cluster has {len(seats) - 1:,} members, and its control document has no room for another",
            left="the members that it has go on",
            hint="use fewer and larger instances (capacity), or shorter ids",
        )


def _opened(
    control: Control, kind: BarrierKind, required: tuple[Seat, ...], target: tuple[Seat, ...]
) -> Control:
    """The control with a barrier open in every scope, as large as it becomes."""
    scopes = {
        name: replace(
            scope,
            open=Barrier(scope.next, kind, control.assignment.version, 0, required, "0" * 16, target),
            drained=target,
        )
        for name, scope in control.scopes.items()
    }
    return replace(control, scopes=scopes)
