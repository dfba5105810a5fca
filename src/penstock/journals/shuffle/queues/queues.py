"""A queue: merges the documents that slices wrote for it, in the order of their clocks.

Run files could not be the queue themselves. They are written before anybody knows what of them may be seen,
and in which epoch; one file may be shown over several, and only then is it decided which of its rows are
late. With masks instead of copies, each output would mask, merge and judge the rows again for every batch,
and retention could not delete files by epoch. There is little to gain: for 240,000 documents, merging them
and writing them to the queue took 0.07 s of CPU time, parsing and sequencing them 0.67 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.core.arrow_data import sound
from penstock.errors import CorruptFile
from penstock.journals.shuffle.queues.merging import Load, merged
from penstock.journals.shuffle.queues.run_files import (
    Commits,
    QueueRun,
    RunFile,
    commits_by_group,
    without_hidden,
)
from penstock.journals.shuffle.visibility.coordinator import Promotion
from penstock.journals.shuffle.visibility.cuts import Clocks
from penstock.storage import Storage


@dataclass(frozen=True, slots=True)
class Show:
    """A promotion as tasks get it: with what stands in run files instead of names of journals."""

    file: RunFile
    skip: Commits
    ahead: Commits | None

    @classmethod
    def each(cls, promotions: Iterable[Promotion]) -> Iterator[Self]:
        # Those of one cut have the same clocks.
        known: dict[int, Commits] = {}

        def commits(clocks: Clocks) -> Commits:
            if id(clocks) not in known:
                known[id(clocks)] = commits_by_group(clocks)
            return known[id(clocks)]

        for promotion in promotions:
            ahead = None if promotion.ahead is None else commits(promotion.ahead)
            yield cls(promotion.file, commits(promotion.skip), ahead)

    def shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a run that become visible."""
        if self.ahead is None and not self.skip:
            return batch
        shown = ~self.skip.covers(batch)
        if self.ahead is not None:
            shown &= self.ahead.covers(batch)
        return batch if shown.all() else batch.take(pa.array(np.flatnonzero(shown)))


def documents(storage: Storage, shows: Iterable[Show], queue: int) -> Iterator[pa.RecordBatch]:
    """The documents of one queue that become visible, in order. All files are of one source."""
    with ExitStack() as stack:
        loads: list[Load] = []
        for show in shows:
            runs = show.file.of_queue(queue)
            opened = _Opened(storage, show.file, len(runs))
            stack.callback(opened.close)
            loads += [Load(run.first, partial(_read, opened, run, show)) for run in runs]
        for batch in merged(loads):
            yield without_hidden(batch)


def _read(opened: _Opened, run: QueueRun, show: Show) -> pa.RecordBatch:
    return show.shown(opened.read(run))


class _Opened:
    """A run file that is open from the first run that is read of it to the last one."""

    def __init__(self, storage: Storage, file: RunFile, runs: int) -> None:
        self._storage = storage
        self._file = file
        self._left = runs
        self._input: Any = None
        self._reader: Any = None

    def read(self, run: QueueRun) -> pa.RecordBatch:
        try:
            batch = self._batch(run.batch)
        except (OSError, pa.ArrowException) as error:
            raise self._corrupt(error) from error
        if batch is None or batch.num_rows != run.rows:
            raise self._corrupt(None)
        self._left -= 1
        if not self._left:
            self.close()
        return batch

    def close(self) -> None:
        if self._input is not None:
            self._input.close()
            self._input = self._reader = None

    def _batch(self, number: int) -> pa.RecordBatch | None:
        if self._reader is None:
            self._input = self._storage.open(self._file.record.path)
            self._reader = pa.ipc.open_file(self._input)
        return sound(self._reader.get_batch(number)) if number < self._reader.num_record_batches else None

    def _corrupt(self, error: Exception | None) -> Exception:
        """What is wrong with the file; the error itself if the file is as it was written."""
        try:
            self._storage.check(self._file.record)
        except CorruptFile as wrong:
            what = wrong.what
        else:
            if error is not None:
                return error
            what = f"{self._storage.location(self._file.record.path)} has not the runs that were recorded"
        return CorruptFile(
            what,
            left="the epoch was not committed",
            hint="restore the file from a backup of the storage",
        )
