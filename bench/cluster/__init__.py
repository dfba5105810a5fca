"""The scenarios of ``python -m bench cluster``."""

from __future__ import annotations

from bench.cluster.barriers import run as barriers
from bench.cluster.claims import run as claims
from bench.cluster.failover import run as failover
from bench.cluster.moving import run as moving
from bench.scenarios import Scenario

SCENARIOS = (
    Scenario("a", "claims and acks beside PostgreSQL SKIP LOCKED", claims),
    Scenario("b", "barriers of 2, 4 and 8 members", barriers),
    Scenario("c", "fail-over of the leader", failover),
    Scenario("d", "virtual nodes that move when members come and go", moving),
)
