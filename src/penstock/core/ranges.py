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


def counted(row: int) -> str:
    """A row's number in a message: ranges of rows begin at 0, and so does all that counts rows."""
    return f"row {row} (counted from 0)"
