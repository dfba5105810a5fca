"""The scenarios of ``python -m bench gateway``."""

from __future__ import annotations

from bench.gateway import answers, connects, flights, idling, overhead, results
from bench.scenarios import Scenario

SCENARIOS = (
    Scenario("a", "rows that are ready as Arrow, through libpq", results.run),
    Scenario("b", "rows from Parquet to the client, beside Spark's own servers", connects.run),
    Scenario("c", "rows that are ready as Arrow, through Flight", flights.run),
    Scenario("d", "SELECT 1", answers.run),
    Scenario("e", "what is added to Spark: a point query and TPC-H", overhead.run),
    Scenario("f", "memory of idle connections", idling.run),
)
