"""Rendezvous hashing: who owns what, computed alike by every process, for ever.

A member's score for an item is the largest of ``capacity`` hashes, one for each of its slots, so a member
with twice the capacity wins twice as often. The member with the highest score owns the item. When a member
comes, it takes what it wins and nothing else moves; when one goes, only what it owned moves.

The hash is the first 8 bytes, big-endian, of BLAKE2b (digest size 8, no key) over the UTF-8 text
``slot NUL member NUL item``, with the slot in decimal from 0. `HASH` names it in every snapshot; another
rule would need another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from penstock.cluster.model import Seat

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
