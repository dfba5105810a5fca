"""Arrow IPC files: the footer finds the record batches, and only those of a range are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.batch.inputs.files import FileStamp, open_file
from penstock.batch.inputs.formats.base import Facts, FilePiece, Format, present, trim
from penstock.core.arrow_data import sound
from penstock.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAGIC = b"ARROW1"


class Arrow(Format):
    """Feather version 2 is the same format; version 1 and Arrow streams are refused."""

    def facts(self, file: FileStamp) -> Facts:
        with open_file(file.path) as source:
            if source.read(len(_MAGIC)) != _MAGIC:
                raise BadInput(
                    f"{file.path} is not an Arrow IPC file",
                    hint="an Arrow stream or a version-1 Feather file has to be rewritten with "
                    "pyarrow.ipc.new_file",
                )
            schema = pa.ipc.open_file(source).schema
            reader = pa.ipc.open_file(source, options=_only([_narrowest(schema)] if len(schema) else []))
            sizes = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
            starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64)
            return Facts(int(starts[-1]), schema, starts, np.arange(len(starts)))

    def read(self, piece: FilePiece, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        del batch_rows  # a record batch is what the file has it to be
        with piece.open() as source:
            schema = pa.ipc.open_file(source).schema
            wanted = set(present(columns, schema.names))
            reader = pa.ipc.open_file(
                source, options=_only([i for i, name in enumerate(schema.names) if name in wanted])
            )
            batches = (_sound(reader, i, piece.file) for i in range(piece.marks[0], piece.marks[-1]))
            yield from trim(batches, piece.begin - piece.mark_rows[0], piece.rows, piece.file)


def _sound(reader: pa.ipc.RecordBatchFileReader, number: int, file: FileStamp) -> pa.RecordBatch:
    try:
        return sound(reader.get_batch(number))
    except pa.ArrowException as error:
        raise BadInput(f"{file.path} is damaged: record batch {number}: {error}") from error


def _only(fields: list[int]) -> pa.ipc.IpcReadOptions:
    """An empty list means all of them to pyarrow."""
    return pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)


def _narrowest(schema: pa.Schema) -> int:
    """The column that is cheapest to read, for counting rows: pyarrow reads at least one."""

    def width(index: int) -> int:
        try:
            return int(schema.field(index).type.bit_width)
        except ValueError:
            return 1 << 30

    return min(range(len(schema)), key=width)
