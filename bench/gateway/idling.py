"""(f) Memory of connections that have asked once and say nothing more, beside PostgreSQL's backends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench import procfs
from bench.gateway.clients import Libpq
from bench.gateway.processes import stored
from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result
from servers.postgres import Postgres

CONNECTIONS = 500
BEFORE = 100
"""Connections that are there already: they fill what the start of the server has left free."""
_SETTLED = 12.0
"""Seconds after which threads that have nothing to do have ended."""
_KILOBYTE = 1_000


def run(lab: Lab) -> Iterator[Result]:
    with Postgres([f"max_connections={CONNECTIONS + 10}"]) as postgres:
        yield compare(
            f"(f) memory of each of {CONNECTIONS} idle connections ÷ PostgreSQL (KB)",
            lambda: ours(lab),
            lambda: theirs(postgres.url),
            repeat=lab.repeat,
            warm_up=False,
        )


def ours(lab: Lab) -> float:
    """By how much a server grows that has no rows. A new one each time: memory is reused."""
    with lab.place("idle") as place, stored(lab, place, "idle") as server, ExitStack() as clients:
        _opened(clients, server.url, BEFORE)
        time.sleep(_SETTLED)
        before = procfs.proportional(server.pid)
        _opened(clients, server.url, CONNECTIONS)
        time.sleep(_SETTLED)
        return (procfs.proportional(server.pid) - before) / CONNECTIONS / _KILOBYTE


def theirs(url: str) -> float:
    with ExitStack() as clients:
        opened = _opened(clients, url, CONNECTIONS)
        backends = [client.connection.backend_pid for client in opened]
        return sum(map(procfs.proportional, backends)) / CONNECTIONS / _KILOBYTE


def _opened(clients: ExitStack, url: str, count: int) -> list[Libpq]:
    opened = [clients.enter_context(Libpq(url)) for _ in range(count)]
    for client in opened:
        client.ask("SELECT 1")
    return opened
