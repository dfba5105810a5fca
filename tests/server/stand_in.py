"""An engine without Spark, for tests of the protocols in front of it: statements with known answers."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.errors import SqlError
from penstock.server.base import (
    Client,
    Connection,
    Engine,
    Execution,
    Prepared,
    QueryInfo,
    QueryState,
    Relay,
    TableInfo,
    User,
)
from penstock.server.session_settings import Settings
from penstock.sql.statements.commands import Command
from penstock.types import postgres
from penstock.types.postgres import Column

PEOPLE = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": pa.array(["ann", None, "cid"])})
_SERIES = {"numbers": (10_000, 0), "wide": (2_000, 1000)}
"""How many rows a batch has, and how many characters a text has at least."""
_RELAY = pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", None]})
_FINAL = (QueryState.FINISHED, QueryState.FAILED, QueryState.CANCELED)
_NAMES = ("bool", "bytea", "date", "float8", "int4", "int8", "numeric", "text", "timestamptz", "uuid")
_OIDS = {"int": postgres.INT4} | {name: getattr(postgres, name.upper()) for name in _NAMES}

Rows = Callable[["StandInExecution"], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gives; ``columns`` None for one without rows."""

    rows: Rows
    columns: tuple[Column, ...] | None = None
    parameters: tuple[int, ...] = ()
    notices: tuple[str, ...] = ()
    relayed: bool = False


def answer(schema: pa.Schema, rows: Rows, parameters: tuple[int, ...] = ()) -> Answer:
    return Answer(rows, tuple(postgres.column(f.name, f.type, f.nullable) for f in schema), parameters)


def constant(table: pa.Table, size: int = 1000) -> Answer:
    return answer(table.schema, lambda _: iter(table.to_batches(size)))


@dataclass
class StandIn(Engine):
    """Says what is in ``answers``, by text. Else ``always``, if that is set. Else it knows these::

    SELECT 1 | 'text' | $1::int, $2::text     these values
    SELECT * FROM numbers(N)                  i bigint, t text; N rows, made as they are read
    SELECT * FROM wide(N)                     N rows of 1 KB
    SELECT * FROM slow()                      nothing, until it is cancelled
    SELECT * FROM relay()                     two rows that PostgreSQL has encoded
    SELECT nope | SELECT 1/0 | SELECT bug     errors, the last one that nobody foresaw
    CREATE VIEW …                             done at once
    """

    always: Answer | None = None
    why: str | None = None
    """Why it is not ready."""
    answers: dict[str, Answer | SqlError] = field(
        default_factory=lambda: {"SELECT * FROM people": constant(PEOPLE)}
    )
    listed: list[TableInfo] = field(
        default_factory=lambda: [TableInfo("public", "people", "table", PEOPLE.schema)]
    )
    connections: list[StandInConnection] = field(default_factory=list)
    executions: dict[str, StandInExecution] = field(default_factory=dict)
    canceled: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    started: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """One for each slow() that runs."""
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def clients(self) -> int:
        return sum(not connection.closed for connection in list(self.connections))

    @property
    def running(self) -> list[StandInExecution]:
        return [execution for execution in list(self.executions.values()) if not execution.closed]

    def connect(self, client: Client, settings: Settings) -> Connection:
        connection = StandInConnection(self, client, settings)
        self.connections.append(connection)
        return connection

    def tables(self, user: User) -> Sequence[TableInfo]:
        return [table for table in self.listed if user.may_read(table.schema)]

    def queries(self, user: User) -> Sequence[QueryInfo]:
        infos = [execution.info for execution in list(self.executions.values())]
        return [info for info in reversed(infos) if user.admin or info.user == user.name]

    def cancel(self, query: str, user: User) -> bool:
        found = [info for info in self.queries(user) if info.id == query and not info.ended]
        for info in found:
            self.executions[info.id].cancel()
        return bool(found)

    def ready(self) -> str | None:
        return self.why


class StandInConnection(Connection):
    def __init__(self, engine: StandIn, client: Client, settings: Settings) -> None:
        self.engine = engine
        self.client = client
        self.settings = settings
        self.closings = 0

    @property
    def closed(self) -> bool:
        return self.closings > 0

    def prepare(
        self,
        sql: str,
        parameters: Sequence[int] = (),
        *,
        exact: bool = False,
        command: Command | None = None,
    ) -> Prepared:
        text = " ".join(sql.split())
        found = self.engine.answers.get(text)
        if isinstance(found, SqlError):
            raise found
        if found is None and text.upper().startswith("CREATE VIEW"):
            found = self._creation(text)
        found = found or self.engine.always or _known(sql, text, parameters)
        tag = "CREATE VIEW" if found.columns is None else "SELECT"
        return Prepared(sql, tag, found.parameters, found.columns, found)

    def _creation(self, text: str) -> Answer:
        if not self.client.user.may_write("public"):
            raise SqlError("permission denied for schema public", sqlstate="42501")

        def create(execution: StandInExecution) -> Iterator[pa.RecordBatch]:
            execution.engine.created.append(text)
            return iter(())

        return Answer(create, notices=("a view was made",))

    def execute(self, prepared: Prepared, parameters: Sequence[object] = ()) -> Execution:
        assert isinstance(prepared.plan, Answer)
        kind = StandInRelay if prepared.plan.relayed else StandInExecution
        return kind(self, prepared, prepared.plan, list(parameters))

    def close(self) -> None:
        self.closings += 1


class StandInExecution(Execution):
    def __init__(
        self, connection: StandInConnection, prepared: Prepared, answer: Answer, values: list[object]
    ) -> None:
        self.engine = connection.engine
        self.settings = connection.settings
        self.id = f"q{next(self.engine.ids)}"
        self.tag = prepared.tag
        self.columns = prepared.columns
        self.notices = answer.notices
        self.answer = answer
        self.values = values
        self.cancelled = threading.Event()
        self.why = ""
        """Why it was cancelled."""
        self.closed = False
        self.pulled = 0
        who = connection.client
        told = (who.user.name, who.protocol, who.address, who.application, prepared.sql)
        self.info = QueryInfo(self.id, *told, QueryState.QUEUED, time.time())
        self.engine.executions[self.id] = self

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._move(QueryState.RUNNING)
        try:
            for batch in self.answer.rows(self):
                self._check()
                self.pulled += 1
                size = self.info.bytes + batch.nbytes
                self.info = replace(self.info, rows=self.info.rows + batch.num_rows, bytes=size)
                yield batch
            self._check()
        except SqlError as error:
            self._move(QueryState.CANCELED if error.sqlstate == "57014" else QueryState.FAILED, error)
            raise
        self._move(QueryState.FINISHED)

    def cancel(self, why: str = "canceling statement due to user request") -> None:
        self.engine.canceled.append(why)
        self.why = why
        self.cancelled.set()

    def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise SqlError(self.why, sqlstate="57014")

    def _move(self, state: QueryState, error: SqlError | None = None) -> None:
        what, sqlstate = (error.what, error.sqlstate) if error else (None, None)
        ended = time.time() if state in _FINAL else None
        self.info = replace(self.info, state=state, ended=ended, error=what, sqlstate=sqlstate)


class StandInRelay(StandInExecution, Relay):
    def rows(self, *, binary: bool) -> Iterator[Sequence[Sequence[bytes | None]]]:
        yield [[b"\0\0\0\1" if binary else b"1", b"x"]]
        yield [[b"\0\0\0\2" if binary else b"2", None]]


# the statements that it knows by itself


def _known(sql: str, text: str, given: Sequence[int]) -> Answer:
    if "nope" in text:
        raise SqlError('column "nope" does not exist', sqlstate="42703", position=sql.index("nope"))
    if text == "SELECT bug":
        raise RuntimeError("nobody foresaw this")
    if match := re.fullmatch(r"SELECT \* FROM (\w+)\((\d*)\)(?: WHERE i > (\$1))?", text, re.IGNORECASE):
        return _called(match[1], int(match[2] or 0), (postgres.INT8,) if match[3] else ())
    if match := re.fullmatch(r"SELECT (.*)", text, re.IGNORECASE):
        return _values(match[1].split(", "), given)
    raise SqlError(f"there is no answer to {sql}", sqlstate="42601", position=0, hint="ask another")


def _called(name: str, count: int, parameters: tuple[int, ...]) -> Answer:
    if name == "relay":
        return replace(constant(_RELAY), relayed=True)
    schema = pa.schema([("i", pa.int64()), ("t", pa.string())])
    if name == "slow":
        return answer(schema, _slow)
    if name not in _SERIES:
        raise SqlError(f'relation "{name}" does not exist', sqlstate="42P01", position=14)
    return answer(schema, lambda execution: _series(execution, count, *_SERIES[name]), parameters)


def _slow(execution: StandInExecution) -> Iterator[pa.RecordBatch]:
    execution.engine.started.release()
    execution.cancelled.wait(30)
    return iter(())


def _series(execution: StandInExecution, count: int, size: int, padding: int) -> Iterator[pa.RecordBatch]:
    above = int(str(execution.values[0])) + 1 if execution.values else 0
    for start in range(above, count, size):
        numbers = range(start, min(count, start + size))
        texts = [f"n{number}".ljust(padding, ".") for number in numbers]
        yield pa.record_batch({"i": pa.array(numbers, pa.int64()), "t": texts})


def _values(items: Sequence[str], given: Sequence[int]) -> Answer:
    oids: dict[int, int] = {}
    columns: list[Column] = []
    for item in items:
        text, kind = _typed(item)
        if text.startswith("$"):
            number = int(text[1:])
            oids[number] = oid = _at(given, number) or _OIDS.get(kind, postgres.TEXT)
            columns.append(Column("?column?", postgres.arrow_type(oid), oid))
        else:
            whole = text == "1/0" or text.lstrip("-").isdigit()
            columns.append(postgres.column("?column?", pa.int32() if whole else pa.string()))
    parameters = tuple(oids[number] for number in sorted(oids))
    return Answer(lambda execution: _row(execution, items), tuple(columns), parameters)


def _typed(item: str) -> tuple[str, str]:
    """The text of a value, and the type that it is cast to."""
    cast = re.fullmatch(r"CAST\(\((.*)\) AS .*\)", item)
    text, _, kind = (cast[1], "", "text") if cast else item.partition("::")
    return text, kind


def _at(given: Sequence[int], number: int) -> int:
    return given[number - 1] if number <= len(given) else 0


def _row(execution: StandInExecution, items: Sequence[str]) -> Iterator[pa.RecordBatch]:
    arrays = []
    for column, (text, _) in zip(execution.columns or (), map(_typed, items), strict=True):
        if text == "1/0":
            raise SqlError("division by zero", sqlstate="22012")
        value = execution.values[int(text[1:]) - 1] if text.startswith("$") else text.strip("'")
        arrays.append(pa.array([_as(column, value)], column.type))
    yield pa.RecordBatch.from_arrays(arrays, names=[f"c{n}" for n in range(len(arrays))])


def _as(column: Column, value: object) -> object:
    if column.oid == postgres.INT4 and isinstance(value, str):
        return int(value)
    return str(value) if pa.types.is_string(column.type) and value is not None else value
