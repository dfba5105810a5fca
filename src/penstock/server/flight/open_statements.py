"""Statements between the calls that belong together: described by one, run by another, cancelled by a third.

A handle belongs to the user who got it. What nobody asks for is forgotten after a while.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import SqlError
from penstock.server.base import Client, Connection, Engine, Execution, Prepared, User
from penstock.server.flight.parameters import numbered
from penstock.server.session_settings import Settings

_FORGET_AFTER = 600.0
_MOST = 1000
"""Statements of all users together, and half as many of one."""


@dataclass(slots=True)
class OpenStatement:
    """A statement that was prepared: its parameters row by row once they are bound, and what runs of it."""

    user: User
    connection: Connection
    prepared: Prepared
    kept: bool
    """It was prepared to be run again: it stays until it is closed."""
    rows: Sequence[Sequence[object]] = ((),)
    running: list[Execution] = field(default_factory=list)
    used: float = 0.0


class OpenStatements:
    """All orders of all clients. Safe for many threads."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._orders: dict[bytes, OpenStatement] = {}

    def __len__(self) -> int:
        return len(self._orders)

    def prepare(self, sql: str, user: User, address: str, *, kept: bool) -> tuple[bytes, OpenStatement]:
        """Understand a statement; its handle is what the other calls name."""
        self._sweep()
        with self._lock:
            own = sum(order.user.name == user.name for order in self._orders.values())
            if len(self._orders) >= _MOST or own >= _MOST // 2:
                what = f"{own} statements of yours are open already, and {len(self._orders)} in all"
                raise SqlError(what, sqlstate="53400", hint="close what you have prepared")
        connection = self._engine.connect(Client(user, "flight", address), Settings())
        try:
            prepared = connection.prepare(numbered(sql), exact=True)
        except BaseException:
            connection.close()
            raise
        order = OpenStatement(user, connection, prepared, kept, used=self._clock())
        handle = secrets.token_bytes(16)
        with self._lock:
            self._orders[handle] = order
        return handle, order

    def find(self, handle: bytes, user: User) -> OpenStatement:
        """The order of a handle; another user's handle does not exist."""
        with self._lock:
            order = self._orders.get(handle)
            if order is None or order.user.name != user.name:
                raise SqlError(
                    "there is no such statement: it was closed, or forgotten after ten minutes",
                    sqlstate="26000",
                    hint="prepare it again",
                )
            order.used = self._clock()
            return order

    def close(self, handle: bytes, user: User) -> None:
        """Forget an order. What runs of it is cancelled."""
        self.find(handle, user)
        with self._lock:
            order = self._orders.pop(handle, None)
        if order is not None:
            order.connection.close()

    def cancel(self, handle: bytes, user: User) -> bool:
        """Cancel what runs of an order; whether anything did."""
        running = list(self.find(handle, user).running)
        for execution in running:
            execution.cancel()
        return bool(running)

    def run(self, handle: bytes, order: OpenStatement) -> Iterator[pa.RecordBatch]:
        """The rows for every row of parameters, one after the other."""
        try:
            for values in order.rows:
                execution = order.connection.execute(order.prepared, values)
                order.running.append(execution)
                try:
                    yield from execution.batches()
                finally:
                    order.running.remove(execution)
                    execution.close()
        finally:
            if not order.kept:
                with self._lock:
                    self._orders.pop(handle, None)
                order.connection.close()

    def stop(self) -> None:
        """Let go of everything."""
        with self._lock:
            orders, self._orders = list(self._orders.values()), {}
        for order in orders:
            order.connection.close()

    def _sweep(self) -> None:
        oldest = self._clock() - _FORGET_AFTER
        with self._lock:
            old = [h for h, order in self._orders.items() if order.used < oldest and not order.running]
            orders = [self._orders.pop(handle) for handle in old]
        for order in orders:
            order.connection.close()


def described(prepared: Prepared) -> pa.Schema:
    """The columns of a statement as Arrow has them; none for one without rows."""
    columns = prepared.columns or ()
    return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in columns])


def fitted(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches with exactly this schema: what was described is what is sent."""
    for batch in batches:
        if batch.schema.equals(schema):
            yield batch
            continue
        arrays = [
            array if array.type.equals(field.type) else _cast(array, field)
            for array, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise SqlError(
            f"a value of column {field.name} does not fit {field.type}: {error}",
            sqlstate="22003",
            hint="cast the column to the type that you want",
        ) from error
