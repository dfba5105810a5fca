"""The scenarios of ``python -m bench exchange``."""

from __future__ import annotations

from bench.exchange import memory, partitions, resume, skew, steps
from bench.scenarios import Scenario

SCENARIOS = (
    Scenario("a", "group-by, window and join through an exchange", steps.run),
    Scenario("b", "resuming after a kill at 80 % of the reduce side", resume.run),
    Scenario("c", "partitions of the default size, and small ones", partitions.run),
    Scenario("d", "one key with 30 % of the rows", skew.run),
    Scenario("e", "peak memory", memory.run),
)
