"""(a) Claim and ack on each store, beside a hand-written queue in PostgreSQL, in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

from bench import claiming
from bench.claiming import Load
from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result
from servers.etcd import EtcdCluster
from servers.postgres import Postgres

SECONDS = 3.0
PARTITIONS = 200_000
PROCESSES = 4
BATCHES = (1, 16)
# What a claim and its ack may take, as a share of what PostgreSQL takes with batches of the same size.
GOALS = {("SQLite", 16): 1 / 5, ("etcd \u00d7 3", 16): 1.0}

Target = Callable[[], str]


def run(lab: Lab) -> Iterator[Result]:
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres())
        for name, target in _targets(lab, stack):
            for batch in BATCHES:
                yield compare(
                    f"(a) claim + ack, {name}, {batch} at a time, {PROCESSES} processes (\u00b5s)",
                    lambda t=target, b=batch: _cost(t(), b),  # type: ignore[misc]
                    lambda b=batch: _cost(postgres.url, b),  # type: ignore[misc]
                    repeat=lab.repeat,
                    goal=GOALS.get((name, batch)),
                )


def _targets(lab: Lab, stack: ExitStack) -> Iterator[tuple[str, Target]]:
    """Each store with a function that names an empty one; servers run only while they are measured."""
    yield "SQLite", lambda: stack.enter_context(lab.place("claims")).store
    for size in (1, 3):
        numbers = count()
        with EtcdCluster(size) as cluster:
            hosts = ",".join(cluster.endpoints)
            yield f"etcd \u00d7 {size}", lambda h=hosts, n=numbers: f"etcd://{h}/bench{next(n)}"  # type: ignore[misc]


def _cost(target: str, batch: int) -> float:
    """Microseconds for one partition, as all processes together get through them."""
    load = Load(target, PARTITIONS, PROCESSES, batch, SECONDS)
    claiming.prepare(load)
    return 1e6 / claiming.rate(load)
