"""The assignment: pure functions from who is there to who owns what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.cluster import rendezvous
from penstock.cluster.model import Member, Seat, Snapshot
from penstock.errors import TerminalError


def seats_of(members: Iterable[Member]) -> tuple[Seat, ...]:
    """Those who can own something, in the order in which a snapshot lists them."""
    return tuple(sorted(member.seat for member in members if member.serves and not member.leaving))


def successor(current: Snapshot, seats: tuple[Seat, ...], vnodes: int, token: int) -> Snapshot:
    """The next version, for these seats."""
    owners = rendezvous.vnode_owners(seats, vnodes)
    return Snapshot(current.version + 1, token, seats, owners, rendezvous.HASH)


def part_owners(snapshot: Snapshot, source: str, parts: Iterable[str]) -> Mapping[str, str]:
    """The owner of each part of a source. Every process computes the same from the same snapshot."""
    check_hash(snapshot)
    if not snapshot.seats:
        return {}
    return {part: part_owner(snapshot.seats, source, part) for part in parts}


def check_hash(snapshot: Snapshot) -> None:
    """Raise `TerminalError` if this version does not know how owners under ``snapshot`` are found."""
    if snapshot.seats and snapshot.hash != rendezvous.HASH:
        raise TerminalError(
            f"assignment version {snapshot.version} was made with the hash {snapshot.hash!r}, "
            f"and this version of Penstock knows {rendezvous.HASH!r}",
            hint="run the same version of Penstock on all instances",
        )


def part_owner(seats: Iterable[Seat], source: str, part: str) -> str:
    """Who of these seats owns a part; there must be at least one.

    Seats of a snapshot that somebody else made are to be checked first: see `check_hash`.
    """
    return rendezvous.owner(seats, f"part/{source}/{part}")


def moved(before: Snapshot, after: Snapshot) -> tuple[int, ...]:
    """The virtual nodes that have another owner than before."""
    if len(before.owners) != len(after.owners):
        return tuple(range(len(after.owners)))
    return tuple(
        number
        for number, (old, new) in enumerate(zip(before.owners, after.owners, strict=True))
        if before.seats[old].member != after.seats[new].member
    )
