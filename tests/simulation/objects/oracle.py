"""Whether what processes did and saw can have happened one thing after the other, on one plain document.

Versions say in which order writes were made, so there is no order to search for: it is enough to see that it
fits the times at which calls began and ended, what each write expected, and what was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class Write:
    """A compare-and-set. Its value is its own, so that whoever reads it knows the write."""

    who: str
    expected: int
    value: bytes | None
    begin: float
    end: float = inf
    version: int | None = None
    refused: bool = False

    def __str__(self) -> str:
        outcome = "refused" if self.refused else self.version
        return f"{self.who} {self.expected}->{self.value!r} at {self.begin:.3f}..{self.end:.3f}: {outcome}"


@dataclass(frozen=True, slots=True)
class Read:
    """What a call saw of the document; version 0 for that it does not exist."""

    who: str
    version: int
    value: bytes | None
    begin: float
    end: float


@dataclass(slots=True)
class Log:
    """All that happened to one document."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)

    def faults(self) -> Iterator[str]:
        """What cannot have happened."""
        by_value = {write.value: write for write in self.writes if write.value is not None}
        for read in self.reads:
            if read.value is not None:
                yield from _recognise(read, by_value.get(read.value))
        order = sorted((w for w in self.writes if w.version is not None), key=lambda w: w.version or 0)
        yield from self._misfits(order)
        yield from _time_travel(order)
        for each in self.reads:
            moments = _moments(order, each.begin, each.end)
            if not any(each.version in self._states(order, made) for made in moments):
                yield f"{each} was not so at any moment"
        for write in self.writes:
            if write.refused and not self._may_refuse(order, write):
                yield f"[{write}] was refused, and had nothing against it"

    def _misfits(self, order: Sequence[Write]) -> Iterator[str]:
        before: Write | None = None
        for write in order:
            if before is not None and before.version == write.version:
                yield f"[{before}] and [{write}] made the same version"
            stands = before.version if before is not None and before.value is not None else 0
            if write.expected != stands and not (write.expected == 0 and self._perhaps_deleted(before)):
                yield f"[{write}] was made after [{before}]"
            before = write

    def _perhaps_deleted(self, write: Write | None) -> bool:
        """Whether somebody deleted that version without ever hearing so."""
        return write is not None and any(
            w.expected == write.version and w.value is None and w.version is None and not w.refused
            for w in self.writes
        )

    def _states(self, order: Sequence[Write], made: int) -> set[int]:
        """At which versions the document may be after the first ``made`` writes; 0 where there is none."""
        last = order[made - 1] if made else None
        if last is None or last.value is None:
            return {0}
        return {last.version or 0, 0} if self._perhaps_deleted(last) else {last.version or 0}

    def _may_refuse(self, order: Sequence[Write], write: Write) -> bool:
        moments = _moments(order, write.begin, write.end)
        if any(self._states(order, made) - {write.expected} for made in moments):
            return True
        # Somebody's write may have been made although nobody ever saw it.
        return any(w.version is None and not w.refused and w.begin < write.end for w in self.writes)


def _recognise(read: Read, write: Write | None) -> Iterator[str]:
    if write is None:
        yield f"{read} is of nobody"
    elif write.refused:
        yield f"{read} is what was refused: [{write}]"
    elif write.version is None:
        write.version = read.version
    elif write.version != read.version:
        yield f"{read} is [{write}] under another version"


def _time_travel(order: Sequence[Write]) -> Iterator[str]:
    latest = -inf
    for write in order:
        if write.end < latest:
            yield f"[{write}] ended before another one began that has a lower version"
        latest = max(latest, write.begin)


def _moments(order: Sequence[Write], begin: float, end: float) -> range:
    """How many writes may have been made at some moment between ``begin`` and ``end``."""
    least = max((i + 1 for i, write in enumerate(order) if write.end < begin), default=0)
    most = min((i for i, write in enumerate(order) if write.begin > end), default=len(order))
    return range(least, max(least, most) + 1)
