"""(d) What an epoch costs that brings nothing, and (e) how the cost of an epoch grows with the parts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from bench.lab import Lab
from bench.measuring import say
from bench.results import Result
from bench.streams.ours import running
from bench.streams.waiting import wait_until
from penstock import Stream
from penstock.config import StreamConfig
from penstock.sources import RateSource
from penstock.streams.sinks import FunctionSink

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
    source = RateSource(parts=parts, per_second=1e-6 if paced else None)
    rows = stream.source("ticks", source)
    stream.output("nothing", rows, FunctionSink(_nothing))
    settings = StreamConfig(epoch_every=0.01, max_rows=max(1, parts))
    with lab.place("streams") as place, running(lab, place, stream, settings) as run:
        run.begin()
        wait_until(lambda: len(run.told.times("epoch")) > _EPOCHS + 5, "epochs")
        run.instance.stop()
        run.thread.join()
        time.sleep(0.1)
        found = [float(v["seconds"]) for _, kind, v in run.told.events if kind == "epoch"]
    return median(found[5:])


def _nothing(frame: object, batch: object) -> None:
    """Rows are looked at by nobody."""
