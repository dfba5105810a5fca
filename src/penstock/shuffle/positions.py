"""Where a slice stands in a journal: how far it was read, and what each producer has left open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from penstock.shuffle.frontier import LARGEST_CLOCK, LARGEST_OFFSET, Mark
from penstock.shuffle.parsing import bad, integer, listed, versioned
from penstock.shuffle.sequencing import Sequence

_VERSION = 1
_PRODUCER = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Track:
    """Of one producer: its sequence, and the end of the last line that was read of it."""

    sequence: Sequence = field(default_factory=Sequence)
    end: int = 0

    def mark(self, producer: int) -> Mark:
        offset = self.sequence.begin if self.sequence.is_open else -self.end
        return Mark(producer, self.sequence.last_commit, 0, offset)


def _newest(track: Track) -> int:
    return max(track.sequence.last_commit, track.sequence.max_continue)


@dataclass(frozen=True, slots=True)
class Position:
    """The state of a journal: everything before ``offset`` was read.

    Of open transactions, nothing was handed on. ``left_out`` are documents that were not handed on because
    they were invalid, ``lost`` are bytes that were skipped because the journal has them no more.
    """

    offset: int = 0
    producers: Mapping[int, Track] = field(default_factory=dict)
    left_out: int = 0
    lost: int = 0

    def without(self, lost: int) -> Position:
        """Behind bytes that are gone. What was open is dropped: its ack may have been there."""
        producers = {
            producer: Track(Sequence(each.sequence.last_commit), each.end)
            for producer, each in self.producers.items()
        }
        return replace(self, offset=self.offset + lost, producers=producers, lost=self.lost + lost)

    @property
    def clock(self) -> int:
        """The newest clock that was read: the smaller it is, the further the journal is behind."""
        return max(map(_newest, self.producers.values()), default=0)

    def to_state(self) -> dict[str, Any]:
        producers = {
            f"{producer:012x}": [s.sequence.last_commit, s.sequence.max_continue, s.sequence.begin, s.end]
            for producer, s in sorted(self.producers.items())
        }
        body = {"offset": self.offset, "producers": producers, "left_out": self.left_out, "lost": self.lost}
        return {"version": _VERSION, **body}

    @classmethod
    def from_state(cls, found: Any) -> Self:
        """What `to_state` gave, None for a journal that was never read; `BadState` for anything else."""
        if found is None:
            return cls()
        body = versioned(found, "a position", _VERSION, {"offset", "producers", "left_out", "lost"})
        producers = body["producers"]
        if not isinstance(producers, dict) or not all(map(_PRODUCER.fullmatch, producers)):
            raise bad("the producers of a position are not what they should be")
        tracks = {int(name, 16): _track(entry) for name, entry in producers.items()}
        counts = (integer(body[name], name, LARGEST_OFFSET) for name in ("left_out", "lost"))
        return cls(integer(body["offset"], "an offset", LARGEST_OFFSET), tracks, *counts)


def _track(entry: Any) -> Track:
    last, most, begin, end = listed(entry, "a producer", 4)
    sequence = Sequence(
        integer(last, "a clock", LARGEST_CLOCK),
        integer(most, "a clock", LARGEST_CLOCK),
        integer(begin, "a begin", LARGEST_OFFSET, -1),
    )
    if sequence.is_open != (sequence.begin >= 0):
        raise bad(f"a transaction is open up to clock {most}, and begins at {begin}")
    return Track(sequence, integer(end, "an end", LARGEST_OFFSET))
