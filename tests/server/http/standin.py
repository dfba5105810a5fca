"""An engine of Arrow tables, and a client that speaks HTTP through the standard library."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
    TableInfo,
    User,
)
from penstock.server.session_settings import Settings
from penstock.types import postgres
from penstock.types.postgres import Column

NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("name", pa.string())])


class Work(Execution):
    def __init__(
        self, engine: StandIn, connection: StandInConnection, prepared: Prepared, values: Any
    ) -> None:
        client = connection.client
        self.id = f"q{next(engine.ids)}"
        self.tag = prepared.tag
        self.columns = prepared.columns
        self.values = values
        self.settings = connection.settings
        self.cancelled = threading.Event()
        self.closed = False
        self.pulled = 0
        self._engine = engine
        info = QueryInfo(
            self.id,
            client.user.name,
            client.protocol,
            client.address,
            client.application,
            prepared.sql,
            QueryState.QUEUED,
            time.time(),
        )
        engine.works[self.id] = self
        engine.infos[self.id] = info

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._move(QueryState.RUNNING)
        try:
            for batch in self._engine.answer(self):
                if self.cancelled.is_set():
                    raise SqlError("canceling statement due to user request", sqlstate="57014")
                self.pulled += 1
                info = self._engine.infos[self.id]
                grown = replace(info, rows=info.rows + batch.num_rows, bytes=info.bytes + batch.nbytes)
                self._engine.infos[self.id] = grown
                yield batch
        except SqlError as error:
            self._move(QueryState.CANCELED if error.sqlstate == "57014" else QueryState.FAILED, error)
            raise
        self._move(QueryState.FINISHED)

    def cancel(self, why: str = "") -> None:
        self.cancelled.set()

    def close(self) -> None:
        self.closed = True

    def _move(self, state: QueryState, error: SqlError | None = None) -> None:
        ended = (
            time.time() if state in (QueryState.FINISHED, QueryState.FAILED, QueryState.CANCELED) else None
        )
        told = (error.what, error.sqlstate) if error else (None, None)
        info = replace(self._engine.infos[self.id], state=state, ended=ended, error=told[0], sqlstate=told[1])
        self._engine.infos[self.id] = info


class StandInConnection(Connection):
    def __init__(self, engine: StandIn, client: Client, settings: Settings) -> None:
        self._engine = engine
        self.client = client
        self.settings = settings
        self.closed = False

    def prepare(self, sql: str, parameters: Sequence[int] = (), *, exact: bool = False) -> Prepared:
        if "nonsense" in sql:
            raise SqlError(
                "syntax error", sqlstate="42601", position=sql.index("nonsense"), hint="write sense"
            )
        if sql.startswith("CREATE"):
            if not self.client.user.may_write("public"):
                raise SqlError("permission denied for schema public", sqlstate="42501")
            return Prepared(sql, "CREATE VIEW")
        return Prepared(sql, "SELECT", self._engine.parameters, self._engine.columns)

    def execute(self, prepared: Prepared, parameters: Sequence[object] = ()) -> Execution:
        return Work(self._engine, self, prepared, list(parameters))

    def close(self) -> None:
        self.closed = True


@dataclass
class StandIn(Engine):
    """Answers every query with what ``answer`` gives."""

    answer: Callable[[Work], Iterator[pa.RecordBatch]]
    columns: tuple[Column, ...] = ()
    parameters: tuple[int, ...] = ()
    why: str | None = None
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    works: dict[str, Work] = field(default_factory=dict)
    infos: dict[str, QueryInfo] = field(default_factory=dict)
    connections: list[StandInConnection] = field(default_factory=list)

    def gives(self, table: pa.Table, rows: int = 1000) -> None:
        self.columns = tuple(postgres.column(f.name, f.type, f.nullable) for f in table.schema)
        self.answer = lambda work: iter(table.to_batches(rows))

    def connect(self, client: Client, settings: Settings) -> Connection:
        self.connections.append(StandInConnection(self, client, settings))
        return self.connections[-1]

    def tables(self, user: User) -> Sequence[TableInfo]:
        every = [
            TableInfo("public", "numbers", "table", NUMBERS),
            TableInfo("sys", "queries", "system", NUMBERS),
        ]
        return [table for table in every if user.may_read(table.schema)]

    def queries(self, user: User) -> Sequence[QueryInfo]:
        infos = [info for info in self.infos.values() if user.admin or info.user == user.name]
        return sorted(infos, key=lambda info: info.submitted, reverse=True)

    def cancel(self, query: str, user: User) -> bool:
        info = self.infos.get(query)
        if info is None or info.ended or not (user.admin or info.user == user.name):
            return False
        self.works[query].cancel()
        return True

    def ready(self) -> str | None:
        return self.why


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


@dataclass
class Browser:
    """Asks one server; ``headers`` go with every request."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def as_user(self, name: str, password: str) -> Browser:
        text = base64.b64encode(f"{name}:{password}".encode()).decode()
        return Browser(self.port, {**self.headers, "Authorization": f"Basic {text}"})

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            sent = {**self.headers, **(headers or {})}
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            if body is not None:
                sent.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Reply(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers=headers)

    def submit(self, sql: str = "SELECT 1", **more: Any) -> str:
        reply = self.ask("POST", "/api/v1/queries", {"sql": sql, **more})
        assert reply.status == 201, reply.body
        return str(reply.json["id"])


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
