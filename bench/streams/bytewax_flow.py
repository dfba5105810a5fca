"""The count as a bytewax dataflow: ``python -m bench.streams.bytewax_flow TASK``, where TASK is JSON.

This runs in bytewax's own environment, once for each process of its cluster.

Without a pace the counts come out at the end of the input, by `count_final`, which adds up each batch before
it sends anything to another worker. A combined task adds up with numpy before bytewax sees anything, which
leaves bytewax one item for each key and poll. With a pace, each key's new count comes out after every batch,
and a line for each tells its epoch, so that one can see later when it was committed.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import bytewax.operators as op  # type: ignore[import-not-found]
import numpy as np
from bytewax.connectors.files import DirSink  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition  # type: ignore[import-not-found]
from bytewax.operators import StatefulBatchLogic
from bytewax.recovery import RecoveryConfig  # type: ignore[import-not-found]
from bytewax.run import cli_main  # type: ignore[import-not-found]

from bench.streams import generator
from bench.streams.generator import KEYS, PARTS
from bench.streams.load import Load, PollLog

# Bytewax routes by text. Making it once for each key is much cheaper than once for each row.
_NAMES = [str(key) for key in range(KEYS)]


@dataclass(frozen=True, slots=True)
class Task:
    """One process of a cluster at ``addresses``, or the only one, with ``threads`` workers."""

    load: str
    combined: bool
    execution: int
    threads: int
    process: int | None
    addresses: list[str] | None


class Part(StatefulSourcePartition):  # type: ignore[misc]
    def __init__(self, load: Load, log: PollLog, part: int, start: int, combined: bool) -> None:
        self._load = load
        self._log = log
        self._part = part
        self._start = start
        self._batch = _combined if combined else _named
        self._every = timedelta(seconds=1 / load.pace) if load.pace else None
        # Parts that were all polled at the same moment would come in bursts.
        self._next = _now() + (self._every or timedelta()) * (part / PARTS)

    def next_batch(self) -> list[Any]:
        if self._start >= self._load.rows:
            raise StopIteration
        self._log.note(self._part, self._start)
        made = self._batch(self._load, self._part, self._start)
        self._start += self._load.count(self._start)
        if self._every:
            self._next = max(self._next + self._every, _now())
        return made

    def next_awake(self) -> datetime | None:
        return self._next if self._every else None

    def snapshot(self) -> int:
        return self._start


class Source(FixedPartitionedSource):  # type: ignore[misc]
    def __init__(self, load: Load, combined: bool) -> None:
        self._load = load
        self._log = PollLog(load.folder("polls"))
        self._combined = combined

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(PARTS)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Part:
        del step_id
        return Part(self._load, self._log, int(for_part), resume_state or 0, self._combined)


class Count(StatefulBatchLogic):  # type: ignore[misc]
    """A key's count; tells it after every batch, or only at the end of the input."""

    def __init__(self, count: int | None, *, final: bool) -> None:
        self._count = count or 0
        self._final = final

    def on_batch(self, values: list[int]) -> tuple[list[int], bool]:
        self._count += sum(values)
        return [] if self._final else [self._count], StatefulBatchLogic.RETAIN

    def on_eof(self) -> tuple[list[int], bool]:
        return [self._count] if self._final else [], StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self._count


class Epochs:
    """Writes down to which epoch each result belongs: a sink is not told."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __call__(self, step_id: str, item: tuple[str, int], epoch: int, worker: int) -> None:
        del step_id, worker
        if self._file is None:
            self._file = self._path.open("a", encoding="ascii", buffering=1)
        self._file.write(f"{epoch} {item[0]} {item[1]}\n")


def flow(load: Load, combined: bool, execution: int) -> Any:
    made = Dataflow("count")
    polled = op.input("in", made, Source(load, combined))
    if combined:
        counts = op.stateful_batch("count", polled, partial(Count, final=True))
    elif load.pace:
        ones = op.map("ones", polled, lambda key: (key, 1))
        counts = op.stateful_batch("count", ones, partial(Count, final=False))
        epochs = Epochs(load.folder("epochs") / f"{execution}-{os.getpid()}")
        counts = op.inspect_debug("epochs", counts, epochs)
    else:
        counts = op.count_final("count", polled, lambda key: key)
    lines = op.map("lines", counts, lambda result: (result[0], f"{result[0]} {result[1]}"))
    op.output("out", lines, DirSink(load.folder("out"), load.workers))
    return made


def _named(load: Load, part: int, start: int) -> list[str]:
    return [_NAMES[key] if key < KEYS else str(key) for key in load.keys(part, start)]


def _combined(load: Load, part: int, start: int) -> list[tuple[str, int]]:
    counts = generator.counts(part, start, load.count(start))
    found = np.flatnonzero(counts)
    return [(_NAMES[key], count) for key, count in zip(found.tolist(), counts[found].tolist(), strict=True)]


def _now() -> datetime:
    return datetime.now(UTC)


def main(text: str) -> None:
    task = Task(**json.loads(text))
    load = Load.parse(task.load)
    cli_main(
        flow(load, task.combined, task.execution),
        workers_per_process=task.threads,
        process_id=task.process,
        addresses=task.addresses,
        epoch_interval=timedelta(seconds=load.interval),
        recovery_config=RecoveryConfig(str(load.folder("recovery")), timedelta(0)),
    )


if __name__ == "__main__":
    main(sys.argv[1])
