"""What a side has to be able to do: ours, and each peer's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.streams.load import Load


@dataclass(frozen=True, slots=True)
class Steady:
    """A paced input for some ``seconds`` after the first commit; see `Load`."""

    poll: int
    pace: float
    interval: float
    seconds: float

    def load(self, place: Path, workers: int) -> Load:
        return Load.endless(place, poll=self.poll, interval=self.interval, workers=workers, pace=self.pace)


@dataclass(frozen=True, slots=True)
class Rescaling(Steady):
    """The same with so many ``workers``, one number after the other, for some ``seconds`` each."""

    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds from the request to the first committed result of what was polled after it."""

    up: float
    down: float


class Side(Protocol):
    """Each method makes one measurement, and raises if the counts that came out are not the generator's."""

    @property
    def name(self) -> str: ...

    def throughput(self, rows: int, interval: float) -> float:
        """Seconds from the first poll to the commit of the last result, with ``rows`` rows in each part."""
        ...

    def latency(self, steady: Steady) -> list[float]:
        """Seconds from each poll to the commit of its result."""
        ...

    def rescale(self, rescaling: Rescaling) -> dict[str, Pauses]:
        """The pauses, by the way in which this side can be rescaled."""
        ...
