"""The scenarios of ``python -m bench batch``."""

from __future__ import annotations

from bench.batch import checkpoints, claims, memory, overhead, resume, startup
from bench.scenarios import Scenario

SCENARIOS = (
    Scenario("a", "the runner without checkpoints", overhead.run),
    Scenario("b", "a checkpoint after every stage", checkpoints.run),
    Scenario("c", "resuming after a kill at 80 %", resume.run),
    Scenario("d", "claims and acks", claims.run),
    Scenario("e", "start-up of the command line", startup.run),
    Scenario("f", "peak memory of the driver", memory.run),
)
