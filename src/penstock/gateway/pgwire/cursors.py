"""FETCH and MOVE: cursors go forward only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.dialect.commands import Fetch
from penstock.errors import SqlError
from penstock.gateway.pgwire.portals import Fields, Rows

if TYPE_CHECKING:
    import pyarrow as pa


def fetched(rows: Rows, command: Fetch) -> Iterator[pa.RecordBatch | Fields]:
    """The rows that the command asks for; the cursor moves as they are taken."""
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


def moved(rows: Rows, command: Fetch) -> int:
    """Skip the rows that the command asks for, and count them."""
    return sum(len(part) for part in fetched(rows, command))


def _nth(rows: Rows, count: int) -> Iterator[pa.RecordBatch | Fields]:
    """The row so many rows on; those before it are skipped."""
    skipped = sum(len(part) for part in rows.take(count - 1))
    if skipped == count - 1:
        yield from rows.take(1)


def _last(rows: Rows) -> Iterator[pa.RecordBatch | Fields]:
    final: pa.RecordBatch | Fields | None = None
    for part in rows.take():
        final = part
    if final is not None:
        yield final[len(final) - 1 :]
