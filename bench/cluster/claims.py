"""(a) Claim and ack on each store, beside a hand-written queue in PostgreSQL, in the same run.

PostgreSQL is measured both ways: one row for each statement, as queues with SKIP LOCKED are mostly written,
and a batch for each statement. The goals are for our batches against the former.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from bench import claiming
from bench.claiming import Load
from bench.cluster.stores import stores
from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result
from servers.postgres import Postgres

SECONDS = 2.0
PARTITIONS = 100_000
PROCESSES = 4
BATCH = 16
# What a claim and its ack may take in our batches, as a share of what a single one takes in PostgreSQL.
GOALS = {"SQLite": 1 / 5, "etcd, 3 nodes": 1.0}


def run(lab: Lab) -> Iterator[Result]:
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres())
        for name, urls in stores(lab):
            for ours, theirs in ((1, 1), (BATCH, BATCH), (BATCH, 1)):
                yield compare(
                    f"(a) claim + ack, {name} by {ours}, PostgreSQL by {theirs}, {PROCESSES} processes (µs)",
                    lambda u=urls, b=ours: _cost(next(u), b),  # type: ignore[misc]
                    lambda b=theirs: _cost(postgres.url, b),  # type: ignore[misc]
                    repeat=lab.repeat,
                    goal=GOALS.get(name) if ours > theirs else None,
                )


def _cost(target: str, batch: int) -> float:
    """Microseconds for one partition, as all processes together get through them."""
    load = Load(target, PARTITIONS, PROCESSES, batch, SECONDS)
    claiming.prepare(load)
    return 1e6 / claiming.rate(load)
