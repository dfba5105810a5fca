"""The row files of epochs, read inside Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import chain

import pyarrow as pa

from penstock.spark.files import IpcSplit
from penstock.spark.flow import Batches
from penstock.storage import Storage
from penstock.streams.log.segments import between, read_segment
from penstock.streams.model import Brought, Epoch, Pointer, RowFile

_TASK_BYTES = 1 << 20
_ROWS = 1 << 14
_READERS = 16
_COUNTED_ROWS = 1 << 20
_COUNTED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Which rows of an epoch: those of a source, on time, late or (None) all, and which of their columns."""

    source: str
    columns: tuple[str, ...]
    late: bool | None = False

    def files(self, storage: Storage, brought: Iterable[Brought]) -> list[RowFile]:
        """The files that have such rows."""
        portions = list(brought)
        if storage.local or len(portions) < 2:
            return self._chosen(chain.from_iterable(each.files(storage) for each in portions))
        # Each is a small object that is far away.
        with ThreadPoolExecutor(_READERS) as readers:
            found = readers.map(lambda each: each.files(storage), portions)
            return self._chosen(chain.from_iterable(found))

    def batches(self, storage: Storage, files: Iterable[RowFile]) -> Batches:
        """The rows of files, one after the other."""
        splits = (IpcSplit(storage, file.record, self.columns) for file in files)
        return gathered(batch for split in splits for batch in split.batches())

    def _chosen(self, files: Iterable[RowFile]) -> list[RowFile]:
        return [file for file in files if self._is_mine(file) and file.record.rows]

    def _is_mine(self, file: RowFile) -> bool:
        return file.source == self.source and self.late in (None, file.late)


@dataclass(frozen=True, slots=True)
class EpochSlice:
    """Some consecutive epochs that one task reads: of a segment, or, where that is None, ``epochs``."""

    first: int
    last: int
    rows: int
    segment: Pointer | None = None
    epochs: tuple[Epoch, ...] = ()

    def batches(self, storage: Storage, wanted: WantedRows) -> Batches:
        epochs = read_segment(storage, self.segment) if self.segment else self.epochs
        for epoch in between(epochs, self.first, self.last):
            yield from wanted.batches(storage, wanted.files(storage, epoch.brought))


def balanced(files: Sequence[RowFile], most: int) -> list[tuple[RowFile, ...]]:
    """The files in at most so many heaps of about the same size, fewer where there is little to read.

    Files keep their order within a heap.
    """
    total = sum(file.record.bytes for file in files)
    count = max(1, min(most, len(files), -(-total // _TASK_BYTES)))
    heaps: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(count)]
    heapify(heaps)
    for index in sorted(range(len(files)), key=lambda i: files[i].record.bytes, reverse=True):
        size, number, mine = heaps[0]
        mine.append(index)
        heapreplace(heaps, (size + files[index].record.bytes, number, mine))
    chosen = (mine for _, _, mine in sorted(heaps, key=lambda heap: heap[1]))
    return [tuple(files[index] for index in sorted(mine)) for mine in chosen if mine]


def gathered(batches: Batches) -> Batches:
    """Batches of a good size: every one that crosses into the JVM has its price, so short ones are joined."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if not waiting and batch.num_rows >= _ROWS:
            yield batch
            continue
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= _ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    yield from _joined(waiting)


def counted(batches: Batches, number: str) -> Batches:
    """Each row once, as far as that can be seen at a time, and how often it was there as column ``number``.

    Rows are cheap to count where they lie as columns, and dear to carry into the JVM one by one.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _COUNTED_ROWS or size >= _COUNTED_BYTES:
            yield from _counts(waiting, number)
            waiting, rows, size = [], 0, 0
    yield from _counts(waiting, number)


def _counts(batches: Sequence[pa.RecordBatch], number: str) -> Batches:
    if not batches:
        return
    rows = pa.Table.from_batches(batches)
    # Spark has given this task one core.
    found = rows.group_by(rows.column_names, use_threads=False).aggregate([([], "count_all")])
    yield from found.rename_columns([*rows.column_names, number]).combine_chunks().to_batches()


def _joined(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if batches:
        yield pa.concat_batches(batches)
