"""Statements that the shadow catalog answers: listed like all queries, and with rows of the system."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import SqlError
from penstock.server.base import Client, Execution, Prepared, QueryState, Relay
from penstock.server.engine.faults import CANCELED, TIMEOUT, translated
from penstock.server.engine.registry import Registry
from penstock.server.engine.running.admission import Turn
from penstock.server.shadow import TooManyRows

if TYPE_CHECKING:
    import pyarrow as pa

Rows = Mapping[tuple[str, str], "pa.Table"]
"""What system tables hold, by schema and name."""
Fields = Sequence[Sequence[bytes | None]]
_Pulled = TypeVar("_Pulled")
_ELSEWHERE = frozenset({"53200", "53300", "53400", "57P01", "57P03"})
"""The shadow has not enough memory, connections or files for it, or is gone: Spark may have."""


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

    def rows(self, *, binary: bool) -> Iterator[Fields | pa.RecordBatch]:
        for chunk in self._followed(self._relay.rows(binary=binary)):
            if isinstance(chunk, Sequence):
                self._query.sent(len(chunk), sum(len(value or b"") for row in chunk for value in row))
            else:
                self._query.sent(chunk.num_rows, chunk.nbytes)
            yield chunk

    def cancel(self, why: str = "canceling statement due to user request") -> None:
        self._relay.cancel(why)
        self._query.move(QueryState.CANCELED, SqlError(why, sqlstate=CANCELED))

    def close(self) -> None:
        self._relay.close()
        self._query.move(QueryState.CANCELED, SqlError("the client has gone", sqlstate=CANCELED))

    def _followed(self, pulled: Iterator[_Pulled]) -> Iterator[_Pulled]:
        self._query.move(QueryState.PLANNING)
        try:
            if isinstance(self._relay, SystemRelay):
                # What is asked is part of what there is to see: it finds itself as Spark's queries do.
                self._relay.gather()
            self._query.move(QueryState.RUNNING)
            for each in pulled:
                self.columns = self._relay.columns
                yield each
        except Exception as error:
            told = translated(error)
            self._query.move(QueryState.CANCELED if told.sqlstate == CANCELED else QueryState.FAILED, told)
            raise
        self._query.move(QueryState.FINISHED)


class SystemRelay(Relay):
    """A query of system tables.

    Their rows are read when it begins, in a thread of their own: a client is told at once that its query is
    cancelled, also while the store does not answer. They take a turn, until there is an answer. ``ask`` has
    the shadow give it; ``compute`` is another way for what is too much for the shadow.
    """

    def __init__(
        self,
        prepared: Prepared,
        turn: Turn,
        read: Callable[[], Rows],
        ask: Callable[[Rows], Relay],
        compute: Callable[[], Execution] | None,
        timeout: float | None,
    ) -> None:
        self.id = ""
        self.tag = prepared.tag
        self.columns = prepared.columns
        self._turn = turn
        self._read = read
        self._ask = ask
        self._compute = compute
        self._timeout = timeout
        self._lock = threading.Lock()
        self._news = threading.Event()
        """Set when there are rows, an error or a cancellation."""
        self._rows: Rows | None = None
        """As long as these are held, so is the turn."""
        self._error: Exception | None = None
        self._why: str | None = None
        self._now: Execution | None = None

    def rows(self, *, binary: bool) -> Iterator[Fields | pa.RecordBatch]:
        return self._pulled(lambda relay: relay.rows(binary=binary))

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._pulled(lambda relay: relay.batches())

    def gather(self) -> Rows:
        """The rows, read when this is called first. Raises `SqlError`."""
        if not self._news.is_set():
            threading.Thread(target=self._work, name="penstock-system", daemon=True).start()
            if not self._news.wait(self._timeout):
                self.cancel(TIMEOUT)
        self._check()
        if self._error is not None:
            raise translated(self._error) from self._error
        assert self._rows is not None
        return self._rows

    def cancel(self, why: str = "canceling statement due to user request") -> None:
        with self._lock:
            self._why = self._why or why
            now = self._now
        self._news.set()
        if now is not None:
            now.cancel(why)

    def close(self) -> None:
        self.cancel("the client has gone")
        if self._now is not None:
            self._now.close()
        self._let_go()

    def _work(self) -> None:
        if not self._turn.take(lambda: self._why is None):
            return
        rows: Rows | None = None
        try:
            if self._why is None:
                rows = self._read()
        except Exception as error:
            self._error = error
        with self._lock:
            held = rows is not None and self._why is None
            if held:
                self._rows = rows
        if not held:
            self._turn.give()
        self._news.set()

    def _let_go(self) -> None:
        with self._lock:
            held, self._rows = self._rows, None
        if held is not None:
            self._turn.give()

    def _pulled(self, pull: Callable[[Relay], Iterator[_Pulled]]) -> Iterator[_Pulled | pa.RecordBatch]:
        begun = False
        try:
            relay = self._ask(self.gather())
            self._begun(relay)
            for each in pull(relay):
                if not begun:
                    begun = True
                    self._let_go()
                self.columns = relay.columns
                yield each
            return
        except (TooManyRows, SqlError) as error:
            elsewhere = isinstance(error, TooManyRows) or error.sqlstate in _ELSEWHERE
            if begun or not elsewhere:
                raise
            if self._compute is None:
                raise _too_large() from error
        finally:
            self._let_go()
        # It reads the rows once more, when it has a place among the running: nobody holds many and waits.
        other = self._compute()
        self._begun(other)
        for batch in other.batches():
            self.columns = other.columns
            yield batch

    def _begun(self, execution: Execution) -> None:
        with self._lock:
            self._now = execution
            gone = self._why is not None
        if gone:
            execution.close()
        self._check()

    def _check(self) -> None:
        if self._why is not None:
            raise SqlError(self._why, sqlstate=CANCELED)


def _too_large() -> SqlError:
    return SqlError(
        "the system tables are too long to be joined with those of the catalog",
        sqlstate="54000",
        hint="ask for them in two statements",
    )
