"""The scenarios of ``python -m bench streams``.

Peers import modules of this package in environments of their own, where Penstock is not installed: what the
scenarios need is therefore imported when they run.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from bench.scenarios import Scenario

if TYPE_CHECKING:
    from bench.lab import Lab
    from bench.results import Result


def _scenario(key: str, title: str, module: str, name: str = "run") -> Scenario:
    def run(lab: Lab) -> Iterable[Result]:
        found: Iterable[Result] = getattr(import_module(f"bench.streams.{module}"), name)(lab)
        return found

    return Scenario(key, title, run)


SCENARIOS = (
    _scenario("a", "events per second of a keyed count", "throughput"),
    _scenario("b", "time from poll to committed result", "latency"),
    _scenario("c", "the pause at a rescale", "rescale"),
    _scenario("d", "an epoch without rows", "costs", "idle"),
    _scenario("e", "epochs over many parts", "costs", "growth"),
)
