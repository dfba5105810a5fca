"""Row ranges of an input, cut into what one task reads."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.batch.inputs.conform import check_schema, conform
from penstock.batch.inputs.files import ensure_unchanged
from penstock.batch.inputs.formats.base import FilePiece, make_format
from penstock.batch.inputs.index import Index, read_index
from penstock.errors import BadInput, PenstockError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.batch.inputs.model import Input, InputFile, Options
    from penstock.core.ranges import Range
    from penstock.storage import Storage

BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Split:
    """Consecutive rows of an input, to be read by one task. Small, and safe to pickle."""

    input_name: str
    format: str
    options: Options
    text_schema: pa.Schema | None
    declared: bool
    schema: pa.Schema
    pieces: tuple[FilePiece, ...]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    def batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Exactly ``rows`` rows with the split's schema, in batches of at most ``batch_rows``.

        Raises `InputChanged` if a file is not, or no longer, the one that was registered: it is
        looked at before the first and after the last row. A file that cannot be read is `BadInput`.
        """
        return _rebatch(self._read(batch_rows), batch_rows)

    def _read(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        reader = make_format(self.format, self.options, self.text_schema, declared=self.declared)
        for piece in self.pieces:
            with _watching(self.input_name, piece):
                row = piece.begin
                for batch in reader.read(piece, self.schema.names, batch_rows):
                    yield conform(batch, self.schema, file=piece.file.path, row=row)
                    row += batch.num_rows
                if row != piece.end:
                    raise BadInput(f"{piece.file.path}: read {row - piece.begin} rows, not {piece.rows}")


def splits(
    registered: Input,
    storage: Storage,
    rows: Range | None,
    tasks: int,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
) -> list[Split]:
    """Cut a row range for at most ``tasks`` tasks; the splits' rows, in order, are the range's.

    None are the rows of an input that has none.

    A cut is moved to a nearby place where a file can be entered (a row group, say), so that two
    tasks need not decode the same rows. ``schema`` is what the batches shall conform to, by
    default the input's; ``columns`` leaves only some of its columns.
    """
    if tasks < 1:
        raise UsageError(f"a range cannot be read by {tasks} tasks")
    target = _project(registered, schema if schema is not None else registered.schema, columns)
    check_schema(registered.schema, target, file=f"input {registered.name!r}")
    if rows is None:
        return []
    index = read_index(storage, registered)
    files = list(registered.covering(rows))
    cuts = _cuts(rows, tasks, _entries(files, index, rows))
    made = []
    for begin, end in pairwise(cuts):
        pieces = tuple(
            _piece(
                file, index, max(begin, file.start), min(end, file.end), registered.text_schema is not None
            )
            for file in files
            if file.start < end and begin < file.end
        )
        made.append(
            Split(
                registered.name,
                registered.format,
                registered.options,
                registered.text_schema,
                registered.declared,
                target,
                pieces,
            )
        )
    return made


def _project(registered: Input, schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    unknown = [name for name in columns if name not in schema.names]
    if unknown or not columns:
        what = f"has no column {', '.join(unknown)}" if unknown else "cannot be read without any column"
        raise UsageError(f"input {registered.name!r} {what}", hint=f"columns: {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in columns])


def _entries(files: Sequence[InputFile], index: Index, rows: Range) -> list[int]:
    """The input's row numbers, inside the range, at which a file can be entered."""
    found: list[int] = []
    for file in files:
        starts = index.rows[file.mark : file.mark + file.marks] + file.start
        low, high = np.searchsorted(starts, (rows.begin + 1, rows.end))
        found.extend(starts[low:high].tolist())
    return sorted(set(found))


def _cuts(rows: Range, tasks: int, entries: Sequence[int]) -> list[int]:
    """Even cuts, each moved to the nearest entry when that is within a quarter of a split."""
    tasks = min(tasks, rows.rows)
    even = np.linspace(rows.begin, rows.end, tasks + 1).astype(np.int64)[1:-1]
    if entries and len(even):
        places = np.array(entries, np.int64)
        right = np.searchsorted(places, even).clip(0, len(places) - 1)
        left = (right - 1).clip(0)
        nearest = np.where(abs(places[left] - even) <= abs(places[right] - even), places[left], places[right])
        even = np.where(abs(nearest - even) * 4 <= rows.rows / tasks, nearest, even)
    return sorted({rows.begin, *even.tolist(), rows.end})


def _piece(file: InputFile, index: Index, begin: int, end: int, text: bool) -> FilePiece:
    begin, end = begin - file.start, end - file.start
    rows = index.rows[file.mark : file.mark + file.marks]
    first = int(np.searchsorted(rows, begin, side="right")) - 1
    last = int(np.searchsorted(rows, end, side="left"))
    chosen = slice(first, last + 1, 1 if text else last - first)
    places = index.places[file.mark : file.mark + file.marks]
    return FilePiece(
        file=file.stamp,
        begin=begin,
        end=end,
        mark_rows=tuple(rows[chosen].tolist()),
        marks=tuple(places[chosen].tolist()),
        immutable=bool(file.sha256),
    )


@contextmanager
def _watching(input_name: str, piece: FilePiece) -> Iterator[None]:
    ensure_unchanged([piece.file], input_name)
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, BadInput) as error:
        ensure_unchanged([piece.file], input_name)
        if isinstance(error, PenstockError):
            raise
        raise BadInput(
            f"{piece.file.path}, rows {piece.begin}-{piece.end}, cannot be read: {error}",
            hint="mend the file and register it again; if a type is wrong, declare the table's schema",
        ) from error
    ensure_unchanged([piece.file], input_name)


def _rebatch(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """No batch larger than ``most``; many small ones together, since each costs its handling."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if held and rows + batch.num_rows > most:
            yield _together(held)
            held, rows = [], 0
        if batch.num_rows * 2 >= most and not held:
            yield from (batch.slice(at, most) for at in range(0, batch.num_rows, most))
        elif batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
    if held:
        yield _together(held)


def _together(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    return held[0] if len(held) == 1 else pa.concat_batches(held)
