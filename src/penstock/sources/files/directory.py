"""A directory of files: each file is a part, and files that appear are picked up.

::

    DirectorySource("/data/orders", Orders)                         # Parquet, CSV, JSON lines, by their names
    DirectorySource("/data/*/orders-*.csv", Orders, delimiter=";")
    DirectorySource("s3://bucket/orders", Orders, grows=False)      # what is there, and then the end

A file must be complete when it appears: write it beside its place, under a name that is not read, and rename
it (an object store shows no other files). Names that begin with ``.`` or ``_``, those of folders too, and
names that end with ``.tmp`` are not read. A file that changes after its first row was read stops the stream;
one that grows for ever is for `TailSource`. A file that is gone before anything of it was read counts as
read, with a warning in the log.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from penstock.batch.inputs.files import (
    FileStamp,
    changed,
    find,
    guess_format,
    is_url,
    open_file,
    refuse_compressed,
    stamps,
)
from penstock.batch.inputs.formats.base import make_format
from penstock.batch.inputs.formats.jsonl import JsonLines, jsonl_schema
from penstock.batch.inputs.formats.text import TextFormat
from penstock.batch.inputs.model import FORMATS, Options
from penstock.config import shown_url
from penstock.errors import BadInput, InputChanged, TransientError, UsageError
from penstock.sources.base import Part, StatefulSource
from penstock.sources.files.formats import csv_format, described
from penstock.sources.files.marked import MarkedReader
from penstock.sources.files.text import TextReader

if TYPE_CHECKING:
    from penstock.sources.state import State
    from penstock.types.tables import Table

_log = logging.getLogger(__name__)

Format = Literal["parquet", "csv", "jsonl", "arrow"]


class DirectorySource(StatefulSource):
    """The files of a folder and the folders in it, of a local pattern, or below the URL of an object store.

    A part is named by the file's path below the folder, or below the part of a pattern that has no wildcard.
    ``format`` is what all files have, whatever their names are. Without it, the ending of each name says it,
    and a file whose name does not is left out with a warning in the log; if that leaves none, or one is
    compressed, the stream stops. CSV takes the options ``header``, ``delimiter``, ``quote`` and
    ``null_values``. Columns are fitted to ``table`` as those of an input are: columns that it does not have
    are left out, and nothing is converted that could lose anything.

    With ``grows=False`` the stream ends when it has read what is there; a file that appears before that is
    still read. ``missing`` says what becomes of a file that is gone after some of its rows were read:
    ``"fail"`` stops the stream until it is back, ``"skip"`` gives up what was not read, with a warning.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        table: type[Table],
        *,
        format: Format | None = None,  # noqa: A002 - the word that people know
        grows: bool = True,
        missing: Literal["fail", "skip"] = "fail",
        **options: Any,
    ) -> None:
        if format is not None and format not in FORMATS:
            raise UsageError(f"there is no format {format!r}", hint=f"formats: {', '.join(FORMATS)}")
        if missing not in ("fail", "skip"):
            raise UsageError(f"missing={missing!r} is not possible", hint="'fail' or 'skip'")
        self.table = table
        self.grows = grows
        self.missing = missing
        self.format = format
        self.options = Options.parse(format or "csv", options)
        self.place, self.folder = _places(os.fspath(place))

    def describe(self) -> dict[str, object]:
        how = {} if self.format in ("parquet", "arrow", "jsonl") else {"csv": described(self.options)}
        return {"files": shown_url(self.place), "format": self.format or "by name", **how}

    def list_parts(self) -> list[str]:
        parts = []
        unknown = None
        for file in self._files():
            part = self._part_of(file.path)
            if not _is_data(part):
                continue
            refuse_compressed([file] if self.format in (None, "csv", "jsonl") else [])
            try:
                self._format_of(file)
            except BadInput as error:
                unknown = unknown or error
                _left_out(file.path)
            else:
                parts.append(part)
        if unknown is not None and not parts:
            raise unknown
        return parts

    def build_part(self, part: str, state: State) -> FilePart:
        path = f"{self.folder}/{part}"
        if is_url(self.folder):
            url = urlsplit(self.folder)
            path = urlunsplit(url._replace(path=f"{url.path.rstrip('/')}/{part}"))
        return FilePart(self, path, state)

    def open(self, file: FileStamp, row: int, offset: int) -> MarkedReader | TextReader | None:
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

    def check_folder(self) -> None:
        """Raise `BadInput` if a local folder is not there at all: its files are then not gone one by one."""
        if not is_url(self.place) and not Path(self.folder).is_dir():
            raise BadInput(f"there is no folder {self.folder}", hint="make it, or check the path")

    def _files(self) -> list[FileStamp]:
        self.check_folder()
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

    def _format_of(self, file: FileStamp) -> str:
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
        self._file = FileStamp(path, state["bytes"], state["mtime_ns"]) if state else None
        self._reader: MarkedReader | TextReader | None = None
        self._finished = False

    def poll(self, limit: int) -> pa.RecordBatch | None:
        if self._finished:
            return None
        try:
            return self._next(limit)
        except _GoneError:
            rest = "nothing was read of it" if self._state is None else f"read up to row {self._state['row']}"
            _log.warning("%s is gone and counts as finished: %s", shown_url(self._path), rest)
            self.close()
            self._finished = True
            return None

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

    def _next(self, limit: int) -> pa.RecordBatch | None:
        with self._reading():
            if self._reader is None:
                self._reader = self._open()
            batch = None if self._reader is None else self._reader.next(limit)
            is_last = self._reader is None or self._reader.at_end
        # Asking an object store takes a request: it is asked where a file begins and ends.
        if is_last or not is_url(self._path):
            self._check_unchanged()
        self._finished = is_last
        self._keep_state()
        return batch

    def _open(self) -> MarkedReader | TextReader | None:
        """A reader at the state's place; None for a file of nothing."""
        if self._file is None:
            self._file = stamps([self._path])[0]
        self._check_unchanged()
        assert self._file is not None
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
        now = stamps([self._path])[0]
        if now is None and (self._state is None or self._source.missing == "skip"):
            self._source.check_folder()
            raise _GoneError(self._path)
        expected = self._file or FileStamp(self._path, 0, 0)
        if (difference := changed(expected, now)) is not None:
            raise InputChanged(
                f"a file changed before it was read to its end: {difference}",
                left="rows that were committed came from the file as it was",
                hint="restore the file as it was (content and modification time, as `cp -p` does); or remove "
                "it and set missing='skip' of the source, which gives up what was not read. Files must be "
                "complete when they appear: write them beside their place and rename them",
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
                hint="remove the file and bring a whole one under another name; if rows of it were committed "
                "already, set missing='skip' of the source, and bring only the others",
            ) from error


class _GoneError(Exception):
    """The file is not there, and need not be."""


class _ReadAt:
    """Opens the file for each piece: many files may be read in turn, and a process can open only so many."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, size: int, offset: int) -> bytes:
        with open_file(self._path) as file:
            data: bytes = file.read_at(size, offset)
            return data


@lru_cache(maxsize=10_000)
def _left_out(path: str) -> None:
    """Say so once of each file: it is listed again and again."""
    _log.warning("%s is left out: its name does not say what format it has", shown_url(path))


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
