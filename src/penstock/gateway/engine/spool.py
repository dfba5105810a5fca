"""Large results: executors write Arrow files, and the gateway streams them in the order of the partitions.

::

    <folder>/<query>/part-00003-17-0.arrow    a piece of partition 3, written by task attempt 17
    <folder>/<query>/part-00003               says which pieces partition 3 is made of

On a shared file system a partition is read as soon as its task has ended, while others still run: the
attempt that links its list to the final name first is the one that counts, and that never changes. An object
store has no such link, so there the lists that the job returns are read, after its end. Each piece is deleted
when it was sent.

The gateway holds one batch in memory. What bounds the disk is the size of the result.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.gateway.engine.registry import made_at
from penstock.spark.faults import carried
from penstock.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIECE = 64 << 20
"""A piece is closed when it is larger than this."""
_ANSWER = pa.schema([("part", pa.int32()), ("pieces", pa.string())])
_DDL = "part int, pieces string"
_WAIT = 0.02
_DAY = 86_400.0


def _name(part: int) -> str:
    return f"part-{part:05d}"


@dataclass(frozen=True, slots=True)
class Writer:
    """A task that writes its partition and hands over only the names of what it wrote."""

    folder: str
    piece: int = PIECE

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part, attempt = context.partitionId(), context.taskAttemptId()
        with carried("result"):
            pieces = self._write(batches, part, attempt)
            listed = self._settle(pieces, part, attempt)
        yield pa.RecordBatch.from_pydict({"part": [part], "pieces": [listed]}, schema=_ANSWER)

    def _write(self, batches: Iterator[pa.RecordBatch], part: int, attempt: int) -> list[str]:
        names: list[str] = []
        sink: Any = None
        writer: Any = None
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:
                names.append(f"{_name(part)}-{attempt}-{len(names)}.arrow")
                sink = _sink(self.folder, names[-1])
                options = pa.ipc.IpcWriteOptions(compression=None if _is_local(self.folder) else "lz4")
                writer = pa.ipc.new_stream(sink, batch.schema, options=options)
            writer.write_batch(batch)
            if sink.tell() > self.piece:
                writer.close()
                sink.close()
                writer = sink = None
        if writer is not None:
            writer.close()
            sink.close()
        return names

    def _settle(self, pieces: list[str], part: int, attempt: int) -> str:
        """The list of pieces that counts: of whichever attempt was the first to link it."""
        listed = json.dumps(pieces)
        if not _is_local(self.folder):
            return listed
        folder = Path(self.folder)
        own, final = folder / f".{_name(part)}-{attempt}", folder / _name(part)
        own.write_text(listed, encoding="utf-8")
        try:
            os.link(own, final)
        except FileExistsError:
            for piece in pieces:
                (folder / piece).unlink(missing_ok=True)
            return final.read_text(encoding="utf-8")
        finally:
            own.unlink(missing_ok=True)
        return listed


def _is_local(folder: str) -> bool:
    return Storage(folder).local is not None


def _sink(folder: str, name: str) -> Any:
    storage = Storage(folder)
    if storage.local is not None:
        return pa.OSFile(str(storage.local / name), "wb")
    from penstock.storage import filesystem_of

    filesystem, root = filesystem_of(storage.root)
    return filesystem.open_output_stream(f"{root}/{name}")


def sweep(root: str, older: float = _DAY) -> None:
    """Delete results that nobody can want any more: those that a process left behind when it died."""
    storage, now = Storage(root), time.time()
    with suppress(Exception):
        if storage.local is not None:
            names = {each.name for each in storage.local.iterdir()}
        else:
            names = {path.partition("/")[0] for path, _ in storage.list()}
        for name in names:
            made = made_at(name)
            if made is not None and now - made > older:
                storage.delete(name)


class Spool:
    """The files of one result. One thread runs `fill`, another one iterates over `batches`."""

    def __init__(self, root: str, query: str, piece: int = PIECE) -> None:
        self._storage = Storage(f"{root}/{query}")
        self._piece = piece
        self._truth: dict[int, list[str]] | None = None
        if self._storage.local is not None:
            self._storage.local.mkdir(parents=True, exist_ok=True)

    def fill(self, frame: DataFrame) -> None:
        """Run the query. Returns when all partitions are written."""
        rows = frame.mapInArrow(Writer(self._storage.root, self._piece), _DDL).collect()
        self._truth = {row["part"]: json.loads(row["pieces"]) for row in rows}

    def batches(self, check: Callable[[float], bool]) -> Iterator[pa.RecordBatch]:
        """The rows, in order.

        ``check`` waits so many seconds for the end of `fill`, tells whether it has ended, and raises what
        went wrong.
        """
        part = 0
        while True:
            pieces = self._known(part)
            if pieces is None:
                if not check(_WAIT):
                    continue
                pieces = self._known(part)
                if pieces is None:
                    return
            for piece in pieces:
                yield from self._read(piece)
                with suppress(OSError):
                    self._remove(piece)
            part += 1

    def _known(self, part: int) -> list[str] | None:
        if self._truth is not None:
            return self._truth.get(part)
        if self._storage.local is None:
            return None
        try:
            text = (self._storage.local / _name(part)).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        pieces: list[str] = json.loads(text)
        return pieces

    def _read(self, piece: str) -> Iterator[pa.RecordBatch]:
        with self._storage.open(piece) as file, pa.ipc.open_stream(file) as reader:
            yield from reader

    def _remove(self, piece: str) -> None:
        if self._storage.local is not None:
            (self._storage.local / piece).unlink(missing_ok=True)
        else:
            self._storage.delete(piece)

    def delete(self) -> None:
        """Remove what is left of the files."""
        if self._storage.local is not None:
            shutil.rmtree(self._storage.local, ignore_errors=True)
        else:
            with suppress(OSError):
                self._storage.delete("")
