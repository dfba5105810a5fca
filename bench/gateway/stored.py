"""A process that serves rows from memory: by our servers over an engine without Spark, or by bare Flight."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from bench.gateway import trades
from bench.lab import Place
from penstock.errors import SqlError
from penstock.server.base import Client, Connection, Engine, Execution, Prepared, QueryInfo, TableInfo, User
from penstock.server.session_settings import Settings
from penstock.sql.statements.commands import Command
from penstock.types import postgres


class StoredEngine(Engine):
    """Has the answer to each statement that it knows."""

    def __init__(self, answers: Mapping[str, Sequence[pa.RecordBatch]]) -> None:
        self.answers = answers

    def connect(self, client: Client, settings: Settings) -> Connection:
        return _Connection(self, client, settings)

    def tables(self, user: User) -> Sequence[TableInfo]:  # noqa: ARG002
        return ()

    def queries(self, user: User) -> Sequence[QueryInfo]:  # noqa: ARG002
        return ()

    def cancel(self, query: str, user: User) -> bool:  # noqa: ARG002
        return False

    def ready(self) -> str | None:
        return None


class _Connection(Connection):
    def __init__(self, engine: StoredEngine, client: Client, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self._engine = engine

    def prepare(
        self,
        sql: str,
        parameters: Sequence[int] = (),  # noqa: ARG002
        *,
        exact: bool = False,  # noqa: ARG002
        command: Command | None = None,  # noqa: ARG002
    ) -> Prepared:
        found = self._engine.answers.get(sql)
        if found is None:
            raise SqlError("there is no answer to this statement", sqlstate="42601")
        columns = tuple(postgres.column(f.name, f.type, f.nullable) for f in found[0].schema)
        return Prepared(sql, "SELECT", (), columns, found)

    def execute(self, prepared: Prepared, parameters: Sequence[object] = ()) -> Execution:  # noqa: ARG002
        return _Execution(prepared)

    def close(self) -> None:
        pass


class _Execution(Execution):
    def __init__(self, prepared: Prepared) -> None:
        self.id = "stored"
        self.tag = prepared.tag
        self.columns = prepared.columns
        self._batches: Any = prepared.plan

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._batches

    def cancel(self, why: str = "") -> None:
        pass

    def close(self) -> None:
        pass


class Bare(flight.FlightServerBase):  # type: ignore[misc]
    """What pyarrow gives for the asking: one stream of batches, whatever the ticket."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._batches = batches

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:  # noqa: ARG002
        ends = [flight.FlightEndpoint(b"all", [])]
        return flight.FlightInfo(self._batches[0].schema, descriptor, ends, -1, -1)

    def do_get(self, context: Any, ticket: Any) -> Any:  # noqa: ARG002
        return flight.GeneratorStream(self._batches[0].schema, iter(self._batches))


def main(kind: str, folder: str, work: str) -> None:
    """Serve until nobody listens at the other end of our standard input."""
    batches = trades.batches(Path(folder)) if kind != "idle" else ()
    if kind == "bare":
        bare = Bare(batches)
        _tell({"rpc": bare.port})
        sys.stdin.read()
        return
    from penstock.server.access import Access, Users
    from penstock.server.flight import FlightSqlServer
    from penstock.server.pgwire.server import PgServer
    from penstock.store import open_store

    one = [pa.record_batch({"?column?": pa.array([1], pa.int32())})]
    engine = StoredEngine({trades.QUERY: batches, "SELECT 1": one})
    access = Access(Users(open_store(Place(Path(work)).store)))
    rpc = FlightSqlServer(engine, access, host="127.0.0.1", port=0)
    server = PgServer(engine, access, port=0)

    async def serve() -> None:
        await server.start()
        _tell({"rpc": rpc.port, "sql": server.port})
        await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=[serve()], daemon=True).start()
    sys.stdin.read()


def _tell(ports: Mapping[str, int]) -> None:
    print(json.dumps({"ports": ports}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
