"""How far an output is: from which epoch to which each of its batches goes, by source.

Spark decides that in its checkpoint, which is not fenced and not in our store. So it is written down here as
well, and a batch that does not join on to the one before is refused: rows would be left out or counted
twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.errors import StreamMismatch


@dataclass(frozen=True, slots=True)
class EpochRange:
    """The epochs that a batch takes of one source.

    After ``start``, up to ``end``. ``final``: there are no more.
    """

    start: int
    end: int
    final: bool = False


@dataclass(frozen=True, slots=True)
class OutputProgress:
    """Where an output is after ``batch``: by source the last epoch, and the sources that have ended."""

    batch: int = -1
    ends: Mapping[str, int] = field(default_factory=dict)
    final: frozenset[str] = frozenset()

    def after(self, batch: int, ranges: Mapping[str, EpochRange], output: str) -> OutputProgress:
        """The same after a batch. A source that is not in it may have an old range, or none.

        `StreamMismatch` if it is neither the next batch nor this one again.
        """
        if self.batch >= 0 and batch not in (self.batch, self.batch + 1):
            raise _mismatch(output, f"batch {batch} comes after batch {self.batch}")
        for source, found in ranges.items():
            known = self.ends.get(source)
            joins = found.end if batch == self.batch else found.start
            if known is not None and known not in (joins, found.end):
                what = f"batch {batch} goes from epoch {found.start} to {found.end} of {source}"
                raise _mismatch(output, f"{what}, and the one before it ended at {known}")
        ends = {**self.ends, **{source: found.end for source, found in ranges.items()}}
        final = self.final | {source for source, found in ranges.items() if found.final}
        return OutputProgress(batch, ends, final)

    def epoch(self, sources: Collection[str]) -> int:
        """The newest epoch of which all sources are in."""
        return min((self.ends.get(source, 0) for source in sources), default=0)

    def is_final(self, sources: Collection[str]) -> bool:
        return self.final >= set(sources)


def _mismatch(output: str, what: str) -> StreamMismatch:
    return StreamMismatch(
        f"output {output} and Spark's checkpoint of it do not fit together: {what}",
        left="nothing was written",
        hint="restore store and storage from one backup, or give the output a new name to compute it anew",
    )
