"""Journals that hold others up: acks that do not come, and lines that do not end. People are told of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.config import shown_url
from penstock.errors import HintNotReached, LineUnfinished
from penstock.sources.base import PartName
from penstock.sources.journals import JournalSource

_NAMED = 5
_RECENTLY = 10.0

Stalled = tuple[str, int, int, float]
"""A journal, a producer, the clock of the ack that is awaited, and for how many seconds."""


def check_acks(
    sources: Mapping[str, JournalSource], stalled: Collection[Stalled], known: Collection[PartName]
) -> None:
    """Raise `HintNotReached` if there are acks that others wait for in vain.

    ``known`` are the parts that the stream has: whether a journal is there is not looked up here, since the
    storage may be what keeps it from being read.
    """
    if not stalled:
        return
    named = [
        f"{journal.partition('/')[2]} (producer {producer:012x}, clock {clock})"
        for journal, producer, clock, _ in sorted(stalled)
    ]
    raise HintNotReached(
        f"transactions wait for acks that were not read yet: {_some(named)}; "
        f"{_way_out(sources, min(stalled), known)}",
        left="their documents, and what was read after them, are kept and not visible yet",
        hint="look whether these journals are there, and whether their writers live; a source that "
        "reads them from their begin may also just be behind (`penstock journal frontier`)",
    )


def _way_out(sources: Mapping[str, JournalSource], awaited: Stalled, known: Collection[PartName]) -> str:
    """What a person can type to write an ack that nobody else will."""
    journal, producer, clock, _ = awaited
    part = PartName.parse(journal)
    root, name = shown_url(sources[part.source].journals.root), part.part
    command = f"penstock journal ack {root} {name} --producer {producer:012x} --clock {clock}"
    if part not in known:
        return (
            f"the stream has no journal {name}; put it back, or, if no other stream remembers how far it has "
            f"read it, go on without its documents: {command} --create"
        )
    return (
        f"if a writer is gone that should send one: {command}; if the journal is gone, put it back, or go on "
        "without its documents: the same with --create --at OFFSET, which is how far the stream has read it"
    )


class UnfinishedLines:
    """The journals of one instance that end in the middle of a line."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lines: dict[PartName, tuple[int, float, float]] = {}
        """Where the line begins, since when, and when that was seen last."""

    def keep(self, journals: Collection[PartName]) -> None:
        """Forget other journals than these."""
        self._lines = {name: each for name, each in self._lines.items() if name in journals}

    def heard(self, asked: Collection[PartName], unfinished: Mapping[PartName, int]) -> None:
        """Take note of the lines without an end in journals that were ``asked``, and where they begin."""
        known, now = self._lines, self._clock()
        found = {
            name: (offset, known[name][1] if name in known and known[name][0] == offset else now, now)
            for name, offset in unfinished.items()
        }
        # Of those that were not asked, nothing new is known.
        self._lines = {name: each for name, each in known.items() if name not in asked} | found

    def check(self, patience: float) -> None:
        """Raise `LineUnfinished` if a line has had no end for that many seconds."""
        now = self._clock()
        # Where nothing is read for lack of room, nobody knows whether the end is there by now.
        recently = now - max(patience, _RECENTLY)
        named = [
            f"{name.part} (offset {offset})"
            for name, (offset, since, seen) in list(self._lines.items())
            if since <= now - patience and seen >= recently
        ]
        if named:
            raise LineUnfinished(
                f"journals end in the middle of a line: {_some(sorted(named))}",
                left="what comes before that line is read, and it is when its end is there",
                hint="look whether their writers live; `penstock journal verify` shows what else is wrong",
            )


def _some(named: Sequence[str]) -> str:
    more = f", and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return ", ".join(named[:_NAMED]) + more
