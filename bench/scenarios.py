"""What a scenario is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.lab import Lab
from bench.results import Result


@dataclass(frozen=True, slots=True)
class Scenario:
    """Something to measure; ``key`` is what ``--only`` calls it."""

    key: str
    title: str
    run: Callable[[Lab], Iterable[Result]]
