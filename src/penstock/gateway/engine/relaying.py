"""A statement that the shadow catalog answers, among the queries that can be asked for by their id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import SqlError
from penstock.gateway.base import Client, Prepared, Relay, State
from penstock.gateway.engine.faults import CANCELED, translated
from penstock.gateway.engine.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa

_Pulled = TypeVar("_Pulled")


class ListedRelay(Relay):
    """Does what another relay does, and tells the registry how it goes."""

    def __init__(self, registry: Registry, client: Client, prepared: Prepared, relay: Relay) -> None:
        self.tag = prepared.tag
        self.columns = relay.columns
        self._relay = relay
        self._query = registry.open(client, prepared.sql, self.cancel)
        self.id = self._query.id

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._followed(self._relay.batches()):
            self._query.sent(batch.num_rows, batch.nbytes)
            yield batch

    def rows(self, *, binary: bool) -> Iterator[Sequence[Sequence[bytes | None]]]:
        for chunk in self._followed(self._relay.rows(binary=binary)):
            self._query.sent(len(chunk), sum(len(value or b"") for row in chunk for value in row))
            yield chunk

    def cancel(self, why: str = "canceling statement due to user request") -> None:
        self._relay.cancel(why)
        self._query.move(State.CANCELED, SqlError(why, sqlstate=CANCELED))

    def close(self) -> None:
        self._relay.close()
        self._query.move(State.CANCELED, SqlError("the client has gone", sqlstate=CANCELED))

    def _followed(self, pulled: Iterator[_Pulled]) -> Iterator[_Pulled]:
        self._query.move(State.PLANNING)
        self._query.move(State.RUNNING)
        try:
            yield from pulled
        except Exception as error:
            told = translated(error)
            self._query.move(State.CANCELED if told.sqlstate == CANCELED else State.FAILED, told)
            raise
        self._query.move(State.FINISHED)
