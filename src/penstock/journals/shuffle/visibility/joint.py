"""Transactions of several producers: which acks belong together.

The hints of a mark are the largest ones only, and do not tell of which transaction they are. Where all of it
is of one producer, its clock tells that. Where it is not, the acks are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from penstock.journals.shuffle.sequencing.parsing import (
    LARGEST_CLOCK,
    LARGEST_PRODUCER,
    bad,
    integer,
    listed,
    text,
)

MOST = 1024
"""So many are told apart. More than these gather only where something is waited for very long."""


class Acks(NamedTuple):
    """The acks of a producer in a journal with clocks from ``first`` to ``last``: most often it is one."""

    journal: str
    producer: int
    first: int
    last: int


Joint: TypeAlias = tuple[Acks, ...]
"""Acks that must be seen together, sorted: of one transaction, or of several that are not told apart."""


def joint(acks: Iterable[Acks]) -> Joint:
    """Those of one producer in one journal become one."""
    found: dict[tuple[str, int], Acks] = {}
    for each in acks:
        key = each.journal, each.producer
        known = found.get(key, each)
        found[key] = Acks(*key, min(known.first, each.first), max(known.last, each.last))
    return tuple(sorted(found.values()))


def gathered(*several: Iterable[Joint]) -> tuple[Joint, ...]:
    """All of them once; where they are too many, neighbours by their clocks become one.

    That is more to wait for, and nothing is seen in part by it.
    """
    found = sorted({each for some in several for each in some if each}, key=_order)
    while len(found) > MOST:
        pairs = (found[n : n + 2] for n in range(0, len(found), 2))
        found = sorted({joint(acks for each in pair for acks in each) for pair in pairs}, key=_order)
    return tuple(found)


def concerned(joints: Iterable[Joint], limits: Mapping[int, int]) -> Iterator[Joint]:
    """Those with an ack that is within the limit of its producer."""
    for each in joints:
        if any(acks.first <= limits.get(acks.producer, -1) for acks in each):
            yield each


def joints_from_json(found: Any) -> tuple[Joint, ...]:
    """What was stored, as lists; anything else is a `BadState`."""
    joints = []
    for each in listed(found, "transactions of several producers"):
        acks = tuple(_acks(listed(one, "an ack", 4)) for one in listed(each, "a transaction"))
        if acks != joint(acks):
            raise bad("the acks of a transaction are not in order")
        joints.append(acks)
    return tuple(joints)


def _order(each: Joint) -> tuple[int, Joint]:
    return min(acks.first for acks in each), each


def _acks(found: list[Any]) -> Acks:
    journal, producer, first, last = found
    return Acks(
        text(journal, "the name of a journal"),
        integer(producer, "a producer", LARGEST_PRODUCER),
        integer(first, "a clock", LARGEST_CLOCK),
        integer(last, "a clock", LARGEST_CLOCK),
    )
