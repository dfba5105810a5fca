"""A server that the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from servers.postgres import Postgres
from tests.server.pgwire.raw import Raw
from tests.server.waiting import wait_until

if TYPE_CHECKING:
    import psycopg

    from tests.server.pgwire.serving import Serving


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    from tests.server.pgwire.serving import serving

    with serving() as running:
        yield running
        # Whatever the tests did, nothing is left of it.
        wait_until(lambda: running.server.connections == 0 and running.engine.clients == 0)
        assert not running.engine.running
        assert all(connection.closings == 1 for connection in running.engine.connections)


@pytest.fixture
def raw(server: Serving) -> Iterator[Raw]:
    """A client that has come in."""
    with Raw(server.port) as client:
        client.enter()
        yield client


@pytest.fixture(scope="session")
def real_postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL, to compare every byte with."""
    with Postgres() as running:
        yield running.url


@pytest.fixture(scope="module")
def real(real_postgres: str) -> Iterator[psycopg.Connection]:
    import psycopg

    with psycopg.connect(real_postgres, autocommit=True) as connection:
        yield connection
