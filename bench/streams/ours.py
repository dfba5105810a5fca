"""Our side of the comparison."""

from __future__ import annotations

from dataclasses import dataclass

from bench.lab import Lab
from bench.streams.sides import Pauses, Rescaling, Steady


@dataclass(frozen=True, slots=True)
class Ours:
    lab: Lab
    name: str = "Penstock"

    def throughput(self, rows: int, interval: float) -> float:
        raise NotImplementedError

    def latency(self, steady: Steady) -> list[float]:
        raise NotImplementedError

    def rescale(self, rescaling: Rescaling) -> dict[str, Pauses]:
        raise NotImplementedError
