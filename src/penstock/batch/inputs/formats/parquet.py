"""Parquet: the footer gives rows and schema; only row groups that overlap a range are opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.batch.inputs.files import FileStamp, is_url, open_file
from penstock.batch.inputs.formats.base import Facts, FilePiece, Format, present, trim

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BUFFER = 256 << 10


class Parquet(Format):
    """pyarrow cannot seek inside a row group: rows before the range are decoded and dropped.

    What comes after the range is neither decoded nor, on a local disk, read.
    """

    def facts(self, file: FileStamp) -> Facts:
        with open_file(file.path) as source, _open(source) as parquet:
            metadata = parquet.metadata
            groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            starts = np.concatenate(([0], np.cumsum(groups, dtype=np.int64))).astype(np.int64)
            return Facts(metadata.num_rows, parquet.schema_arrow, starts, np.arange(len(starts)))

    def read(self, piece: FilePiece, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        # A request to an object store costs more than the bytes: there, whole column chunks are fetched.
        fetch = is_url(piece.file.path)
        with (
            piece.open() as source,
            _open(source, fetch=fetch) as parquet,
        ):
            batches = parquet.iter_batches(
                batch_size=batch_rows,
                row_groups=list(range(piece.marks[0], piece.marks[-1])),
                columns=present(columns, parquet.schema_arrow.names),
                use_threads=False,
            )
            yield from trim(batches, piece.begin - piece.mark_rows[0], piece.rows, piece.file)


def _open(source: pa.NativeFile, *, fetch: bool = False) -> pq.ParquetFile:
    # Spark still writes times as INT96 by default; they have no more than microseconds in them, and
    # nanoseconds would overflow for years that people use to say "never".
    return pq.ParquetFile(
        source,
        pre_buffer=fetch,
        buffer_size=0 if fetch else _BUFFER,
        coerce_int96_timestamp_unit="us",
    )
