"""A store, some files, and tables over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.config import TableConfig
from penstock.server.base import User
from penstock.server.relations import Provider, Tables
from penstock.sql.statements.classify import classify
from penstock.storage import Storage
from penstock.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADMIN = User("ann", admin=True)
WRITER = User("will", writes=True)
READER = User("rita", schemas=frozenset({"public"}))


class Place:
    """Tables on one store, and the SQL that tests say to them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir()
        self.store: Store = open_store(f"sqlite:///{folder}/store.db")
        self.storage = Storage(folder / "storage")
        self._made: list[Tables] = []

    def tables(self, *configured: TableConfig, providers: Sequence[Provider] = ()) -> Tables:
        roots = [str(self.data), "s3://bucket/open?region=x"]
        made = Tables(self.spark, self.store, self.storage, configured, roots, providers)
        self._made.append(made)
        return made

    def close(self) -> None:
        for made in self._made:
            made.close()
        self.store.close()

    def write(self, name: str, table: pa.Table | None = None) -> Path:
        """A Parquet file below the data folder."""
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table if table is not None else numbers(3), path)
        return path


def numbers(rows: int, begin: int = 0) -> pa.Table:
    return pa.table({"id": range(begin, begin + rows), "name": [f"n{i}" for i in range(begin, begin + rows)]})


def say(tables: Tables, sql: str, user: User = ADMIN, **more: Any) -> list[str]:
    """Carry out a CREATE or DROP."""
    command = classify(sql)
    if command.tag.startswith("DROP"):
        return tables.drop(command, user=user)  # type: ignore[arg-type]
    return tables.create(command, user=user, **more)  # type: ignore[arg-type]


@pytest.fixture
def rows(spark: SparkSession) -> Callable[..., list[tuple[Any, ...]]]:
    """The rows of a relation, read in a session of its own, as clients have them."""
    session = spark.newSession()

    def read(
        tables: Tables, *path: str, user: User = ADMIN, spark: SparkSession = session
    ) -> list[tuple[Any, ...]]:
        relation = tables.find(path, ("public",), user)
        name = relation.bind(spark, "q1")
        try:
            return sorted(map(tuple, spark.sql(f"SELECT * FROM {name}").collect()))
        finally:
            relation.release(spark, "q1")
            assert [t.name for t in spark.catalog.listTables() if t.isTemporary] == []

    return read


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    place = Place(spark, tmp_path)
    yield place
    place.close()
