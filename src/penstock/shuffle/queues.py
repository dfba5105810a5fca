"""A queue: merges the documents that slices wrote for it, in the order of their clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.errors import CorruptFile
from penstock.shuffle.merging import Load, merged
from penstock.shuffle.runs import Commits, Run, RunFile, commits_by_group, without_hidden
from penstock.shuffle.session import Promotion
from penstock.storage import Storage


@dataclass(frozen=True, slots=True)
class Show:
    """A promotion as tasks get it: with what stands in run files instead of names of journals."""

    file: RunFile
    skip: Commits
    ahead: Commits | None

    @classmethod
    def of(cls, promotion: Promotion) -> Self:
        ahead = None if promotion.ahead is None else commits_by_group(promotion.ahead)
        return cls(promotion.file, commits_by_group(promotion.skip), ahead)


def documents(storage: Storage, shows: Iterable[Show], queue: int) -> Iterator[pa.RecordBatch]:
    """The documents of one queue that become visible, in order. All files are of one source."""
    with ExitStack() as stack:
        loads: list[Load] = []
        for show in shows:
            runs = show.file.of_queue(queue)
            if runs:
                opened = _opened(stack, storage, show.file)
                loads += [Load(run.first, partial(_read, opened, run, show)) for run in runs]
        for batch in merged(loads):
            yield without_hidden(batch)


def _opened(stack: ExitStack, storage: Storage, file: RunFile) -> Any:
    try:
        return pa.ipc.open_file(stack.enter_context(storage.open(file.record.path)))
    except (OSError, pa.ArrowInvalid) as error:
        raise CorruptFile(
            f"{storage.location(file.record.path)} cannot be read: {error}",
            left="the epoch was not committed, and is tried again",
            hint="restore the file from a backup of the storage",
        ) from error


def _read(opened: Any, run: Run, show: Show) -> pa.RecordBatch:
    batch = opened.get_batch(run.batch)
    if show.ahead is None and not show.skip:
        return batch
    shown = ~show.skip.covers(batch)
    if show.ahead is not None:
        shown &= show.ahead.covers(batch)
    return batch if shown.all() else batch.take(pa.array(np.flatnonzero(shown)))
