"""Run files: what a slice hands to the queues, each queue's documents together and in the order of clocks.

A slice cannot hold all that it reads. It sorts what fits into memory, and writes that as one *run* for each
queue, a record batch of its file; a queue then merges the runs that are meant for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.journals.shuffle.sequencing.parsing import (
    LARGEST_CLOCK,
    LARGEST_OFFSET,
    bad,
    integer,
    listed,
    text,
)
from penstock.storage import FileRecord, Storage

Array: TypeAlias = "np.ndarray[Any, Any]"

_HIDDEN = tuple(pa.field(name, pa.uint64()) for name in ("_clock", "_group", "_commit"))
_CLOCK, _GROUP, _COMMIT = range(-len(_HIDDEN), 0)
"""Where columns stand behind those of the table, which may have some of the same names."""


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Rows of one queue in a run file, ordered by clock, from the clock ``first`` to ``last``."""

    batch: int
    queue: int
    rows: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file of runs that a slice wrote for the documents of one source in one epoch."""

    source: str
    epoch: int
    record: FileRecord
    runs: tuple[QueueRun, ...]

    def of_queue(self, queue: int) -> tuple[QueueRun, ...]:
        return tuple(run for run in self.runs if run.queue == queue)

    def to_json(self) -> dict[str, Any]:
        runs = [[run.batch, run.queue, run.rows, run.first, run.last] for run in self.runs]
        return {"source": self.source, "epoch": self.epoch, "record": self.record.to_json(), "runs": runs}

    @classmethod
    def from_json(cls, found: Any) -> Self:
        """What `to_json` gave; anything else is a `BadState` that says what is wrong with it."""
        body = _members(found, "a run file", {"source", "epoch", "record", "runs"})
        runs = tuple(_run(*listed(run, "a run", 5)) for run in listed(body["runs"], "runs"))
        source, epoch = text(body["source"], "a source"), integer(body["epoch"], "an epoch", LARGEST_OFFSET)
        return cls(source, epoch, _record(body["record"]), runs)


@dataclass(frozen=True, slots=True)
class Settled:
    """Documents that are committed in their journals, as columns of one length.

    ``group`` is the `group_id` of journal and producer, ``commit`` the clock under which a document became
    committed.
    """

    rows: pa.RecordBatch
    clock: Array
    group: Array
    commit: Array
    queue: Array


class RunWriter:
    """Writes run files, one for each source and for each thing that documents are held for.

    They are complete when the block ends without an error.
    """

    def __init__(self, storage: Storage, prefix: str, epoch: int, codec: str | None) -> None:
        self._storage = storage
        self._prefix = prefix
        self.epoch = epoch
        self._options = pa.ipc.IpcWriteOptions(compression=codec)
        self._stack = ExitStack()
        self._open: dict[tuple[str, Hashable], _Open] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                for each in self._open.values():
                    each.writer.close()
            except BaseException as failed:
                self._stack.__exit__(type(failed), failed, failed.__traceback__)
                raise
        self._stack.__exit__(kind, error, trace)

    @property
    def written(self) -> list[RunFile]:
        """The files, once the block has ended, without those that are held."""
        return [self._file(*key) for key in self._open if key[1] is None]

    def held(self, source: str, hold: Hashable) -> tuple[RunFile, ...]:
        """The file that is held for something, once the block has ended; none if nothing was written."""
        return (self._file(source, hold),) if (source, hold) in self._open else ()

    def add(self, source: str, settled: Settled, hold: Hashable = None) -> None:
        """Write documents as one run for each queue that gets some. With ``hold``, a file of their own."""
        if not settled.rows.num_rows:
            return
        order = np.lexsort((settled.clock, settled.queue))
        queue, clock = settled.queue[order], settled.clock[order]
        hidden = [pa.array(column[order]) for column in (settled.clock, settled.group, settled.commit)]
        rows = settled.rows.take(pa.array(order))
        schema = pa.schema([*rows.schema, *_HIDDEN])
        batch = pa.RecordBatch.from_arrays([*rows.columns, *hidden], schema=schema)
        target = self._target(source, hold, schema)
        begins = np.flatnonzero(np.concatenate(([True], queue[1:] != queue[:-1])))
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(queue)], strict=True):
            target.writer.write_batch(batch.slice(begin, end - begin))
            run = QueueRun(
                len(target.runs), int(queue[begin]), end - begin, int(clock[begin]), int(clock[end - 1])
            )
            target.runs.append(run)
            target.rows += end - begin

    def _file(self, source: str, hold: Hashable) -> RunFile:
        each = self._open[source, hold]
        return RunFile(source, self.epoch, each.sink.record(each.path, each.rows), tuple(each.runs))

    def _target(self, source: str, hold: Hashable, schema: pa.Schema) -> _Open:
        known = self._open.get((source, hold))
        if known is None:
            number = "" if hold is None else f"held{len(self._open)}-"
            path = f"{self._prefix}-{number}{source}.arrow"
            sink = self._stack.enter_context(self._storage.create(path))
            writer = pa.ipc.new_file(pa.PythonFile(sink, mode="w"), schema, options=self._options)
            known = self._open[source, hold] = _Open(path, sink, writer)
        return known


@dataclass(slots=True)
class _Open:
    """A run file on its way."""

    path: str
    sink: Any
    writer: Any
    runs: list[QueueRun] = field(default_factory=list)
    rows: int = 0


@lru_cache(maxsize=1 << 15)
def group_id(journal: str, producer: int) -> int:
    """A number that stands for a producer in a journal, the same everywhere."""
    digest = hashlib.blake2b(f"{producer:012x}/{journal}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def commits_by_group(commits: Mapping[tuple[str, int], int]) -> Commits:
    """Clocks by journal and producer, for the rows of run files."""
    return Commits.of((group_id(*key), clock) for key, clock in commits.items())


@dataclass(frozen=True, slots=True)
class Commits:
    """Up to which commit the documents of some groups count."""

    group: Array
    clock: Array

    @classmethod
    def of(cls, each: Iterable[tuple[int, int]]) -> Self:
        pairs = sorted(each)
        return cls(np.array([p[0] for p in pairs], np.uint64), np.array([p[1] for p in pairs], np.uint64))

    def __bool__(self) -> bool:
        return len(self.group) > 0

    def covers(self, batch: pa.RecordBatch) -> Array:
        """Which rows of a run belong to one of the groups and were committed up to its clock."""
        groups, commits = _hidden(batch, _GROUP), _hidden(batch, _COMMIT)
        if not self:
            return np.zeros(len(groups), np.bool_)
        places = np.minimum(np.searchsorted(self.group, groups), len(self.group) - 1)
        found: Array = (self.group[places] == groups) & (commits <= self.clock[places])
        return found


def without_hidden(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The fields of the documents alone."""
    return batch.select(list(range(batch.num_columns - len(_HIDDEN))))


def clocks(batch: pa.RecordBatch) -> Array:
    """The clock of each row of a run."""
    return _hidden(batch, _CLOCK)


def _hidden(batch: pa.RecordBatch, place: int) -> Array:
    column: Array = batch.column(batch.num_columns + place).to_numpy()
    return column


def _run(batch: Any, queue: Any, rows: Any, first: Any, last: Any) -> QueueRun:
    return QueueRun(
        integer(batch, "the number of a run", LARGEST_OFFSET),
        integer(queue, "a queue", LARGEST_OFFSET),
        integer(rows, "a number of rows", LARGEST_OFFSET),
        integer(first, "a clock", LARGEST_CLOCK),
        integer(last, "a clock", LARGEST_CLOCK),
    )


def _record(found: Any) -> FileRecord:
    body = _members(found, "the record of a file", {"path", "rows", "bytes", "sha256"})
    rows, size = (integer(body[name], f"the number of {name}", LARGEST_OFFSET) for name in ("rows", "bytes"))
    return FileRecord(text(body["path"], "a path"), rows, size, text(body["sha256"], "a checksum"))


def _members(found: Any, what: str, keys: set[str]) -> dict[str, Any]:
    if not isinstance(found, dict) or found.keys() != keys:
        raise bad(f"{what} is not an object of {', '.join(sorted(keys))}")
    return found
