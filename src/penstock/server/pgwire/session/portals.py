"""Results that are being read: portals of the extended protocol, and cursors with FETCH and MOVE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.server.base import Execution, Relay
from penstock.server.pgwire.encode.rows import FEW, RowEncoder, encode_few, few_writers
from penstock.server.pgwire.protocol.channel import Buffer
from penstock.server.pgwire.protocol.messages import data_row, spread
from penstock.server.session_settings import Settings
from penstock.sql.statements.commands import Fetch
from penstock.types.postgres import Column

if TYPE_CHECKING:
    import pyarrow as pa

PART = 2 * 1024 * 1024
"""About how many bytes of rows are encoded at a time."""
_ROWS = 32_768
Fields = Sequence[Sequence[bytes | None]]
"""Rows that PostgreSQL has encoded already."""


class ResultRows:
    """The rows of a result, handed out in parts of any size that is asked for, forward only."""

    def __init__(self, columns: Sequence[Column], batches: Iterator[pa.RecordBatch | Fields]) -> None:
        self.columns = tuple(columns)
        self.done = False
        self.position = 0
        """How many rows were handed out."""
        self._batches = batches
        self._rest: pa.RecordBatch | Fields | None = None
        self._at = 0

    def take(self, limit: int | None = None) -> Iterator[pa.RecordBatch | Fields]:
        """Up to so many rows, in parts that are small enough to be encoded at once."""
        left = limit
        while left is None or left > 0:
            if self._rest is None and not self._pull():
                return
            part = self._part(left)
            self.position += _count(part)
            if left is not None:
                left -= _count(part)
            yield part

    def _pull(self) -> bool:
        while not self.done:
            batch = next(self._batches, None)
            if batch is None:
                self.done = True
            elif _count(batch):
                self._rest, self._at = batch, 0
                return True
        return False

    def _part(self, limit: int | None) -> pa.RecordBatch | Fields:
        assert self._rest is not None
        batch, start = self._rest, self._at
        total = _count(batch)
        count = min(total - start, _fitting(batch, total))
        if limit is not None:
            count = min(count, limit)
        self._at = start + count
        if self._at == total:
            self._rest = None
        if isinstance(batch, Sequence):
            return batch[start : start + count]
        return batch if count == total else batch.slice(start, count)


def _count(batch: pa.RecordBatch | Fields) -> int:
    return len(batch) if isinstance(batch, Sequence) else int(batch.num_rows)


def _fitting(batch: pa.RecordBatch | Fields, total: int) -> int:
    """How many rows of the batch make one part."""
    if isinstance(batch, Sequence):
        return total
    if total <= FEW:
        return total
    size = max(1, int(batch.nbytes))
    return max(1, min(_ROWS, total * PART // size))


class Portal:
    """A statement with its values, run when rows are first asked for.

    ``execution`` is None for what the session answers itself. Without ``relay`` even the shadow catalog's
    rows can be encoded in any format, later.
    """

    def __init__(
        self,
        columns: Sequence[Column] | None,
        tag: str,
        *,
        formats: Sequence[int] = (),
        execution: Execution | None = None,
        batches: Iterator[pa.RecordBatch | Fields] | None = None,
        counted: bool = True,
        relay: bool = True,
    ) -> None:
        self.columns = None if columns is None else tuple(columns)
        self.tag = tag
        self.counted = counted
        self.execution = execution
        self.formats = spread(formats, len(self.columns or ()))
        if batches is None:
            batches = self._begin(relay) if execution is not None else iter(())
        self.rows = ResultRows(self.columns or (), batches)

    def _begin(self, relay: bool) -> Iterator[pa.RecordBatch | Fields]:
        execution = self.execution
        assert execution is not None
        uniform = len(set(self.formats)) <= 1
        if relay and isinstance(execution, Relay) and uniform and self.columns:
            return execution.rows(binary=bool(self.formats[0]))
        return execution.batches()

    def encoded(self, limit: int | None, settings: Settings) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """Rows as messages, and how many rows, part by part."""
        encoder: RowEncoder | None = None
        for part in self.rows.take(limit):
            if isinstance(part, Sequence):
                yield len(part), [data_row(fields) for fields in part]
                continue
            write = few_writers(self.columns or (), self.formats) if part.num_rows <= FEW else None
            if write:
                yield part.num_rows, encode_few(part, write)
                continue
            if encoder is None:
                encoder = RowEncoder(self.columns or (), self.formats, settings)
            yield part.num_rows, encoder.encode(part)

    def complete(self, count: int) -> str:
        """What to say when it is done."""
        return f"{self.tag} {count}" if self.counted and self.columns is not None else self.tag

    def close(self) -> None:
        execution, self.execution = self.execution, None
        if execution is not None:
            execution.close()


def done(tag: str) -> Portal:
    """What a statement without rows gives."""
    return Portal(None, tag)


def fetched(rows: ResultRows, command: Fetch) -> Iterator[pa.RecordBatch | Fields]:
    """The rows that FETCH asks for; the cursor moves as they are taken, and only forward."""
    count = command.count
    if command.direction == "forward":
        if count is None or count > 0:
            yield from rows.take(count)
            return
    elif command.direction == "relative" and count is not None and count > 0:
        yield from _nth(rows, count)
        return
    elif command.direction == "absolute" and count is not None:
        if count == -1:
            yield from _last(rows)
            return
        # To stand before the first row is where a cursor begins.
        if count == 0 and rows.position == 0:
            return
        if count > rows.position:
            yield from _nth(rows, count - rows.position)
            return
    raise SqlError(
        "cursor can only scan forward",
        sqlstate="55000",
        hint="Results are streamed and not kept: run the query again to see earlier rows.",
    )


def moved(rows: ResultRows, command: Fetch) -> int:
    """Skip the rows that the command asks for, and count them."""
    return sum(len(part) for part in fetched(rows, command))


def _nth(rows: ResultRows, count: int) -> Iterator[pa.RecordBatch | Fields]:
    """The row so many rows on; those before it are skipped."""
    skipped = sum(len(part) for part in rows.take(count - 1))
    if skipped == count - 1:
        yield from rows.take(1)


def _last(rows: ResultRows) -> Iterator[pa.RecordBatch | Fields]:
    final: pa.RecordBatch | Fields | None = None
    for part in rows.take():
        final = part
    if final is not None:
        yield final[len(final) - 1 :]
