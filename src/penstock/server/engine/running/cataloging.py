"""CREATE and DROP: changes of the catalog, carried out where the rows would be pulled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.server.base import Client, Execution, Prepared, QueryState
from penstock.server.engine.faults import CANCELED, translated
from penstock.server.engine.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa


class CatalogExecution(Execution):
    """A statement without rows. It cannot be stopped once it has begun: a change is made or not."""

    def __init__(
        self,
        registry: Registry,
        client: Client,
        prepared: Prepared,
        change: Callable[[Callable[[], None]], Sequence[str]],
    ) -> None:
        """``change`` may wait before it begins, as long as what it is given does not raise."""
        self.tag = prepared.tag
        self.columns = None
        self._sql = prepared.sql
        self._change = change
        self._why: str | None = None
        self._query = registry.open(client, prepared.sql, self.cancel)
        self.id = self._query.id

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            self._check()
            self._query.move(QueryState.PLANNING)
            self._query.move(QueryState.RUNNING)
            self.notices = self._change(self._check)
        except Exception as error:
            told = translated(error, self._sql)
            self._query.move(QueryState.CANCELED if told.sqlstate == CANCELED else QueryState.FAILED, told)
            if told is error:
                raise
            raise told from error
        self._query.move(QueryState.FINISHED)
        yield from ()

    def _check(self) -> None:
        if self._why is not None:
            raise SqlError(self._why, sqlstate=CANCELED)

    def cancel(self, why: str = "canceling statement due to user request") -> None:
        self._why = why
        if self._query.info.state is QueryState.QUEUED:
            self._query.move(QueryState.CANCELED, SqlError(why, sqlstate=CANCELED))

    def close(self) -> None:
        self.cancel()
