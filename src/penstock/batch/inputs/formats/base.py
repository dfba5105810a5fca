"""What each file format gives: facts about a whole file, and the rows of a range of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.batch.inputs.files import FileStamp, open_file
from penstock.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.batch.inputs.model import Options
    from penstock.batch.inputs.scan import Offsets


@dataclass(frozen=True, slots=True)
class Facts:
    """What was learned about one file.

    Its marks are the places where reading can begin: mark *i* is at row ``mark_rows[i]`` and at
    ``mark_places[i]``, a byte offset for text and an ordinal (of a row group or record batch)
    otherwise. The last mark is the end: the number of rows, and of bytes or groups.
    """

    rows: int
    schema: pa.Schema
    mark_rows: Offsets
    mark_places: Offsets


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Rows ``begin`` to ``end`` of one file, and the marks around them.

    ``first_row`` is the row at ``marks[0]``, which is not after ``begin``; ``marks[-1]`` is the
    place of the first mark that is not before ``end``. Text formats get every mark in between
    with ``mark_rows``, others the first and the last only.
    """

    file: FileStamp
    begin: int
    end: int
    mark_rows: tuple[int, ...]
    marks: tuple[int, ...]
    immutable: bool = False

    @property
    def rows(self) -> int:
        return self.end - self.begin

    def open(self) -> pa.NativeFile:
        return open_file(self.file.path, immutable=self.immutable)


class Format(ABC):
    """How files of one format are read. Holds nothing but what it takes to parse them."""

    text: bool = False

    @abstractmethod
    def facts(self, file: FileStamp) -> Facts:
        """Rows, schema and marks of a file, reading as little of it as the format allows."""

    @abstractmethod
    def read(self, piece: FilePiece, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Exactly the piece's rows, in order, with those of the columns that the file has."""


def make_format(name: str, options: Options, text_schema: pa.Schema | None, *, declared: bool) -> Format:
    """The reader for a format; text formats need to know how their columns are parsed."""
    if name == "parquet":
        from penstock.batch.inputs.formats.parquet import Parquet

        return Parquet()
    if name == "arrow":
        from penstock.batch.inputs.formats.arrow import Arrow

        return Arrow()
    assert text_schema is not None, f"{name} is read with a schema"
    if name == "csv":
        from penstock.batch.inputs.formats.delimited import Csv

        return Csv(options, text_schema)
    from penstock.batch.inputs.formats.jsonl import JsonLines

    return JsonLines(text_schema, strict=not declared)


def trim(
    batches: Iterator[pa.RecordBatch], skip: int, need: int, file: FileStamp
) -> Iterator[pa.RecordBatch]:
    """Drop the first ``skip`` rows, stop after the next ``need``; `BadInput` when they are fewer."""
    for batch in batches:
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        part = batch.slice(skip, need)
        skip = 0
        need -= part.num_rows
        yield part
        if need == 0:
            return
    raise BadInput(f"{file.path} ends {need} rows before its registered end")


def present(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """The columns that a file has; its first one if it has none, so that its rows still count."""
    known = set(names)
    return [name for name in columns if name in known] or list(names[:1])
