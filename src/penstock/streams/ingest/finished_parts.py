"""The parts that have finished, of which there may be millions: they are written down once, and hardly again.

An index file has those that finished last, and points to segments, which never change. When the index has
grown to a segment's size it becomes one, and when there are many segments of a size they become one of the
next. So a part that finishes is written a few times in all, however many did before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from penstock.core.codec import DocumentFormat, Members
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.model import PartState, Pointer

LEAST = 1024
"""How many parts make a segment."""
TIER = 16
"""How many segments of a size make one of the next."""

Parts = Mapping[PartName, PartState]
SourceDescription = Mapping[str, Any]


class StatedPart(NamedTuple):
    """A `PartState` as files have it."""

    state: str | None = None
    finished: bool = False
    newest: int | None = None
    idle: bool = False


@dataclass(frozen=True, slots=True)
class StatesFile:
    """A file of states: those of parts by their names, and those of the queues of journals."""

    parts: Mapping[str, StatedPart]
    queues: Mapping[str, StatedPart] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Parts, queues: Parts | None = None) -> StatesFile:
        return cls(_stated(parts), _stated(queues or {}))


Write = Callable[[StatesFile], Pointer]
"""Writes a file of its own, and tells where."""


@dataclass(frozen=True, slots=True)
class FinishedSegment:
    """A file of ``count`` finished parts."""

    pointer: Pointer
    count: int

    @property
    def tier(self) -> int:
        size, tier = LEAST * TIER, 0
        while self.count >= size:
            size, tier = size * TIER, tier + 1
        return tier


@dataclass(frozen=True, slots=True)
class FinishedParts:
    """Finished parts: the newest here, the others in segments.

    ``places`` says by source what it described when its parts were last known to have finished.
    """

    newest: Parts = field(default_factory=dict)
    segments: tuple[FinishedSegment, ...] = ()
    places: Mapping[str, SourceDescription] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.newest) + sum(segment.count for segment in self.segments)

    def parts(self, storage: Storage) -> Iterator[tuple[PartName, PartState]]:
        """All of them."""
        yield from self.newest.items()
        for segment in self.segments:
            yield from read_states(storage, segment.pointer).items()

    def extended(self, finished: Parts, storage: Storage, write: Write) -> FinishedParts:
        """With further parts. ``write`` writes a segment."""
        newest, segments = {**self.newest, **finished}, list(self.segments)
        if len(newest) >= LEAST:
            segments.append(FinishedSegment(write(StatesFile.of(newest)), len(newest)))
            newest = {}
        while len({each.tier for each in segments[-TIER:]}) == 1 and len(segments) >= TIER:
            merged = dict(
                chain.from_iterable(read_states(storage, s.pointer).items() for s in segments[-TIER:])
            )
            segments[-TIER:] = [FinishedSegment(write(StatesFile.of(merged)), len(merged))]
        return FinishedParts(newest, tuple(segments), self.places)

    def index(self) -> FinishedIndex:
        """As its index file has it."""
        segments = tuple(SegmentEntry(s.pointer.path, s.pointer.sha256, s.count) for s in self.segments)
        return FinishedIndex(_stated(self.newest), segments, dict(self.places))

    @classmethod
    def read(cls, storage: Storage, pointer: Pointer | None) -> FinishedParts:
        if pointer is None:
            return cls()
        found = pointer.read(storage, FINISHED)
        segments = (FinishedSegment(Pointer(path, sha), count) for path, sha, count in found.segments)
        return cls(_states_in(found.parts), tuple(segments), found.places)

    @classmethod
    def union(cls, each: Iterable[FinishedParts]) -> FinishedParts:
        """All of several all_finished, whose parts are different ones; segments stay where they are."""
        found = list(each)
        newest = dict(chain.from_iterable(finished_parts.newest.items() for finished_parts in found))
        segments = sorted(
            chain.from_iterable(finished_parts.segments for finished_parts in found), key=lambda s: -s.count
        )
        places = dict(chain.from_iterable(finished_parts.places.items() for finished_parts in found))
        return cls(newest, tuple(segments), places)


class SegmentEntry(NamedTuple):
    """A `FinishedSegment` as files have it."""

    path: str
    sha256: str
    parts: int


@dataclass(frozen=True, slots=True)
class FinishedIndex:
    """The index file of `FinishedParts`."""

    parts: Mapping[str, StatedPart]
    segments: tuple[SegmentEntry, ...]
    places: Mapping[str, Mapping[str, Any]]


def _short(found: Members) -> Members:
    """Most parts have no event time, and are written without."""
    return {
        name: {part: each if each[2] is not None or each[3] else each[:2] for part, each in states.items()}
        if name in ("parts", "queues")
        else states
        for name, states in found.items()
    }


# There are no queues in what was written before these were kept.
STATES = DocumentFormat(StatesFile, "states of parts", pack=_short, omits=("queues",), ignores_unknown=True)
# Once there was one file of all finished parts, and no segments.
FINISHED = DocumentFormat(
    FinishedIndex,
    "a list of finished parts",
    pack=_short,
    later={"segments": [], "places": {}},
    ignores_unknown=True,
)


def read_states(storage: Storage, pointer: Pointer) -> dict[PartName, PartState]:
    """The parts in a file of states."""
    return read_stated(storage, pointer)[0]


def read_stated(
    storage: Storage, pointer: Pointer
) -> tuple[dict[PartName, PartState], dict[PartName, PartState]]:
    """The parts in a file of states, and the queues of journals."""
    found = pointer.read(storage, STATES)
    return _states_in(found.parts), _states_in(found.queues)


def _stated(parts: Parts) -> dict[str, StatedPart]:
    return {
        str(name): StatedPart(known.state, known.finished, known.newest, known.idle)
        for name, known in sorted(parts.items())
    }


def _states_in(found: Mapping[str, StatedPart]) -> dict[PartName, PartState]:
    return {PartName.parse(text): PartState(*known) for text, known in found.items()}
