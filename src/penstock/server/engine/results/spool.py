"""Large results: executors write Arrow files, and the gateway streams them in the order of the partitions.

::

    <folder>/<query>/part-00003-17-0.arrow    a piece of partition 3, written by task attempt 17
    <folder>/<query>/part-00003               says which pieces partition 3 is made of
    <folder>/<query>/part-00003.begun         says which pieces there are so far, and whose they are

On a shared file system a partition is read as soon as its task has ended, while others still run: the
attempt that links its list to the final name first is the one that counts, and that never changes. An object
store has no such link, so there the lists that a job returns are read, after its end. Each piece is deleted
when it was sent.

The gateway holds one batch in memory. Disk is bounded by quotas (`backpressure`): jobs run over some
partitions at a time, the next ones when the reader has come so far, and writers wait while there is no room.
A partition that is larger than all the room there is must be read before it is complete. From then on the
attempt that has begun it is the only one that counts: when its executor is lost, so is the query.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import SqlError
from penstock.server.engine.registry import made_at
from penstock.server.engine.results.backpressure import Brake
from penstock.server.process.scratch import is_left, remove
from penstock.spark.faults import carried
from penstock.spark.session import is_connect, parallelism
from penstock.storage import Storage, filesystem_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW = 64 << 20
"""The most bytes of one row."""
AHEAD = 256 << 20
"""Bytes that wait to be read, above which no further partitions are begun."""
PIECE = 64 << 20
"""A piece is closed when it is larger than this."""
_ANSWER = pa.schema([("part", pa.int32()), ("pieces", pa.string())])
_DDL = "part int, pieces string"
_WAIT = 0.02
_WINDOW = 4
"""Partitions of one job, for each task that can run at a time."""
_DAY = 86_400.0


def _name(part: int) -> str:
    return f"part-{part:05d}"


def _begun(part: int) -> str:
    return f"{_name(part)}.begun"


@dataclass(frozen=True, slots=True)
class SpoolWriter:
    """A task that writes its partition and hands over only the names of what it wrote."""

    root: str
    query: str
    piece: int = PIECE
    row: int = ROW

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
        local = Storage(self.root).local
        brake = None if local is None else Brake(local / self.query, part)
        if local is not None:
            self._check_begun(local / self.query, part, attempt)
        file = _Pieces(self, part, attempt)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            check_rows(batch, self.row)
            file.write(batch)
            while brake is not None and brake.halted:
                if brake.needed:
                    assert local is not None
                    file.close()
                    self._begin(local / self.query, part, attempt, file.names)
                    if brake.wait_until_read(file.names):
                        break
                else:
                    brake.wait_until_needed()
        file.close()
        return file.names

    def _check_begun(self, folder: Path, part: int, attempt: int) -> None:
        try:
            owner = json.loads((folder / _begun(part)).read_text(encoding="utf-8"))["attempt"]
        except FileNotFoundError:
            return
        if owner != attempt:
            raise SqlError(
                "an executor was lost when a part of its rows had been sent already",
                sqlstate="40001",
                hint="run the query again",
            )

    def _begin(self, folder: Path, part: int, attempt: int, pieces: list[str]) -> None:
        """Let the reader have what there is of a partition. Only one attempt ever can."""
        claim = folder / f"{_name(part)}.attempt-{attempt}"
        final = folder / _begun(part)
        text = json.dumps({"attempt": attempt, "pieces": pieces})
        claim.write_text(text, encoding="utf-8")
        try:
            os.link(claim, final)
            claim.unlink()
        except FileExistsError:
            self._check_begun(folder, part, attempt)
            claim.rename(final)

    def _settle(self, pieces: list[str], part: int, attempt: int) -> str:
        """The list of pieces that counts: of whichever attempt was the first to link it."""
        listed, local = json.dumps(pieces), Storage(self.root).local
        if local is None:
            return listed
        folder = local / self.query
        own, final = folder / f".{_name(part)}-{attempt}", folder / _name(part)
        self._check_begun(folder, part, attempt)
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

    def sink(self, name: str) -> tuple[Any, str | None]:
        """A file to write to, and how its batches are compressed."""
        local = Storage(self.root).local
        if local is not None:
            return pa.OSFile(str(local / self.query / name), "wb"), None
        filesystem, base = filesystem_of(self.root)
        return filesystem.open_output_stream(f"{base}/{self.query}/{name}"), "lz4"


class _Pieces:
    """The files of one attempt, one after the other."""

    def __init__(self, writer: SpoolWriter, part: int, attempt: int) -> None:
        self.names: list[str] = []
        self._writer = writer
        self._stem = f"{_name(part)}-{attempt}"
        self._sink: Any = None
        self._stream: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._stream is None:
            self.names.append(f"{self._stem}-{len(self.names)}.arrow")
            self._sink, compression = self._writer.sink(self.names[-1])
            options = pa.ipc.IpcWriteOptions(compression=compression)
            self._stream = pa.ipc.new_stream(self._sink, batch.schema, options=options)
        self._stream.write_batch(batch)
        if self._sink.tell() > self._writer.piece:
            self.close()

    def close(self) -> None:
        """End the piece that is open."""
        if self._stream is not None:
            self._stream.close()
            self._sink.close()
            self._stream = self._sink = None


def sweep(root: str, older: float = _DAY) -> None:
    """Delete results that nobody can want any more: those that a process left behind when it died."""
    storage, now = Storage(root), time.time()
    with suppress(Exception):
        newest: dict[str, float] = {}
        for name, inner in _entries(storage):
            # Queries stand in a folder of their process; in older versions they stood here.
            made = made_at(inner) or made_at(name)
            if made is not None:
                newest[name] = max(made, newest.get(name, made))
        for name, made in newest.items():
            if is_left(name, "spool") or now - made > older:
                storage.delete(name)


def _entries(storage: Storage) -> list[tuple[str, str]]:
    """The first two steps of each path."""
    if storage.local is not None:
        folders = list(storage.local.iterdir())
        within = [(each.name, inner.name) for each in folders if each.is_dir() for inner in each.iterdir()]
        return [(each.name, "") for each in folders] + within
    paths = (path.split("/") for path, _ in storage.list())
    return sorted({(steps[0], steps[1] if len(steps) > 1 else "") for steps in paths})


class ResultSpool:
    """The files of one result. One thread runs `fill`, another one iterates over `batches`."""

    def __init__(self, root: str, query: str, piece: int = PIECE, row: int = ROW, ahead: int = AHEAD) -> None:
        self._ahead = ahead
        self._begin = 0
        self._storage = Storage(root)
        self.query = query
        self._writer = SpoolWriter(self._storage.root, query, piece, row)
        self._truth: dict[int, list[str]] = {}
        self._filled = False
        self.part = 0
        """The partition that is read now."""
        self.batches_read = 0
        self._sent = 0
        """Pieces of that partition that were read."""
        self._waiting = False
        """Whether the reader has come for a piece that is not there yet."""
        self.folder = None if self._storage.local is None else self._storage.local / query
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def is_unread(self) -> bool:
        """Whether there is something to read that nobody reads. Not so while the reader waits for rows."""
        if self._waiting:
            return False
        pieces, complete = self._known(self.part)
        return complete or len(pieces) > self._sent

    def size(self) -> int:
        """How many bytes of it are on disk now."""
        total = 0
        with suppress(OSError):
            for entry in os.scandir(self.folder or "."):
                with suppress(OSError):
                    total += entry.stat().st_size if entry.name.endswith(".arrow") else 0
        return total

    def fill(self, frame: DataFrame, check: Callable[[], None] = lambda: None) -> None:
        """Run the query. Returns when all partitions are written. ``check`` raises when nobody wants it."""
        for rows in windows(frame.mapInArrow(self._writer, _DDL), lambda begin: self._wait(begin, check)):
            self._truth |= {row["part"]: json.loads(row["pieces"]) for row in rows}
        self._filled = True

    def _wait(self, begin: int, check: Callable[[], None]) -> None:
        """Wait with the partitions from ``begin`` on, until what is before them has been read, or nearly."""
        while self._is_full(begin):
            check()
            time.sleep(_WAIT)
        self._begin = begin

    def _is_full(self, begin: int) -> bool:
        if self.folder is None:
            # Nobody tells how much is there: one window is read while the next one is written.
            return self.part < self._begin
        return self.part < begin and self.size() > self._ahead

    def batches(self, check: Callable[[float], bool]) -> Iterator[pa.RecordBatch]:
        """The rows, in order.

        ``check`` waits so many seconds for the end of `fill`, tells whether it has ended, and raises what
        went wrong.
        """
        while True:
            pieces, complete = self._known(self.part)
            for piece in pieces[self._sent :]:
                self._waiting = False
                yield from self._read(piece)
                with suppress(OSError):
                    self._storage.delete(f"{self.query}/{piece}")
                self._sent += 1
            # It comes back for more only when it has taken all that there was.
            self._waiting = True
            if complete:
                self.part, self._sent = self.part + 1, 0
            elif len(pieces) <= self._sent and check(_WAIT) and not self._known(self.part)[1]:
                return

    def _known(self, part: int) -> tuple[list[str], bool]:
        """Pieces of a partition that can be read, and whether these are all."""
        if part in self._truth:
            return self._truth[part], True
        if self.folder is None or self._filled:
            return [], False
        # In this order: what is there so far is part of what is there in the end.
        for name, complete in ((_name(part), True), (_begun(part), False)):
            try:
                told = json.loads((self.folder / name).read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue
            return (told, True) if complete else (told["pieces"], False)
        return [], False

    def _read(self, piece: str) -> Iterator[pa.RecordBatch]:
        with self._storage.open(f"{self.query}/{piece}") as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield batch
                self.batches_read += 1

    def delete(self) -> None:
        """Remove what is left of the files."""
        with suppress(OSError):
            self._storage.delete(self.query)
        if self.folder is not None and self.folder.exists():
            # A task that was cancelled may have written on for a moment.
            remove(self.folder)


def windows(frame: DataFrame, wait: Callable[[int], None]) -> Iterator[Sequence[Any]]:
    """What the partitions give, some at a time, each job after ``wait`` has let its first one through.

    A Connect server runs a query as a whole: there, writers alone wait.
    """
    spark = frame.sparkSession
    if is_connect(spark):
        yield frame.collect()
        return
    from pyspark.util import _load_from_socket

    # Its shuffles are computed once: what they have written stays with it.
    rows: Any = frame.rdd
    count, size = rows.getNumPartitions(), _WINDOW * parallelism(spark)
    context: Any = spark.sparkContext
    for begin in range(0, count, size):
        wait(begin)
        parts = list(range(begin, min(begin + size, count)))
        told = context._jvm.PythonRDD.runJob(context._jsc.sc(), rows._jrdd, parts)  # noqa: SLF001
        with _load_from_socket(told, rows._jrdd_deserializer) as found:  # noqa: SLF001
            yield list(found)


def check_rows(batch: pa.RecordBatch, most: int) -> None:
    """Raise for a row that is too large to be handed to a client as one."""
    if batch.nbytes <= most:
        return
    for number in range(batch.num_rows):
        size = batch.slice(number, 1).nbytes
        if size > most:
            raise SqlError(
                f"a row of the result has {size:,} bytes, more than {most:,}",
                sqlstate="54000",
                hint="ask for less in one row, or raise serve.row_size",
            )
