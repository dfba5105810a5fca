"""A query that runs in the shadow, and its rows."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import PeerUnreachable, SqlError
from penstock.server.base import Relay
from penstock.server.shadow.postgres.link import Link
from penstock.server.shadow.texts import array
from penstock.types import postgres
from penstock.types.postgres import Column

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

_CHUNK = 32
"""Rows that libpq holds at once; with rows of a megabyte it must not be many."""
_BATCH_ROWS = 8192
_BATCH_BYTES = 4 << 20
_AGAIN = 0.05
_CANCELED = "57014"
_NUMBERS = itertools.count(1)
PLAIN = {
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
"""How the texts must be written of which Arrow arrays are made."""


class ShadowRelay(Relay):
    """See `Relay`. It runs when the first rows are asked for: only then their format is known."""

    def __init__(
        self,
        take: Callable[[], Link],
        done: Callable[[Link, bool], None],
        revive: Callable[[], None],
        statement: tuple[str, Sequence[int], Sequence[bytes | None]],
        columns: tuple[Column, ...] | None,
        *,
        exact: bool = False,
        before: str = "",
    ) -> None:
        """``before`` are statements of ours that count for this one alone."""
        self.id = f"shadow-{next(_NUMBERS)}"
        self.tag = "SELECT"
        self.columns = columns
        self.notices = ()
        self._take = take
        self._done = done
        self._revive = revive
        self._statement = statement
        self._exact = exact
        self._before = before
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._pulling = False
        self._answered = False
        self._why: str | None = None
        self._closed = False

    def rows(self, *, binary: bool) -> Iterator[Sequence[Sequence[bytes | None]]]:
        for result in self._results(binary=binary, plain=False):
            value, columns = result.get_value, range(result.nfields)
            yield [[value(row, column) for column in columns] for row in range(result.ntuples)]

    def batches(self) -> Iterator[pa.RecordBatch]:
        columns = self.columns or ()
        whole = not self._exact
        held: list[list[bytes | None]] = [[] for _ in columns]
        rows = size = 0
        for result in self._results(binary=False, plain=True):
            for number, values in enumerate(held):
                for row in range(result.ntuples):
                    value = result.get_value(row, number)
                    size += len(value) if value is not None else 0
                    values.append(value)
            rows += result.ntuples
            if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
                whole = False
                yield _batch(columns, held, rows)
                held, rows, size = [[] for _ in columns], 0, 0
        if rows:
            if whole:
                self.columns = columns = tuple(map(_narrowed, columns, held))
            yield _batch(columns, held, rows)

    def cancel(self, why: str = "canceling statement due to user request") -> None:
        with self._lock:
            if self._why is not None or self._closed:
                return
            self._why = why
            if self._link is None:
                return
            self._link.cancel()
        self._insisting()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            link = self._link
            if link is None:
                return
            link.cancel()
            pulling = self._pulling
            if not pulling:
                self._link = None
        if pulling:
            # The thread that waits for it lets go of it.
            self._insisting()
        else:
            self._done(link, False)

    # ---------------------------------------------------------------- pulling

    def _results(self, *, binary: bool, plain: bool) -> Iterator[PGresult]:
        """The chunks; if the server is gone before the first, once more with a new one."""
        for last in (False, True):
            try:
                yield from self._pulled(binary=binary, plain=plain)
            except PeerUnreachable as error:
                if last or self._answered:
                    raise SqlError(
                        "the catalog's server ended in the middle of the statement",
                        hint="try again",
                        sqlstate="57P01",
                    ) from error
                self._revive()
            else:
                return

    def _pulled(self, *, binary: bool, plain: bool) -> Iterator[PGresult]:
        link = self._begin(binary=binary, plain=plain)
        fit = False
        try:
            while (result := self._next(link)) is not None:
                self._answered, self._before = True, ""
                if result.ntuples:
                    yield result
            fit = True
        except SqlError as error:
            fit = True
            raise self._told(error) from None
        finally:
            self._end(link, fit=fit)

    def _over(self) -> bool:
        return self._closed or self._why is not None

    def _begin(self, *, binary: bool, plain: bool) -> Link:
        if self._over():
            raise self._told(None)
        link = self._take()
        sql, parameters, values = self._statement
        try:
            if plain:
                link.apply(PLAIN)
            if self._before:
                link.begin(self._before)
            with self._lock:
                if not self._over():
                    link.send(sql, values, parameters, binary, _CHUNK)
                    self._link = link
                    return link
        except BaseException:
            self._done(link, False)
            raise
        self._done(link, True)
        raise self._told(None)

    def _next(self, link: Link) -> PGresult | None:
        with self._lock:
            if self._link is not link or self._over():
                raise self._told(None)
            self._pulling = True
        try:
            return link.result()
        finally:
            with self._lock:
                self._pulling = False

    def _end(self, link: Link, *, fit: bool) -> None:
        with self._lock:
            if self._link is not link:
                return
            self._link = None
            # A request to cancel may still be on its way to it.
            fit = fit and not self._over()
            if not fit and link.busy:
                link.cancel()
        self._done(link, fit)

    def _insisting(self) -> None:
        """A request that arrives before the server has begun with the statement is lost: say it again."""
        threading.Thread(target=self._insist, name=f"cancel-{self.id}", daemon=True).start()

    def _insist(self) -> None:
        pause = threading.Event()
        while not pause.wait(_AGAIN):
            with self._lock:
                if self._link is None or not self._pulling:
                    return
                self._link.cancel()

    def _told(self, error: SqlError | None) -> SqlError:
        """What the client is told: if somebody cancelled it, that."""
        if error is not None and (self._why is None or error.sqlstate != _CANCELED):
            return error
        return SqlError(self._why or "canceling statement due to user request", sqlstate=_CANCELED)


def _narrowed(column: Column, values: Sequence[bytes | None]) -> Column:
    """A numeric without a precision, with as many digits behind the point as PostgreSQL shows."""
    if column.oid != postgres.NUMERIC or column.typmod >= 0:
        return column
    scale = max((len(value.partition(b".")[2]) for value in values if value), default=0)
    return replace(column, type=pa.decimal128(38, scale)) if scale < column.type.scale else column


def _batch(columns: Sequence[Column], held: list[list[bytes | None]], rows: int) -> pa.RecordBatch:
    schema = pa.schema([pa.field(column.name, column.type, column.nullable) for column in columns])
    arrays = [array(values, column.type) for column, values in zip(columns, held, strict=True)]
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
