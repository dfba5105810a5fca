"""What parts of sources are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, order=True)
class PartName:
    """A part of a source of a stream."""

    source: str
    part: str

    def __str__(self) -> str:
        return f"{self.source}/{self.part}"

    @classmethod
    def parse(cls, text: str) -> Self:
        source, _, part = text.partition("/")
        return cls(source, part)
