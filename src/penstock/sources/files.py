"""A directory of files: each file is a part, and files that appear are picked up.

::

    DirectorySource("/data/orders", Orders)                         # Parquet, CSV, JSON lines, by their names
    DirectorySource("/data/*/orders-*.csv", Orders, delimiter=";")
    DirectorySource("s3://bucket/orders", Orders, grows=False)      # what is there, and then the end

A file must be complete when it appears: write it beside its place, under a name that is not read, and rename
it (an object store shows no other files). Names that begin with ``.`` or ``_``, those of folders too, and
names that end with ``.tmp`` are not read. A file that changes after its first row was read stops the stream;
one that grows for ever is for `TailSource`.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from penstock.errors import BadInput, InputChanged, TransientError, UsageError
from penstock.inputs.files import (
    Stamp,
    changed,
    find,
    guess_format,
    is_url,
    open_file,
    refuse_compressed,
    stamps,
)
from penstock.inputs.formats.base import make_format
from penstock.inputs.formats.jsonl import JsonLines, jsonl_schema
from penstock.inputs.formats.text import TextFormat
from penstock.inputs.model import FORMATS, Options
from penstock.sources._formats import csv_format
from penstock.sources._marked import MarkedReader
from penstock.sources._text import TextReader
from penstock.sources.base import Part, StatefulSource

if TYPE_CHECKING:
    from penstock.sources.state import State
    from penstock.tables import Table

Format = Literal["parquet", "csv", "jsonl", "arrow"]


class DirectorySource(StatefulSource):
    """The files of a folder and the folders in it, of a local pattern, or below the URL of an object store.

    A part is named by the file's path below the folder, or below the part of a pattern that has no wildcard.
    ``format`` is what all files have; without it, the ending of each name says it. CSV takes the options
    ``header``, ``delimiter``, ``quote`` and ``null_values``. Columns are fitted to ``table`` as those of an
    input are: columns that it does not have are left out, and nothing is converted that could lose anything.

    With ``grows=False`` the stream ends when it has read what is there; a file that appears before that is
    still read.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        table: type[Table],
        *,
        format: Format | None = None,  # noqa: A002 - the word that people know
        grows: bool = True,
        **options: Any,
    ) -> None:
        if format is not None and format not in FORMATS:
            raise UsageError(f"there is no format {format!r}", hint=f"formats: {', '.join(FORMATS)}")
        self.table = table
        self.grows = grows
        self.format = format
        self.options = Options.parse(format or "csv", options)
        self.place, self.folder = _places(os.fspath(place))

    def list_parts(self) -> list[str]:
        parts = []
        for file in self._files():
            part = self._part_of(file.path)
            if _is_data(part):
                self._format_of(file)
                parts.append(part)
        return parts

    def build_part(self, part: str, state: State) -> FilePart:
        path = f"{self.folder}/{part}"
        if is_url(self.folder):
            url = urlsplit(self.folder)
            path = urlunsplit(url._replace(path=f"{url.path.rstrip('/')}/{part}"))
        return FilePart(self, path, state)

    def open(self, file: Stamp, row: int, offset: int) -> MarkedReader | TextReader | None:
        """A reader from a row on, which has a place in bytes in a text; None for a text of nothing."""
        schema = self.table.input_schema()
        name = self._format_of(file)
        if name not in ("csv", "jsonl"):
            return MarkedReader(make_format(name, self.options, None, declared=True), schema, file, row=row)
        read_at = _ReadAt(file.path)
        text: TextFormat | None
        if name == "csv":
            text = csv_format(file, read_at, self.options, schema)
        else:
            text = JsonLines(jsonl_schema(file, schema), strict=False)
        return None if text is None else TextReader(text, schema, file, read_at, offset=offset, row=row)

    def _files(self) -> list[Stamp]:
        if not is_url(self.place) and not Path(self.folder).is_dir():
            raise BadInput(f"there is no folder {self.folder}", hint="make it, or check the path")
        try:
            return find(self.place)
        except BadInput:
            return []  # the folder is there, and nothing in it yet

    def _part_of(self, path: str) -> str:
        if is_url(path):
            return urlsplit(path).path.removeprefix(urlsplit(self.folder).path).strip("/")
        part = str(Path(path).relative_to(Path(self.folder).resolve()))
        if not part.isprintable():
            raise BadInput(f"{path!r}: the name of a file must be printable text", hint="rename the file")
        return part

    def _format_of(self, file: Stamp) -> str:
        if self.format is None:
            return guess_format([file])
        if self.format in ("csv", "jsonl"):
            refuse_compressed([file])
        return self.format


class FilePart(Part):
    """State: the next row, its byte (of text), and size and time of the file when it was first looked at."""

    def __init__(self, source: DirectorySource, path: str, state: State) -> None:
        self._source = source
        self._path = path
        self._state = state
        self._file = Stamp(path, state["bytes"], state["mtime_ns"]) if state else None
        self._reader: MarkedReader | TextReader | None = None
        self._finished = False

    def poll(self, limit: int) -> pa.RecordBatch | None:
        if self._finished:
            return None
        with self._reading():
            if self._reader is None:
                self._reader = self._open()
            batch = None if self._reader is None else self._reader.next(limit)
            self._finished = self._reader is None or self._reader.at_end
        # Asking an object store takes a request: it is asked where a file begins and ends.
        if self._finished or not is_url(self._path):
            self._check_unchanged()
        self._keep_state()
        return batch

    def is_finished(self) -> bool:
        return self._finished

    def snapshot(self) -> State:
        return self._state

    def suspend(self) -> None:
        if self._reader is not None:
            self._reader.rest()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self) -> MarkedReader | TextReader | None:
        """A reader at the state's place; None for a file of nothing."""
        if self._file is None:
            self._file = stamps([self._path])[0]
        else:
            self._check_unchanged()
        if self._file is None:
            raise FileNotFoundError(self._path)
        if not self._file.bytes:
            return None
        state = self._state or {}
        return self._source.open(self._file, state.get("row", 0), state.get("offset", 0))

    def _keep_state(self) -> None:
        assert self._file is not None
        row, offset = (self._reader.row, self._reader.offset) if self._reader else (0, 0)
        file = self._file
        self._state = {"row": row, "offset": offset, "bytes": file.bytes, "mtime_ns": file.mtime_ns}

    def _check_unchanged(self) -> None:
        expected = self._file or Stamp(self._path, 0, 0)
        if (difference := changed(expected, stamps([self._path])[0])) is not None:
            raise InputChanged(
                f"a file changed before it was read to its end: {difference}",
                left="rows that were committed came from the file as it was",
                hint="put the file back as it was (content and modification time, as `cp -p` does). Files "
                "must be complete when they appear: write them beside their place and rename them",
            )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """What goes wrong with a file is told by its name; first of all, whether it changed."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, BadInput) as error:
            self._check_unchanged()
            if isinstance(error, BadInput) or (isinstance(error, OSError) and error.errno is not None):
                raise
            if isinstance(error, OSError) and is_url(self._path):
                raise TransientError(f"{self._path} cannot be read now: {error}") from error
            raise BadInput(
                f"{self._path} cannot be read: {error}",
                hint="replace the file by a whole one under another name, and remove this one",
            ) from error


class _ReadAt:
    """Opens the file for each piece: many files may be read in turn, and a process can open only so many."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, size: int, offset: int) -> bytes:
        with open_file(self._path) as file:
            data: bytes = file.read_at(size, offset)
            return data


def _places(place: str) -> tuple[str, str]:
    """What `find` looks for, and the folder below which parts are named."""
    if is_url(place):
        if glob.has_magic(urlsplit(place).path):
            raise UsageError(
                f"{place}: patterns work for local paths only", hint="name the folder of the files"
            )
        return place, place
    path = Path(place.removeprefix("file://")).expanduser().absolute()
    plain = path
    while glob.has_magic(str(plain)):
        plain = plain.parent
    return str(path), str(plain)


def _is_data(part: str) -> bool:
    return not part.endswith(".tmp") and not any(name.startswith((".", "_")) for name in part.split("/"))
