"""A real PostgreSQL and ours, with the same tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from servers.postgres import Postgres
from tests.server.serve import Serve
from tests.sql.generated import data
from tests.sql.generated.comparison import Comparison, Counts, Server
from tests.sql.generated.grammar import statements
from tests.sql.generated.known import known

if TYPE_CHECKING:
    from pathlib import Path

CONNECTIONS = 3
"""Plans are made by one thread for each statement: some at once keep two cores busy."""


@dataclass(frozen=True, slots=True)
class Both:
    """Connects to either."""

    postgres: str
    serve: Serve

    def compared(self, seed: int, count: int) -> Counts:
        """The first ``count`` statements of a seed."""
        with psycopg.connect(self.postgres, autocommit=True) as theirs, self.serve.connect() as ours:
            return Comparison(Server(theirs), Server(ours), known).run(statements(seed), count)

    def all(self, seeds: Sequence[int], count: int, told: Callable[[int, Counts], object]) -> list[Counts]:
        """Those of several seeds, some at once."""

        def one(seed: int) -> Counts:
            counts = self.compared(seed, count)
            told(seed, counts)
            return counts

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            return list(pool.map(one, seeds))


@contextmanager
def both(folder: Path) -> Iterator[Both]:
    data.write(folder)
    serve = Serve(folder, "--port", "0", "--web-port", "0", "--rpc-port", "0")
    try:
        with Postgres() as postgres:
            with psycopg.connect(postgres.url, autocommit=True) as theirs:
                data.create(theirs)
            serve.wait_for("ready")
            yield Both(postgres.url, serve)
    finally:
        serve.stop()
