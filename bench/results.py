"""One comparison as numbers: medians of both sides, their ratio, its spread and the goal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured under ``name``, which says the unit.

    ``ours`` and ``peer`` are medians, ``ratio`` is the one divided by the other, and ``spread`` holds
    the least and the greatest ratio of any two measurements that were taken one after the other.
    ``goal`` is the most that the ratio may be; where there is none, nothing has to hold.
    """

    name: str
    ours: float
    peer: float
    ratio: float
    spread: tuple[float, float]
    goal: float | None
    holds: bool | None

    @classmethod
    def of(cls, name: str, ours: Sequence[float], peer: Sequence[float], goal: float | None = None) -> Result:
        """From measurements in the order in which they were taken: ours, peer, ours, peer, …"""
        if not ours or len(ours) != len(peer):
            raise ValueError(f"{name}: {len(ours)} measurements of ours and {len(peer)} of the peer's")
        ratios = [divided(a, b) for a, b in zip(ours, peer, strict=True)]
        mid, other = median(ours), median(peer)
        ratio = divided(mid, other)
        holds = None if goal is None else ratio <= goal
        return cls(name, mid, other, ratio, (min(ratios), max(ratios)), goal, holds)

    def to_json(self) -> dict[str, Any]:
        rounded = {k: significant(v) for k, v in asdict(self).items() if isinstance(v, float)}
        return {**asdict(self), **rounded, "spread": [significant(v) for v in self.spread]}


def divided(ours: float, peer: float) -> float:
    """The ratio; of nothing to nothing it is 1, since both sides did the same."""
    if peer:
        return ours / peer
    return math.inf if ours else 1.0


def significant(value: float, digits: int = 4) -> float | None:
    """The value as far as a measurement can know it. JSON has no infinity: that becomes None."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
