"""Which files of a range Spark may read by itself.

Rows that go straight into a DataFrame need not pass through a Python worker when the range covers a
Parquet file as a whole: Spark's own scan gives the same rows, if the file has the declared types, or
integers of fewer bits, and no null where none is allowed (which the footer tells).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from penstock.batch.inputs.files import FileStamp, ensure_unchanged, is_url
from penstock.batch.inputs.model import Input, InputFile
from penstock.core.ranges import Range
from penstock.spark.jvm_parquet import has_nulls


@dataclass(frozen=True, slots=True)
class Whole:
    """The files to be read by Spark, and the rows of the range that they do not hold."""

    name: str
    files: tuple[FileStamp, ...]
    rest: tuple[Range, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)

    def check_unchanged(self) -> None:
        """Raise `InputChanged` if a file is not the one that was registered: before and after reading."""
        ensure_unchanged(self.files, self.name)


def whole_files(registered: Input, rows: Range, schema: pa.Schema) -> Whole | None:
    """What of a range can be read file by file; None unless that is most of it."""
    if registered.format != "parquet":
        return None
    files, rest = [], []
    for file in registered.covering(rows):
        if rows.begin <= file.start and file.end <= rows.end and _eligible(file, schema):
            files.append(file)
        else:
            rest.append(Range(max(rows.begin, file.start), min(rows.end, file.end)))
    if 2 * sum(file.rows for file in files) < rows.rows:
        return None
    return Whole(registered.name, tuple(file.stamp for file in files), tuple(rest))


def _eligible(file: InputFile, schema: pa.Schema) -> bool:
    return not is_url(file.path) and _exact(file.stamp, schema)


def _reads_as(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether Spark reads a column of the one type as the other: there are fewer types in a Parquet file."""
    if have == want:
        return True
    if types.is_int64(want):
        return have in _SIGNED
    return have in _TEXTS and want in _TEXTS


_SIGNED = (pa.int8(), pa.int16(), pa.int32())
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())


@lru_cache(maxsize=4096)
def _exact(file: FileStamp, schema: pa.Schema) -> bool:
    try:
        parquet = pq.ParquetFile(file.path)
    except (OSError, pa.ArrowException):
        return False  # who reads it will say what is wrong with it
    with parquet:
        have = parquet.schema_arrow
        if any(pa.types.is_nested(f.type) or f.name not in have.names for f in schema):
            return False
        if not all(_reads_as(have.field(f.name).type, f.type) for f in schema):
            return False
        required = {f.name for f in schema if not f.nullable and have.field(f.name).nullable}
        return all(has_nulls(parquet.metadata, name) is False for name in required)
