"""Where a slice stands in a journal: how far it was read, and what each producer has left open.

A producer is remembered so that repetitions are known as such. Where many come and go, those with nothing
open that wrote nothing for a day, by the clocks in the journal itself, are forgotten. Of them only one clock
stays, up to which they have committed: see `JournalPosition.forgotten`. A producer that is not known and
comes with a later clock cannot be a repetition, and an ack of it with an earlier one commits nothing. Any
other document of it with an earlier clock may be one or not: it is refused.

Journals that are gone are forgotten in the same way, and of all of a source one clock stays. A journal that
appears after that may be one of them, and begins with this clock: see `JournalPosition.floor`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from penstock.journals.format.uuids import SECOND
from penstock.journals.shuffle.queues.run_files import RunFile
from penstock.journals.shuffle.sequencing.parsing import (
    LARGEST_CLOCK,
    LARGEST_OFFSET,
    bad,
    integer,
    listed,
    versioned,
)
from penstock.journals.shuffle.sequencing.sequencing import Sequence
from penstock.journals.shuffle.visibility.frontier import Mark

_VERSION = 1
_PRODUCER = re.compile(r"[0-9a-f]{12}")
_MANY = 64
"""Up to so many producers, none is forgotten."""
_DAY = 86_400 * SECOND


class Track(NamedTuple):
    """Of one producer: its sequence, and the end of the last line that was read of it."""

    sequence: Sequence = Sequence()
    end: int = 0

    def mark(self, producer: int) -> Mark:
        offset = self.sequence.begin if self.sequence.is_open else -self.end
        return Mark(producer, self.sequence.last_commit, 0, offset)


@dataclass(frozen=True, slots=True)
class Held:
    """A transaction that is committed, and too large to be handed on at once.

    Its documents before the offset ``at`` are in ``files``, up to the clock ``after``. The journal is read on
    when all of them are, and the files are handed on then.
    """

    at: int
    after: int
    files: tuple[RunFile, ...] = ()


def _newest(track: Track) -> int:
    return max(track.sequence.last_commit, track.sequence.max_continue)


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """The state of a journal: everything before ``offset`` was read.

    Of open transactions, nothing was handed on. ``left_out`` are documents that were not handed on because
    they were invalid, ``lost`` are bytes that were skipped because the journal has them no more. ``held`` are
    transactions that are on their way, by producer. Producers that are not known have committed up to the
    clock ``forgotten`` at the most, if they were ever there, and have left nothing open. ``floor`` is the
    clock up to which documents may have been read before, since a journal of this name may have been gone
    and forgotten.
    """

    offset: int = 0
    producers: Mapping[int, Track] = field(default_factory=dict)
    left_out: int = 0
    lost: int = 0
    held: Mapping[int, Held] = field(default_factory=dict)
    forgotten: int = 0
    floor: int = 0

    @property
    def unknown(self) -> int:
        """The clock up to which a producer that is not known may have been read."""
        return max(self.forgotten, self.floor)

    @property
    def greatest(self) -> int:
        """The clock above which no document was ever read."""
        return max(self.clock, self.unknown)

    def sequence(self, producer: int) -> Sequence:
        """Where a producer stands, known or not."""
        known = self.producers.get(producer)
        return Sequence(self.unknown) if known is None else known.sequence

    def without_old_producers(self) -> JournalPosition:
        """The same without producers that need not be remembered, if there are many."""
        if len(self.producers) <= _MANY:
            return self
        horizon = self.clock - _DAY
        old = {
            producer: each.sequence.last_commit
            for producer, each in self.producers.items()
            if not each.sequence.is_open
            and each.sequence.last_commit <= horizon
            and producer not in self.held
        }
        if not old:
            return self
        kept = {producer: each for producer, each in self.producers.items() if producer not in old}
        return replace(self, producers=kept, forgotten=max(self.forgotten, *old.values()))

    def without(self, lost: int) -> JournalPosition:
        """Behind bytes that are gone. What was open is dropped: its ack may have been there."""
        producers = {
            producer: Track(Sequence(each.sequence.last_commit), each.end)
            for producer, each in self.producers.items()
        }
        return replace(self, offset=self.offset + lost, producers=producers, lost=self.lost + lost, held={})

    @property
    def clock(self) -> int:
        """The newest clock that was read: the smaller it is, the further the journal is behind."""
        return max(map(_newest, self.producers.values()), default=0)

    def to_state(self) -> dict[str, Any]:
        producers = {
            f"{producer:012x}": [s.sequence.last_commit, s.sequence.max_continue, s.sequence.begin, s.end]
            for producer, s in sorted(self.producers.items())
        }
        body: dict[str, Any] = {"offset": self.offset, "producers": producers}
        body |= {"left_out": self.left_out, "lost": self.lost}
        if self.forgotten:
            body["forgotten"] = self.forgotten
        if self.floor:
            body["floor"] = self.floor
        if self.held:
            body["held"] = {
                f"{producer:012x}": [each.at, each.after, [file.to_json() for file in each.files]]
                for producer, each in sorted(self.held.items())
            }
        return {"version": _VERSION, **body}

    @classmethod
    def from_state(cls, found: Any) -> Self:
        """What `to_state` gave, None for a journal that was never read; `BadState` for anything else."""
        if found is None:
            return cls()
        keys = {"offset", "producers", "left_out", "lost"}
        keys |= {"held", "forgotten", "floor"} & found.keys() if isinstance(found, dict) else set()
        body = versioned(found, "a position", _VERSION, keys)
        tracks = {producer: _track(entry) for producer, entry in _by_producer(body["producers"])}
        held = {producer: _held(entry) for producer, entry in _by_producer(body.get("held", {}))}
        if not all(producer in tracks and tracks[producer].sequence.is_open for producer in held):
            raise bad("a transaction is held that is not open")
        left_out, lost = (integer(body[name], name, LARGEST_OFFSET) for name in ("left_out", "lost"))
        forgotten, floor = (
            integer(body.get(name, 0), "a clock", LARGEST_CLOCK) for name in ("forgotten", "floor")
        )
        offset = integer(body["offset"], "an offset", LARGEST_OFFSET)
        return cls(offset, tracks, left_out, lost, held, forgotten, floor)


def _by_producer(found: Any) -> Iterator[tuple[int, Any]]:
    if not isinstance(found, dict) or not all(map(_PRODUCER.fullmatch, found)):
        raise bad("the producers of a position are not what they should be")
    return ((int(name, 16), entry) for name, entry in found.items())


def _held(entry: Any) -> Held:
    at, after, files = listed(entry, "what is held of a transaction", 3)
    return Held(
        integer(at, "an offset", LARGEST_OFFSET),
        integer(after, "a clock", LARGEST_CLOCK),
        tuple(RunFile.from_json(file) for file in listed(files, "run files")),
    )


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
