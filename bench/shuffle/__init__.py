"""The scenarios of ``python -m bench shuffle``."""

from __future__ import annotations

from bench.scenarios import Scenario
from bench.shuffle import caps, journals, reread, throughput

SCENARIOS = (
    Scenario("a", "documents per second, from journals to committed queues", throughput.run),
    Scenario("b", "documents in many journals", journals.run),
    Scenario("c", "peak memory with large transactions, and disk against its cap", caps.run),
    Scenario("d", "bytes that are read again after a kill", reread.run),
)
