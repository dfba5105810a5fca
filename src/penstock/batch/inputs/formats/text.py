"""What CSV and JSON lines share: an index of byte offsets, and byte ranges parsed by pyarrow."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.batch.inputs.files import FileStamp, open_file
from penstock.batch.inputs.formats.base import Facts, FilePiece, Format
from penstock.core.ranges import counted
from penstock.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.batch.inputs.scan import TextRecords

GRANULE = 8192
BLOCK = 8 << 20
HEAD = 1 << 20
_CHUNK = 32 << 20
_BOM = b"\xef\xbb\xbf"


class TextFormat(Format):
    """One pass over a file finds its records; a mark is kept for every 8,192nd and for every block."""

    text = True

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    @abstractmethod
    def records(self, text: bytes, file: FileStamp, *, final: bool) -> TextRecords:
        """The records of a text that begins at one."""

    @abstractmethod
    def parse(self, text: pa.Buffer, columns: Sequence[str]) -> pa.Table:
        """The rows of whole records. May raise what pyarrow raises."""

    def parsed(self, text: pa.Buffer, columns: Sequence[str], row: int) -> pa.Table:
        """As `parse`, with errors that name columns, and the file's rows: ``row`` is the text's first."""
        try:
            return self.parse(text, columns)
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(located(str(error), self.schema.names, row)) from error

    def after_header(self, file: FileStamp, head: bytes, records: TextRecords) -> int:
        """How many of the file's first records are no rows. Checks them against the schema."""
        del file, head, records
        return 0

    def probe(self, file: FileStamp, columns: Sequence[str]) -> None:
        """Parse the first records, so that a wrong type or option is found before a run."""
        text = head(file)
        records = self.records(text, file, final=len(text) < HEAD)
        starts = records.starts[self.after_header(file, text, records) if len(records.starts) else 0 :]
        if not len(starts):
            return
        try:
            self.parsed(pa.py_buffer(text[int(starts[0]) : records.consumed]), columns, 0)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadInput(
                f"{file.path} does not fit: {error}",
                hint="check the types that the table declares, and the options, against the file",
            ) from error

    def facts(self, file: FileStamp) -> Facts:
        rows, mark_rows, mark_places = 0, [0], [0]
        headed = False
        for base, text, records in self._blocks(file):
            starts = records.starts
            if not headed and len(starts):
                headed = True
                starts = starts[self.after_header(file, text, records) :]
            if not len(starts):
                continue
            marked = (np.arange(rows, rows + len(starts)) % GRANULE) == 0
            marked[0] = True
            chosen = np.flatnonzero(marked)
            if rows == 0:
                mark_rows, mark_places = [], []
            mark_rows += (chosen + rows).tolist()
            mark_places += (starts[chosen] + base).tolist()
            rows += len(starts)
        mark_rows.append(rows)
        mark_places.append(file.bytes)
        return Facts(rows, self.schema, np.array(mark_rows, np.int64), np.array(mark_places, np.int64))

    def read(self, piece: FilePiece, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        with piece.open() as source:
            for first, last in _chunks(piece, batch_rows):
                low, high = piece.mark_rows[first], piece.mark_rows[last]
                size = piece.marks[last] - piece.marks[first]
                text = source.read_at(size, piece.marks[first])
                if len(text) != size:
                    raise BadInput(f"{piece.file.path} ends at byte {piece.marks[first] + len(text)}")
                begin, end = max(piece.begin, low), min(piece.end, high)
                if (begin, end) != (low, high):
                    text = self._cut(text, begin - low, end - low, piece.file)
                table = self.parsed(pa.py_buffer(text), columns, begin)
                if table.num_rows != end - begin:
                    raise BadInput(
                        f"{piece.file.path}, rows {begin}-{end}: parsed as {table.num_rows} rows, "
                        f"not {end - begin}"
                    )
                yield from table.combine_chunks().to_batches()

    def _cut(self, text: bytes, begin: int, end: int, file: FileStamp) -> bytes:
        records = self.records(text, file, final=True)
        if len(records.starts) < end:
            raise BadInput(f"{file.path} has fewer rows than when it was registered")
        return text[int(records.starts[begin]) : int(records.ends[end - 1])]

    def _blocks(self, file: FileStamp) -> Iterator[tuple[int, bytes, TextRecords]]:
        """The file in blocks that begin at a record, with the place of each."""
        with open_file(file.path) as source:
            base = len(_BOM) if source.read(len(_BOM)) == _BOM else 0
            source.seek(base)
            tail, size = b"", BLOCK
            while True:
                fresh = source.read(size)
                text = tail + fresh if tail else fresh
                final = len(fresh) < size
                records = self.records(text, file, final=final)
                if records.consumed:
                    yield base, text, records
                if final:
                    if records.consumed < len(text):
                        raise self.unfinished(file, base + records.consumed)
                    return
                # A record longer than what was read: read twice as much, so that the work stays linear.
                size = BLOCK if records.consumed else 2 * size
                tail = text[records.consumed :]
                base += records.consumed

    def unfinished(self, file: FileStamp, offset: int) -> BadInput:
        """The error for a file whose last record does not end."""
        return BadInput(f"{file.path}: the record at byte {offset} does not end")


def located(message: str, names: Sequence[str], row: int) -> str:
    """What pyarrow says of a text, with the columns' names and rows of the file counted from 0.

    It numbers columns; rows count from 1 in CSV and from 0 in JSON, and begin anew with each text.
    """

    def named(found: re.Match[str]) -> str:
        number = int(found[1])
        return f"column {names[number]}, " if number < len(names) else found[0]

    message = re.sub(r"In CSV column #(\d+): (?=Row #)", named, message)
    message = re.sub(r"Column\(/([^)]*)\)", r"column \1", message)
    message = re.sub(r"Row #(\d+): ", lambda found: f"{counted(row + int(found[1]) - 1)}: ", message)
    return re.sub(r"in row (\d+)", lambda found: f"in {counted(row + int(found[1]))}", message)


def head(file: FileStamp) -> bytes:
    """The first bytes of a file, without a byte-order mark; fewer than `HEAD` if that is all."""
    with open_file(file.path) as source:
        text: bytes = source.read(HEAD + len(_BOM))
    return text.removeprefix(_BOM)[:HEAD]


def _chunks(piece: FilePiece, batch_rows: int) -> Iterator[tuple[int, int]]:
    """Pairs of marks between which there is about one batch, and never very many bytes."""
    first = 0
    for last in range(1, len(piece.marks)):
        if last + 1 == len(piece.marks) or (
            piece.mark_rows[last + 1] - piece.mark_rows[first] > batch_rows
            or piece.marks[last + 1] - piece.marks[first] > _CHUNK
        ):
            yield first, last
            first = last
