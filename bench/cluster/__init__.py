"""The scenarios of ``python -m bench cluster``."""

from __future__ import annotations

from bench.cluster import barriers, claims, failover, moving
from bench.scenarios import Scenario

SCENARIOS = (
    Scenario("a", "claims and acks beside PostgreSQL SKIP LOCKED", claims.run),
    Scenario("b", "barriers of 2, 4 and 8 members", barriers.run),
    Scenario("c", "fail-over of the leader", failover.run),
    Scenario("d", "virtual nodes that move when members come and go", moving.run),
)
