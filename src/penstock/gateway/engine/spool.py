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
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.gateway.engine.registry import made_at
from penstock.spark.faults import carried
from penstock.storage import Storage, filesystem_of

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

    root: str
    query: str
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
                sink, compression = self._sink(names[-1])
                options = pa.ipc.IpcWriteOptions(compression=compression)
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
        listed, local = json.dumps(pieces), Storage(self.root).local
        if local is None:
            return listed
        folder = local / self.query
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

    def _sink(self, name: str) -> tuple[Any, str | None]:
        """A file to write to, and how its batches are compressed."""
        local = Storage(self.root).local
        if local is not None:
            return pa.OSFile(str(local / self.query / name), "wb"), None
        filesystem, base = filesystem_of(self.root)
        return filesystem.open_output_stream(f"{base}/{self.query}/{name}"), "lz4"


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
        self._storage = Storage(root)
        self._query = query
        self._piece = piece
        self._truth: dict[int, list[str]] | None = None
        if self._storage.local is not None:
            (self._storage.local / query).mkdir(parents=True, exist_ok=True)

    def fill(self, frame: DataFrame) -> None:
        """Run the query. Returns when all partitions are written."""
        rows = frame.mapInArrow(Writer(self._storage.root, self._query, self._piece), _DDL).collect()
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
                    self._storage.delete(f"{self._query}/{piece}")
            part += 1

    def _known(self, part: int) -> list[str] | None:
        if self._truth is not None:
            return self._truth.get(part)
        if self._storage.local is None:
            return None
        try:
            text = (self._storage.local / self._query / _name(part)).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        pieces: list[str] = json.loads(text)
        return pieces

    def _read(self, piece: str) -> Iterator[pa.RecordBatch]:
        with self._storage.open(f"{self._query}/{piece}") as file, pa.ipc.open_stream(file) as reader:
            yield from reader

    def delete(self) -> None:
        """Remove what is left of the files."""
        with suppress(OSError):
            self._storage.delete(self._query)
