"""Half-open row ranges: what a partition is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Rows ``begin`` (included) to ``end`` (excluded) of an input."""

    begin: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.end:
            raise ValueError(f"not a row range: [{self.begin}, {self.end})")

    @property
    def rows(self) -> int:
        return self.end - self.begin

    def overlaps(self, other: Range) -> bool:
        return self.begin < other.end and other.begin < self.end

    def __str__(self) -> str:
        return f"{self.begin}-{self.end}"

    @classmethod
    def parse(cls, text: str) -> Range:
        """The inverse of ``str``: ``"0-1000"``."""
        begin, dash, end = text.partition("-")
        if not (dash and begin.isdecimal() and end.isdecimal()):
            raise ValueError(f"not a row range: {text!r} (write it as BEGIN-END, for example 0-100000)")
        return cls(int(begin), int(end))


@dataclass(frozen=True, slots=True, order=True)
class PartitionName:
    """A partition of a run, whose phases each have partitions of their own."""

    phase: int
    range: Range

    def __str__(self) -> str:
        return f"{self.phase}:{self.range}" if self.phase else str(self.range)

    @classmethod
    def parse(cls, text: str) -> PartitionName:
        """The inverse of ``str``: ``"0-1000"`` in the first phase, ``"2:0-1"`` in a later one."""
        phase, colon, rows = text.rpartition(":")
        if colon and not phase.isdecimal():
            raise ValueError(f"not a partition: {text!r} (write it as BEGIN-END or PHASE:BEGIN-END)")
        return cls(int(phase or 0), Range.parse(rows))


def counted(row: int) -> str:
    """A row's number in a message: ranges of rows begin at 0, and so does all that counts rows."""
    return f"row {row} (counted from 0)"
