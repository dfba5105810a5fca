"""Rows of a Parquet or Arrow file from any row on, in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.batch.inputs.conform import check_schema, conform
from penstock.batch.inputs.files import FileStamp
from penstock.batch.inputs.formats.base import Facts, FilePiece, Format
from penstock.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 16_384


class MarkedReader:
    """Reads a file forwards; its footer says at which row group or record batch to enter it.

    The file stays open until the end, since a row group cannot be entered in its middle.
    """

    offset = 0

    def __init__(self, marked: Format, schema: pa.Schema, file: FileStamp, *, row: int = 0) -> None:
        facts = marked.facts(file)
        check_schema(facts.schema, schema, file=file.path)
        if row > facts.rows:
            raise BadInput(f"{file.path} has {facts.rows} rows, and {row} were read before")
        self.row = row
        self._rows = facts.rows
        self._schema = schema
        self._file = file
        self._held: pa.RecordBatch | None = None
        self._batches = marked.read(_piece(file, facts, row), schema.names, _BATCH_ROWS)

    @property
    def at_end(self) -> bool:
        """Whether the file has no more rows."""
        return self.row >= self._rows

    def next(self, limit: int) -> pa.RecordBatch | None:
        """At most ``limit`` rows; None at the end."""
        if self.at_end:
            return None
        held = self._fetch() if self._held is None else self._held
        batch = held.slice(0, limit)
        self._held = held.slice(limit) if held.num_rows > limit else None
        self.row += batch.num_rows
        return batch

    def rest(self) -> None:
        """Nothing to give back: entering the row group again would cost more than what is held."""

    def close(self) -> None:
        self._held = None
        # The file is closed by the block inside of the generator.
        self._batches.close()  # type: ignore[attr-defined]

    def _fetch(self) -> pa.RecordBatch:
        batch = next(batch for batch in self._batches if batch.num_rows)
        return conform(batch, self._schema, file=self._file.path, row=self.row)


def _piece(file: FileStamp, facts: Facts, row: int) -> FilePiece:
    """The rows from ``row`` to the end, entered at the last mark that is not behind them."""
    first = max(0, int(np.searchsorted(facts.mark_rows, row, side="right")) - 1)
    marks = (first, len(facts.mark_rows) - 1)
    return FilePiece(
        file,
        row,
        facts.rows,
        tuple(int(facts.mark_rows[n]) for n in marks),
        tuple(int(facts.mark_places[n]) for n in marks),
    )
