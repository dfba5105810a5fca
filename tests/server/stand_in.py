"""An engine without Spark, for tests of what stands in front of it: a few statements with known answers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from penstock.errors import SqlError
from penstock.server.base import Client, Connection, Engine, Execution, Prepared, QueryInfo, TableInfo, User
from penstock.server.session_settings import Settings
from penstock.types import postgres

PEOPLE = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": pa.array(["ann", None, "cid"])})

Answer = Callable[[Sequence[object]], Iterator[pa.RecordBatch]]


def constant(table: pa.Table) -> Answer:
    return lambda _: iter(table.to_batches())


class StandIn(Engine):
    """Answers what is in ``answers``: by text, its parameters, its columns, and what makes the rows."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[tuple[int, ...], pa.Schema | None, Answer]] = {}
        self.listed = [TableInfo("public", "people", "table", PEOPLE.schema)]
        self.running: list[StandInExecution] = []
        self.connections: list[StandInConnection] = []
        self.add("SELECT * FROM people", PEOPLE)

    def add(self, sql: str, table: pa.Table) -> None:
        self.answers[sql] = ((), table.schema, constant(table))

    def connect(self, client: Client, settings: Settings) -> Connection:
        connection = StandInConnection(self, client, settings)
        self.connections.append(connection)
        return connection

    def tables(self, user: User) -> Sequence[TableInfo]:
        return [table for table in self.listed if user.may_read(table.schema)]

    def queries(self, user: User) -> Sequence[QueryInfo]:
        return []

    def cancel(self, query: str, user: User) -> bool:
        found = [execution for execution in self.running if execution.id == query]
        for execution in found:
            execution.cancel()
        return bool(found)

    def ready(self) -> str | None:
        return None


class StandInConnection(Connection):
    def __init__(self, engine: StandIn, client: Client, settings: Settings) -> None:
        self.engine = engine
        self.client = client
        self.settings = settings
        self.closed = False

    def prepare(self, sql: str, parameters: Sequence[int] = (), *, exact: bool = False) -> Prepared:
        if sql not in self.engine.answers:
            raise SqlError(f"there is no answer to {sql}", sqlstate="42601", position=0, hint="ask another")
        oids, schema, _ = self.engine.answers[sql]
        columns = (
            None if schema is None else tuple(postgres.column(f.name, f.type, f.nullable) for f in schema)
        )
        return Prepared(sql, "SELECT" if schema is not None else "CREATE VIEW", oids, columns)

    def execute(self, prepared: Prepared, parameters: Sequence[object] = ()) -> Execution:
        return StandInExecution(self.engine, prepared, parameters)

    def close(self) -> None:
        self.closed = True


class StandInExecution(Execution):
    _numbers = itertools.count(1)

    def __init__(self, engine: StandIn, prepared: Prepared, parameters: Sequence[object]) -> None:
        self.id = f"q{next(self._numbers)}"
        self.tag = prepared.tag
        self.columns = prepared.columns
        self.cancelled = threading.Event()
        self.closed = False
        self._engine = engine
        self._rows = engine.answers[prepared.sql][2](parameters)
        engine.running.append(self)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows:
            if self.cancelled.is_set():
                raise SqlError("canceling statement due to user request", sqlstate="57014")
            yield batch
        if self.cancelled.is_set():
            raise SqlError("canceling statement due to user request", sqlstate="57014")

    def cancel(self, why: str = "canceling statement due to user request") -> None:
        self.cancelled.set()

    def close(self) -> None:
        self.closed = True
        self.cancelled.set()
        if self in self._engine.running:
            self._engine.running.remove(self)
