"""Merging runs: their rows in the order of clocks, with no more in memory than overlaps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.journals.shuffle.queues.run_files import clocks

_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Load:
    """A run that can be read, with rows from the clock ``first`` on, in order."""

    first: int
    read: Callable[[], pa.RecordBatch]


def merged(loads: Iterable[Load]) -> Iterator[pa.RecordBatch]:
    """The rows of all runs in the order of clocks; of equal clocks, those of the run that begins first.

    A run is read when the first row of it may be next, so that runs of different times are not in memory at
    the same time.
    """
    waiting = deque(sorted(loads, key=lambda load: load.first))
    held: list[pa.RecordBatch] = []
    while waiting or held:
        limit = waiting[0].first if waiting else None
        while waiting and (limit is None or waiting[0].first <= limit):
            held.append(waiting.popleft().read())
        bound = waiting[0].first if waiting else None
        held = [batch for batch in held if batch.num_rows]
        if not held:
            continue
        ready, held = _cut(held, bound)
        yield from ready


def _cut(
    held: list[pa.RecordBatch], bound: int | None
) -> tuple[Iterator[pa.RecordBatch], list[pa.RecordBatch]]:
    """The rows below ``bound``, merged, and what is left of the runs."""
    if bound is None:
        return _sorted(held), []
    cuts = [int(np.searchsorted(clocks(batch), np.uint64(bound))) for batch in held]
    ready = [batch.slice(0, cut) for batch, cut in zip(held, cuts, strict=True) if cut]
    rest = [batch.slice(cut) for batch, cut in zip(held, cuts, strict=True) if cut < batch.num_rows]
    return _sorted(ready), rest


def _sorted(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if not batches:
        return
    if len(batches) == 1:
        yield batches[0]
        return
    order = np.argsort(np.concatenate(list(map(clocks, batches))), kind="stable")
    table = pa.Table.from_batches(batches).combine_chunks()
    for begin in range(0, len(order), _ROWS):
        chosen = table.take(pa.array(order[begin : begin + _ROWS]))
        yield from chosen.combine_chunks().to_batches()
