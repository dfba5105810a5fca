"""CREATE and DROP: changes of the catalog, carried out where the rows would be pulled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.gateway.base import Client, Execution, Prepared, State
from penstock.gateway.engine.faults import CANCELED, translated
from penstock.gateway.engine.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa


class CatalogExecution(Execution):
    """A statement without rows. It cannot be stopped once it has begun: a change is made or not."""

    def __init__(
        self, registry: Registry, client: Client, prepared: Prepared, change: Callable[[], Sequence[str]]
    ) -> None:
        self.tag = prepared.tag
        self.columns = None
        self._sql = prepared.sql
        self._change = change
        self._why: str | None = None
        self._query = registry.open(client, prepared.sql, self.cancel)
        self.id = self._query.id

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            if self._why is not None:
                raise SqlError(self._why, sqlstate=CANCELED)
            self._query.move(State.PLANNING)
            self._query.move(State.RUNNING)
            self.notices = self._change()
        except Exception as error:
            told = translated(error, self._sql)
            self._query.move(State.CANCELED if told.sqlstate == CANCELED else State.FAILED, told)
            if told is error:
                raise
            raise told from error
        self._query.move(State.FINISHED)
        yield from ()

    def cancel(self, why: str = "canceling statement due to user request") -> None:
        self._why = why
        if self._query.info.state is State.QUEUED:
            self._query.move(State.CANCELED, SqlError(why, sqlstate=CANCELED))

    def close(self) -> None:
        self.cancel()
