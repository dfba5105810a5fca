"""The same count as a stream of ours. What is to be counted comes from the environment, as a `Load`."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.streams import generator
from bench.streams.load import Load, PollLog
from penstock import Stream, Table
from penstock.sinks import ParquetSink
from penstock.sources import Part, StatefulSource

VARIABLE = "PENSTOCK_BENCH_LOAD"


class Events(Table):
    key: int
    value: int
    at: datetime


class Counted(Table):
    key: int
    count: int


class Generated(StatefulSource):
    """The rows of the generator."""

    table = Events

    def __init__(self, load: Load) -> None:
        self.load = load

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(generator.PARTS)]

    def build_part(self, part: str, state: Any) -> GeneratedPart:
        return GeneratedPart(self.load, int(part), state)


class GeneratedPart(Part):
    """State: the next row, and where there is a pace the time of the next poll."""

    def __init__(self, load: Load, part: int, state: Any) -> None:
        self.load = load
        self.part = part
        known = (0, time.time()) if state is None else state
        self.next, self.due = int(known[0]), float(known[1])
        self.log = PollLog(load.folder("polls")) if load.pace else None

    def poll(self, limit: int) -> pa.RecordBatch | None:
        if self.log is not None:
            return self._paced(self.log)
        return self._rows(min(limit, self.load.rows - self.next)) if self.next < self.load.rows else None

    def _paced(self, log: PollLog) -> pa.RecordBatch | None:
        if time.time() < self.due or self.next >= self.load.rows:
            return None
        # Polls that were missed are not made up for: no side is asked for more than its pace.
        self.due = max(self.due + 1 / self.load.pace, time.time())
        log.note(self.part, self.next)
        mark = generator.mark(self.part, self.next)
        rows = self._rows(self.load.count(self.next))
        marked = pa.record_batch([[mark], [0], rows["at"][:1]], schema=rows.schema)
        return pa.concat_batches([marked, rows])

    def _rows(self, count: int) -> pa.RecordBatch:
        keys, values, times = generator.rows(self.part, self.next, count)
        self.next += count
        stamps = pa.array(times).view(pa.timestamp("us", "UTC"))
        return pa.record_batch([pa.array(keys), pa.array(values), stamps], schema=Events.arrow_schema())

    def snapshot(self) -> list[float]:
        return [self.next, self.due]

    def is_finished(self) -> bool:
        return self.next >= self.load.rows


def counting(load: Load) -> Stream:
    stream = Stream("bench")
    events = stream.source("events", Generated(load))
    stream.output("counts", events.key_by(Events.key).count(to=Counted), ParquetSink())
    return stream


if VARIABLE in os.environ:
    stream = counting(Load.parse(os.environ[VARIABLE]))

FILE = Path(__file__)
