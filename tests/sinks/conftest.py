"""A store and a storage for each test, and one PostgreSQL for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.storage import Storage
from penstock.store import Store, open_store
from servers.packages import Missing
from servers.postgres import Postgres
from tests.sinks.databases import COLUMNS, Database
from tests.sinks.support import Bench, bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "storage")


@pytest.fixture
def output(store: Store, storage: Storage, spark: SparkSession) -> Bench:
    return bench(store, storage, spark)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server; each test takes a schema of its own."""
    try:
        with Postgres() as server:
            yield server.url
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def database(postgres: str) -> Iterator[Database]:
    made = Database(postgres)
    made.run(f"CREATE TABLE sales ({COLUMNS})")
    yield made
    made.run(f"DROP SCHEMA {made.schema} CASCADE")
