"""Files that grow, such as logs: each file is a part, and its lines are rows when they are complete.

::

    TailSource("/var/log/app/*.log")                          # one row a line
    TailSource("/var/log/app/events.jsonl", Events, format="jsonl")

Files are on a local disk, or on one that all instances share under the same paths. They may only be appended
to. What is promised when a file makes room for the next one:

*Renamed* (``app.log`` becomes ``app.log.1``, and the writer opens ``app.log`` anew). Nothing is lost and
nothing comes twice, as long as the old file stays in its folder until it was read: it is found there by its
inode, also by another instance, and read to its end; then the new file is read from its begin. The old one
counts as ended when the new one has its first byte, so the writer must not go back to it. If the old file is
gone (removed, compressed, moved to another folder) before all of it was read and committed, the rest of it is
lost; an instance that has it open still reads it. Of several renamings while nobody reads, the files in
between are not read.

*Emptied* (``copytruncate``). What was not read and committed by then is lost: the copy is never read. Then
the file is read from its begin. Use this only where losing lines is bearable.

Neither hands out a row twice. The log has a warning for each of these moments, and says what may be lost. A
line without its end, in a file that has ended, is no row. The names that old files get must not match the
pattern: under such a name a file would be a part of its own. Where that can be seen from a name, it is
refused.
"""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.batch.inputs.files import FileStamp, is_url, refuse_compressed
from penstock.batch.inputs.formats.jsonl import JsonLines, jsonl_schema
from penstock.batch.inputs.formats.text import TextFormat
from penstock.batch.inputs.model import Options
from penstock.errors import DefinitionError, UsageError
from penstock.sources.base import Part, StatefulSource
from penstock.sources.files.followed import FilePosition, Followed, find_renamed, inode_and_size
from penstock.sources.files.formats import Errors, PlainLines, csv_format, described
from penstock.sources.files.text import TextReader
from penstock.types.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sources.state import State

_log = logging.getLogger(__name__)

Format = Literal["lines", "jsonl", "csv"]

_FORMATS = ("lines", "jsonl", "csv")
_PLAIN = {"line", "path"}
_OLD = re.compile(r"(.+?)(?:[.-]\d[\dT:._-]*|\.old|\.bak)?(?:\.(?:gz|bz2|zst|zstd|xz|lz4))?", re.DOTALL)
"""A name that may have been given to an old file; the group is the name it had."""


class Lines(Table):
    """What a `TailSource` reads by itself."""

    line: str


class TailSource(StatefulSource):
    """The files that a pattern matches, or the one at a path, which need not be there yet. It never ends.

    ``format="lines"`` wants a table with the field ``line: str``, and ``path: str`` if the path of the file
    is wanted too. CSV takes the options ``header``, ``delimiter``, ``quote`` and ``null_values``. Bytes that
    are not UTF-8 stop the stream, or become replacement characters with ``errors="replace"`` (of plain
    lines).
    """

    grows = True

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        table: type[Table] = Lines,
        *,
        format: Format = "lines",  # noqa: A002 - the word that people know
        errors: Errors = "strict",
        **options: Any,
    ) -> None:
        text = os.fspath(pattern)
        if is_url(text):
            raise UsageError(f"{text}: only local files can be followed", hint="use DirectorySource")
        if format not in _FORMATS:
            raise UsageError(f"there is no format {format!r}", hint=f"formats: {', '.join(_FORMATS)}")
        if format == "lines":
            _check_plain(table)
        self.table = table
        self.format = format
        self.errors = errors
        self.options = Options.parse(format, options)
        self.pattern = str(Path(text.removeprefix("file://")).expanduser().absolute())
        self.folder = _folder(self.pattern)

    def describe(self) -> dict[str, object]:
        how = {"csv": described(self.options)} if self.format == "csv" else {}
        return {"files": self.pattern, "format": self.format, **how}

    def list_parts(self) -> list[str]:
        if Path(self.pattern).is_dir():
            raise UsageError(f"{self.pattern} is a folder", hint=f"name its files: {self.pattern}/*.log")
        if not glob.has_magic(self.pattern):
            return [Path(self.pattern).name]
        found = sorted(path for path in map(Path, glob.iglob(self.pattern, recursive=True)) if path.is_file())  # noqa: PTH207
        for path in found:
            self._check_name(path)
        return [str(path.relative_to(self.folder)) for path in found]

    def build_part(self, part: str, state: State) -> TailPart:
        return TailPart(self, f"{self.folder}/{part}", FilePosition(**state) if state else None)

    @property
    def names(self) -> re.Pattern[str]:
        """What names of files in one folder the pattern matches."""
        last = Path(self.pattern).name
        return re.compile(fnmatch.translate("*" if last == "**" else last))

    def parser(self, path: str, log: Followed) -> TextFormat | None:
        """How the lines of a file are parsed; None as long as the header of a CSV file is not there."""
        schema = self.table.input_schema()
        file = FileStamp(path, 0, 0)
        if self.format == "lines":
            return PlainLines(schema, path, self.errors)
        if self.format == "jsonl":
            return JsonLines(jsonl_schema(file, schema), strict=False)
        return csv_format(file, log.read_at, self.options, schema, grows=True)

    def _check_name(self, path: Path) -> None:
        before = _OLD.fullmatch(path.name)
        if before is not None and before[1] != path.name and self.names.fullmatch(before[1]):
            raise UsageError(
                f"{self.pattern} matches {path.name}, which may be an old file that was named {before[1]}",
                left="nothing was read of it: its rows might come twice",
                hint="use a pattern that matches only one of them, such as *.log or name-*",
            )
        refuse_compressed([FileStamp(str(path), 0, 0)])


class TailPart(Part):
    """State: inode, byte offset and row in the file that is being read, and what makes it known again."""

    def __init__(self, source: TailSource, path: str, at: FilePosition | None) -> None:
        self._source = source
        self._path = path
        self._at = at
        self._log: Followed | None = None
        self._reader: TextReader | None = None

    def poll(self, limit: int) -> pa.RecordBatch | None:
        if self._reader is None or not self._reader.is_ahead:
            # Looked at before reading: what was written before there was a next file is not missed.
            after = inode_and_size(self._path)
            self._ready()
            batch = self._read(limit)
            if batch is not None or not self._has_ended(after):
                return batch
            self._go_on()
        return self._read(limit)

    def snapshot(self) -> State:
        return None if self._at is None else asdict(self._at)

    def suspend(self) -> None:
        if self._reader is not None:
            self._reader.rest()

    def close(self) -> None:
        self._reader = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _read(self, limit: int) -> pa.RecordBatch | None:
        if self._log is None:
            return None
        if self._reader is None:
            self._reader = self._open_reader(self._log)
        batch = None if self._reader is None else self._reader.next(limit)
        if batch is not None and self._reader is not None:
            self._log.advance(self._reader.consumed, batch.num_rows)
        self._at = self._log.at
        return batch

    def _open_reader(self, log: Followed) -> TextReader | None:
        parser = self._source.parser(self._path, log)
        if parser is None:
            return None
        schema, file = self._source.table.input_schema(), FileStamp(self._path, 0, 0)
        at = log.at
        return TextReader(parser, schema, file, log.read_at, offset=at.offset, row=at.row, grows=True)

    # which file

    def _ready(self) -> None:
        """Have the right file open at the right place, if there is one."""
        if self._log is None:
            self._log = self._opened()
        elif not self._log.is_intact():
            self._warn_emptied()
            self._log.start_again()
            self._reader = None

    def _opened(self) -> Followed | None:
        """The file to go on with after the part was built."""
        log = Followed.open(self._path)
        if self._at is None or (log is not None and log.go_to(self._at)):
            return log
        if log is not None and log.at.inode == self._at.inode:
            self._warn_emptied()
            return log
        old = find_renamed(self._path, self._at, self._source.names)
        if old is not None:
            if log is not None:
                log.close()
            return old
        if log is not None:
            _log.warning(
                "%s is another file now, and the one before is gone: what was not read of it behind byte %d "
                "is lost; the new file is read from its begin",
                self._path,
                self._at.offset,
            )
        return log

    def _has_ended(self, after: tuple[int, int] | None) -> bool:
        """Whether the file that is open makes room for the next one, which was seen before reading."""
        if self._log is None or after is None:
            return False
        inode, size = after
        return inode != self._log.at.inode and size > 0

    def _go_on(self) -> None:
        """Leave a file that was read to its end for the one that is at the path now."""
        following = Followed.open(self._path)
        if following is None or self._log is None:
            return
        _log.warning(
            "%s is another file now, which is read from its begin; the one before was read to byte %d, and "
            "%d bytes behind it are no complete row",
            self._path,
            self._log.at.offset,
            self._log.unread,
        )
        self._log.close()
        self._log, self._reader = following, None

    def _warn_emptied(self) -> None:
        _log.warning(
            "%s was emptied or written anew: what was not read of it behind byte %d is lost; it is read from "
            "its begin",
            self._path,
            self._at.offset if self._at else 0,
        )


def _folder(pattern: str) -> str:
    """The folder below which parts are named: all of a pattern that has no wildcard."""
    folder = Path(pattern).parent
    while glob.has_magic(str(folder)):
        folder = folder.parent
    return str(folder)


def _check_plain(table: type[Table]) -> None:
    fields = table.input_schema()
    wrong = [f.name for f in fields if f.name not in _PLAIN or str(f.type) != "string"]
    if wrong or "line" not in fields.names:
        raise DefinitionError(
            f"table {table.__table_name__} cannot hold plain lines",
            hint="its fields are line: str and, if it is wanted, path: str; other fields are derived()",
        )
