"""An engine that knows a handful of statements, and a server in front of it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    Relay,
    TableInfo,
    User,
)
from penstock.server.pgwire.server import PgServer
from penstock.server.session_settings import Settings
from penstock.types import postgres
from penstock.types.postgres import Column

BATCH = 10_000
WIDE = 2_000
_NAMES = {
    "int": postgres.INT4,
    "int4": postgres.INT4,
    "int8": postgres.INT8,
    "text": postgres.TEXT,
    "bytea": postgres.BYTEA,
}
_NAMES |= {
    "float8": postgres.FLOAT8,
    "bool": postgres.BOOL,
    "date": postgres.DATE,
    "numeric": postgres.NUMERIC,
}
_NAMES |= {"timestamptz": postgres.TIMESTAMPTZ, "uuid": postgres.UUID}


class StandIn(Engine):
    """Statements::

    SELECT 1 | 'text' | $1::int, $2::text     these values
    SELECT * FROM numbers(N)                  i bigint, t text; N rows, made as they are read
    SELECT * FROM wide(N)                     N rows of 1 KB
    SELECT * FROM slow()                      nothing, until it is cancelled
    SELECT * FROM relay()                     two rows that PostgreSQL has encoded
    SELECT nope | SELECT 1/0 | SELECT bug     errors, the last one that nobody foresaw
    CREATE VIEW …                             done at once
    """

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        """One for each slow() that runs."""
        self.running = 0
        self.canceled: list[str] = []
        self.created: list[str] = []
        self.clients = 0
        self.made = 0
        """Batches of numbers() that were made."""
        self.why: str | None = None
        self.lock = threading.Lock()

    def connect(self, client: Client, settings: Settings) -> Connection:
        self.count(clients=1)
        return _Connection(self, client, settings)

    def tables(self, user: User) -> Sequence[TableInfo]:
        return ()

    def queries(self, user: User) -> Sequence[QueryInfo]:
        return ()

    def cancel(self, query: str, user: User) -> bool:
        return False

    def ready(self) -> str | None:
        return self.why

    def count(self, *, clients: int = 0, running: int = 0, made: int = 0) -> None:
        with self.lock:
            self.clients += clients
            self.running += running
            self.made += made


class _Connection(Connection):
    def __init__(self, engine: StandIn, client: Client, settings: Settings) -> None:
        self.engine = engine
        self.client = client
        self.settings = settings
        self.closed = False

    def prepare(self, sql: str, parameters: Sequence[int] = (), *, exact: bool = False) -> Prepared:
        text = " ".join(sql.strip().split())
        folded = text.lower()
        if folded.startswith("create view"):
            return Prepared(sql, "CREATE VIEW", plan=("create", text))
        if "nope" in folded:
            position = sql.lower().index("nope")
            raise SqlError('column "nope" does not exist', sqlstate="42703", position=position)
        if folded == "select bug":
            raise RuntimeError("nobody foresaw this")
        if match := re.fullmatch(r"select \* from (\w+)\((\d*)\)(?: where i > \$1)?", folded):
            name, size = match[1], int(match[2] or 0)
            oids = (postgres.INT8,) if "$1" in folded else ()
            return Prepared(sql, "SELECT", oids, _columns(name), (name, size))
        if match := re.fullmatch(r"select (.*)", text, re.IGNORECASE):
            return _values(sql, match[1], parameters)
        raise SqlError("syntax error", sqlstate="42601", position=0)

    def execute(self, prepared: Prepared, parameters: Sequence[object] = ()) -> Execution:
        assert isinstance(prepared.plan, tuple)
        kind = _Relayed if prepared.plan[0] == "relay" else _Execution
        return kind(self.engine, prepared, parameters)

    def close(self) -> None:
        assert not self.closed
        self.closed = True
        self.engine.count(clients=-1)


def _columns(name: str) -> tuple[Column, ...]:
    if name in ("numbers", "wide", "slow"):
        return (postgres.column("i", pa.int64()), postgres.column("t", pa.string()))
    if name == "relay":
        return (postgres.column("a", pa.int32()), postgres.column("b", pa.string()))
    raise SqlError(f'relation "{name}" does not exist', sqlstate="42P01", position=14)


def _values(sql: str, items: str, given: Sequence[int]) -> Prepared:
    oids: dict[int, int] = {}
    columns: list[Column] = []
    plan: list[object] = []
    for item in items.split(", "):
        cast = re.fullmatch(r"CAST\(\((.*)\) AS (.*)\)", item)
        text, _, kind = (cast[1], "", "text") if cast else item.partition("::")
        if text.startswith("$"):
            number = int(text[1:])
            hint = given[number - 1] if number <= len(given) else 0
            oids[number] = oid = hint or _NAMES.get(kind, postgres.TEXT)
            columns.append(Column("?column?", postgres.arrow_type(oid), oid))
            plan.append(number)
        elif text.lstrip("-").isdigit():
            columns.append(postgres.column("?column?", pa.int32()))
            plan.append(text)
        elif text == "1/0":
            columns.append(postgres.column("?column?", pa.int32()))
            plan.append(ZeroDivisionError)
        else:
            columns.append(postgres.column("?column?", pa.string()))
            plan.append(text.strip("'"))
    parameters = tuple(oids[number] for number in sorted(oids))
    return Prepared(sql, "SELECT", parameters, tuple(columns), ("values", plan))


class _Execution(Execution):
    def __init__(self, engine: StandIn, prepared: Prepared, values: Sequence[object]) -> None:
        self.id = "q"
        self.engine = engine
        self.tag = prepared.tag
        self.columns = prepared.columns
        self.plan: Any = prepared.plan
        self.values = values
        self.stop: str | None = None
        self.wake = threading.Event()
        self.closed = False
        if self.tag == "CREATE VIEW":
            self.notices = ("a view was made",)
        engine.count(running=1)

    def batches(self) -> Iterator[pa.RecordBatch]:
        kind, what = self.plan
        if kind == "create":
            self.engine.created.append(what)
        elif kind == "values":
            yield self._one(what)
        elif kind == "slow":
            self.engine.started.release()
            self.wake.wait(30)
            self._check()
        else:
            above = int(str(self.values[0])) + 1 if self.values else 0
            size, padding = (WIDE, 1000) if kind == "wide" else (BATCH, 0)
            for start in range(above, what, size):
                self._check()
                self.engine.count(made=1)
                yield _numbers(start, min(what, start + size), padding)
            self._check()

    def _one(self, plan: list[object]) -> pa.RecordBatch:
        if ZeroDivisionError in plan:
            raise SqlError("division by zero", sqlstate="22012")
        found = [self.values[each - 1] if isinstance(each, int) else each for each in plan]
        arrays = []
        for column, value in zip(self.columns or (), found, strict=True):
            arrays.append(pa.array([_as(column, value)], column.type))
        return pa.RecordBatch.from_arrays(arrays, names=[f"c{n}" for n in range(len(arrays))])

    def _check(self) -> None:
        if self.stop is not None:
            raise SqlError(self.stop, sqlstate="57014")

    def cancel(self, why: str = "canceling statement due to user request") -> None:
        self.engine.canceled.append(why)
        self.stop = why
        self.wake.set()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.wake.set()
            self.engine.count(running=-1)


class _Relayed(_Execution, Relay):
    def batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": pa.array([1, 2], pa.int32()), "b": ["x", None]})

    def rows(self, *, binary: bool) -> Iterator[Sequence[Sequence[bytes | None]]]:
        yield [[b"\0\0\0\1" if binary else b"1", b"x"]]
        yield [[b"\0\0\0\2" if binary else b"2", None]]


def _as(column: Column, value: object) -> object:
    if column.oid == postgres.INT4 and isinstance(value, str):
        return int(value)
    return str(value) if pa.types.is_string(column.type) and value is not None else value


def _numbers(start: int, end: int, padding: int) -> pa.RecordBatch:
    numbers = pa.array(range(start, end), pa.int64())
    texts = pa.array([("n" + str(n)).ljust(padding, ".") for n in range(start, end)])
    return pa.record_batch({"i": numbers, "t": texts})


class Trusting:
    """Lets everybody in, the user ``admin`` as one."""

    def trust(self, address: str) -> bool:
        return True

    def trusted(self, name: str) -> User:
        return User(name, admin=name == "admin", writes=True)

    def scram(self, name: str, address: str = "", *, binding: bytes | None = None) -> Any:
        raise AssertionError

    def by_certificate(self, common_name: str) -> User | None:
        return User(common_name)


@dataclass
class Serving:
    """A server that runs in a thread of its own."""

    server: PgServer
    engine: StandIn
    loop: asyncio.AbstractEventLoop = field(repr=False)

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        return (
            f"host=127.0.0.1 port={self.port} user=someone dbname=penstock sslmode=disable gssencmode=disable"
        )

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop).result(20)


@contextmanager
def serving(engine: StandIn | None = None, access: Any = None, **options: Any) -> Iterator[Serving]:
    """A server on a free port of loopback."""
    engine = engine or StandIn()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pgwire-test")
    thread.start()
    server = PgServer(engine, access or Trusting(), host="127.0.0.1", port=0, **options)
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    running = Serving(server, engine, loop)
    try:
        yield running
    finally:
        running.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
