"""Which member of a stream owns a part, and names of parts that some member owns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from penstock.control.cluster.rules.assignment import part_owner
from penstock.control.cluster.rules.model import Seat


def owner(part: str, *members: str, source: str = "s") -> str:
    return part_owner([Seat(member, "") for member in members], source, part)


def lister(*members: str, source: str = "s") -> str:
    return owner("", *members, source=source)


def parts_of(member: str, *members: str) -> Iterator[str]:
    """Names of parts that ``member`` owns among ``members``."""
    return (name for name in (f"p{n}" for n in count()) if owner(name, *members) == member)


def moving(before: str, after: str, *, old: Sequence[str], new: Sequence[str]) -> str:
    """The name of a part that goes from one member to another when the members change."""
    return next(name for name in parts_of(before, *old) if owner(name, *new) == after)
