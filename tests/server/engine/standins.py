"""Tables and a shadow catalog that a test can hold in its hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import SqlError
from penstock.server.base import Client, Execution, Relay, TableInfo, User
from penstock.server.engine.connection import SparkConnection
from penstock.server.engine.engine import SparkEngine
from penstock.server.session_settings import Settings
from penstock.types import postgres as pg
from penstock.types.postgres import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANN = User("ann", writes=True)
ADMIN = User("root", admin=True)


@dataclass(frozen=True, slots=True)
class FileRelation:
    """A Parquet file, as a temporary view of the session that asks."""

    schema: str
    name: str
    path: str
    columns: pa.Schema
    spark_columns: Mapping[str, str]
    kind: str = "table"

    def bind(self, spark: SparkSession, query: str) -> str:
        name = f"standin_{self.schema}_{self.name}"
        # Without its columns Spark would look into the file with a job, which waits if cores are held.
        columns = ", ".join(f"`{column}` {kind}" for column, kind in self.spark_columns.items())
        spark.read.schema(columns).parquet(self.path).createOrReplaceTempView(name)
        return name

    def release(self, spark: SparkSession, query: str) -> None: ...


@dataclass
class FileTables:
    spark: SparkSession
    folder: Path
    version: int = 1
    relations: dict[tuple[str, str], FileRelation] = field(default_factory=dict)
    changes: list[tuple[Any, Sequence[str]]] = field(default_factory=list)

    def add(self, name: str, table: pa.Table, schema: str = "public") -> None:
        path = self.folder / f"{schema}.{name}.parquet"
        pq.write_table(table, path)
        types = {f.name: f.dataType.simpleString() for f in self.spark.read.parquet(str(path)).schema.fields}
        self.relations[schema, name] = FileRelation(schema, name, str(path), table.schema, types)
        self.version += 1

    def find(self, path: tuple[str, ...], search_path: Sequence[str], user: User) -> FileRelation:
        schemas = [path[-2]] if len(path) > 1 else list(search_path)
        for schema in schemas:
            if found := self.relations.get((schema, path[-1])):
                if not user.may_read(schema):
                    raise SqlError(f"permission denied for schema {schema}", sqlstate="42501")
                return found
        raise SqlError(f'relation "{".".join(path)}" does not exist', sqlstate="42P01")

    def listed(self, user: User) -> list[TableInfo]:
        return [TableInfo(r.schema, r.name, r.kind, r.columns) for r in self.relations.values()]

    def schemas(self, user: User) -> list[str]:
        return sorted({schema for schema, _ in self.relations})

    def function(self, name: str, arguments: Sequence[str], user: User) -> FileRelation:
        return self.relations["public", arguments[0]]

    def create(
        self,
        command: Any,
        *,
        user: User,
        search_path: Sequence[str],
        columns: Sequence[str],
        dialect: str,
    ) -> list[str]:
        if not user.may_write("public"):
            raise SqlError("permission denied for schema public", sqlstate="42501")
        self.changes.append((command, columns))
        self.version += 1
        return ["done"]

    def drop(self, command: Any, *, user: User, search_path: Sequence[str]) -> list[str]:
        self.changes.append((command, ()))
        self.version += 1
        return []


@dataclass(frozen=True, slots=True)
class Description:
    parameters: tuple[int, ...]
    columns: tuple[Column, ...] | None


class Answer(Relay):
    """What the shadow says."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.id, self.tag, self.columns = "shadow", "SELECT", columns

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"answer": ["of the shadow"]})

    def rows(self, *, binary: bool) -> Iterator[Sequence[Sequence[bytes | None]]]:
        yield [[b"of the shadow"]]

    def cancel(self, why: str = "") -> None: ...

    def close(self) -> None: ...


@dataclass
class FixedShadow:
    """Describes what it was told; refuses everything else as PostgreSQL refuses what it cannot read."""

    problem: str | None = None
    known: dict[str, Description] = field(default_factory=dict)
    errors: dict[str, SqlError] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    synced: list[list[str]] = field(default_factory=list)

    def describe(self, sql: str, parameters: Sequence[int], user: User, settings: Settings) -> Description:
        self.asked.append(sql)
        if sql in self.errors:
            raise self.errors[sql]
        if sql not in self.known:
            raise SqlError("syntax error", sqlstate="42601", position=0)
        return self.known[sql]

    def run(
        self,
        sql: str,
        parameters: Sequence[int],
        values: Sequence[object],
        user: User,
        settings: Settings,
        columns: tuple[Column, ...],
        *,
        exact: bool = False,
    ) -> Relay:
        return Answer(columns)

    def sync(self, tables: Sequence[TableInfo], users: Sequence[User], schemas: Sequence[str]) -> None:
        self.synced.append([table.name for table in tables])


def connected(
    engine: SparkEngine,
    user: User = ANN,
    settings: Mapping[str, str] | None = None,
    protocol: str = "pgwire",
) -> SparkConnection:
    return engine.connect(Client(user, protocol), Settings(settings or {}))


def pulled(execution: Execution) -> pa.Table:
    """All rows, and the columns that they have in the end."""
    batches = list(execution.batches())
    schema = pa.schema([pa.field(c.name, c.type) for c in execution.columns or ()])
    execution.close()
    return pa.Table.from_batches(batches, schema)


def rows(
    connection: SparkConnection, sql: str, *values: object, oids: Sequence[int] = ()
) -> list[tuple[Any, ...]]:
    """What a statement gives, as Python has it."""
    table = pulled(connection.execute(connection.prepare(sql, oids), values))
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


def text(name: str) -> Column:
    return Column(name, pa.string(), pg.TEXT)
