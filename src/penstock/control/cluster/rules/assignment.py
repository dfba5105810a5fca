"""The assignment: who owns what, as pure functions that every process computes alike, for ever.

It rests on rendezvous hashing. A member's score for an item is the largest of ``capacity`` hashes, one for
each of its slots, so a member with twice the capacity wins twice as often. The member with the highest score
owns the item. When a member comes, it takes what it wins and nothing else moves; when one goes, only what it
owned moves.

The hash is the first 8 bytes, big-endian, of BLAKE2b (digest size 8, no key) over the UTF-8 text
``slot NUL member NUL item``, with the slot in decimal from 0. `HASH` names it in every snapshot; another
rule would need another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from penstock.control.cluster.rules.model import Member, Seat, Snapshot
from penstock.core.codec import UPGRADE
from penstock.errors import TerminalError

HASH = "blake2b-8-slots"


def score(member: str, slot: int, item: str) -> int:
    """The hash of one slot of a member for an item."""
    text = f"{slot}\0{member}\0{item}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def owner(seats: Iterable[Seat], item: str) -> str:
    """The member that owns ``item``; there must be at least one seat."""
    return max(seats, key=lambda seat: (_best(seat, item), seat.member)).member


def vnode(number: int) -> str:
    """The item that stands for a virtual node."""
    return f"vnode/{number}"


def vnode_owners(seats: Sequence[Seat], count: int) -> tuple[int, ...]:
    """For each of ``count`` virtual nodes, the index in ``seats`` of its owner; empty without seats."""
    if not seats:
        return ()
    index = {seat.member: i for i, seat in enumerate(seats)}
    return tuple(index[owner(seats, vnode(number))] for number in range(count))


def _best(seat: Seat, item: str) -> int:
    return max(score(seat.member, slot, item) for slot in range(seat.capacity))


def seats_of(members: Iterable[Member]) -> tuple[Seat, ...]:
    """Those who can own something, in the order in which a snapshot lists them."""
    return tuple(sorted(member.seat for member in members if member.serves and not member.leaving))


def successor(current: Snapshot, seats: tuple[Seat, ...], vnodes: int, token: int) -> Snapshot:
    """The next version, for these seats."""
    owners = vnode_owners(seats, vnodes)
    return Snapshot(current.version + 1, token, seats, owners, HASH)


def part_owners(snapshot: Snapshot, source: str, parts: Iterable[str]) -> Mapping[str, str]:
    """The owner of each part of a source. Every process computes the same from the same snapshot."""
    check_hash(snapshot)
    if not snapshot.seats:
        return {}
    return {part: part_owner(snapshot.seats, source, part) for part in parts}


def check_hash(snapshot: Snapshot) -> None:
    """Raise `TerminalError` if this version does not know how owners under ``snapshot`` are found."""
    if snapshot.seats and snapshot.hash != HASH:
        raise TerminalError(
            f"assignment version {snapshot.version} was made with the hash {snapshot.hash!r}, "
            f"and this version of Penstock knows {HASH!r}",
            hint=UPGRADE,
        )


def part_owner(seats: Iterable[Seat], source: str, part: str) -> str:
    """Who of these seats owns a part; there must be at least one.

    Seats of a snapshot that somebody else made are to be checked first: see `check_hash`.
    """
    return owner(seats, f"part/{source}/{part}")


def moved(before: Snapshot, after: Snapshot) -> tuple[int, ...]:
    """The virtual nodes that have another owner than before."""
    if len(before.owners) != len(after.owners):
        return tuple(range(len(after.owners)))
    return tuple(
        number
        for number, (old, new) in enumerate(zip(before.owners, after.owners, strict=True))
        if before.seats[old].member != after.seats[new].member
    )
