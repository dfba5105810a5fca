"""The last versions of a document's history, as each of its versions carries them.

Who was slow finds in the newest version what became of its own, after both it and the one after it have
been removed. A trail is complete from its first entry on: a number in between that it does not name was
never part of the history.

    7:0f3a5c7e9b.41d2e8a0c6,19:b7…      the last digits of the ids of versions 7, 8 and 19
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

BARE = "0:"
"""The trail of what was written where nothing was."""

_LENGTH = 64
_DIGITS = 10


def extended(trail: str, number: int, name: str) -> str:
    """The trail of what follows version ``number``, which the write ``name`` made, after this trail."""
    entries = [*_entries(trail), (number, name[-_DIGITS:])][-_LENGTH:]
    pieces: list[str] = []
    expected = -1
    for each, digits in entries:
        if each == expected:
            pieces[-1] += f".{digits}"
        else:
            pieces.append(f"{each}:{digits}")
        expected = each + 1
    return ",".join(pieces)


def tells(trail: str, number: int, names: Collection[str]) -> bool | None:
    """Whether one of these writes made version ``number``; None when the trail does not go back so far."""
    known = {each: digits for each, digits in _entries(trail) if each}
    if number in known:
        return known[number] in {name[-_DIGITS:] for name in names}
    return False if known and min(known) < number else None


def begins_above(trail: str, number: int) -> bool:
    """Whether it begins where nothing was, with a greater number."""
    entries = list(_entries(trail))[:2]
    return len(entries) == 2 and entries[0][0] == 0 and entries[1][0] > number


def _entries(trail: str) -> Iterator[tuple[int, str]]:
    for piece in trail.split(",") if trail else ():
        first, _, names = piece.partition(":")
        yield from enumerate(names.split("."), int(first))
