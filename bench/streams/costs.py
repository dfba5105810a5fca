"""(d) What an epoch costs that brings nothing, and (e) how the cost of an epoch grows with the parts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from bench.lab import Lab
from bench.measuring import say
from bench.results import Result
from bench.streams.ours import running
from bench.streams.waiting import wait_until
from penstock import Stream, Table
from penstock.config import StreamConfig
from penstock.sinks import FunctionSink
from penstock.sources import Part, StatefulSource

FEW, MANY = 64, 4096
_EPOCHS = 20
_DEFAULT_PAUSE = 0.5


def idle(lab: Lab) -> Iterator[Result]:
    """The share of the time between two epochs that an epoch without rows takes."""
    taken = [seconds(lab, FEW, paced=True) for _ in range(lab.repeat)]
    say(f"(d) {taken}")
    name = f"(d) an epoch without rows, {FEW} parts, ÷ the pause between epochs (s)"
    yield Result.of(name, taken, [_DEFAULT_PAUSE] * lab.repeat, 1.0)


def growth(lab: Lab) -> Iterator[Result]:
    """64 times the parts, each with a row an epoch, against 64 times the cost."""
    few, many = [], []
    for number in range(lab.repeat):
        few.append(seconds(lab, FEW, paced=False) * MANY / FEW)
        many.append(seconds(lab, MANY, paced=False))
        say(f"(e) {number + 1}/{lab.repeat}: {few[-1]:.3g} and {many[-1]:.3g}")
    name = f"(e) an epoch over {MANY:,} parts ÷ {MANY // FEW} epochs over {FEW} parts (s)"
    yield Result.of(name, many, few, 1.0)


def seconds(lab: Lab, parts: int, *, paced: bool) -> float:
    """The median time of an epoch; ``paced``: parts that have nothing to bring."""
    stream = Stream("bench")
    rows = stream.source("ones", Ones(parts, empty=paced))
    stream.output("nothing", rows, FunctionSink(_nothing))
    settings = StreamConfig(epoch_every=0.01)
    with lab.place("streams") as place, running(lab, place, stream, settings) as run:
        run.begin()
        wait_until(lambda: len(run.told.times("epoch")) > _EPOCHS + 5, "epochs")
        run.instance.stop()
        run.thread.join()
        time.sleep(0.1)
        found = [values for _, kind, values in run.told.events if kind == "epoch"][5:]
    brought = {int(values["rows"]) for values in found}
    if brought != {0 if paced else parts}:
        raise RuntimeError(f"epochs over {parts} parts brought {sorted(brought)} rows")
    return median(float(values["seconds"]) for values in found)


class One(Table):
    part: str
    number: int


class Ones(StatefulSource):
    """A row of each part in every epoch, or of none."""

    table = One

    def __init__(self, parts: int, *, empty: bool) -> None:
        self._parts = parts
        self._empty = empty

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(self._parts)]

    def build_part(self, part: str, state: Any) -> OnePart:
        return OnePart(part, state or 0, self._empty)


class OnePart(Part):
    def __init__(self, part: str, number: int, empty: bool) -> None:
        self._part = part
        self._number = number
        self._done = self._empty = empty

    def poll(self, limit: int) -> list[dict[str, object]] | None:
        if self._done or not limit:
            return None
        self._done = True
        self._number += 1
        return [{"part": self._part, "number": self._number}]

    def snapshot(self) -> int:
        return self._number

    def is_finished(self) -> bool:
        return False

    def suspend(self) -> None:
        """The next epoch gets the next row."""
        self._done = self._empty


def _nothing(frame: object, batch: object) -> None:
    """Rows are looked at by nobody."""
