"""Twenty-four parts that make 1,000 rows a second each, counted by key: to be rescaled while it runs."""

from __future__ import annotations

from penstock import Stream, Table
from penstock.sinks import ParquetSink
from penstock.sources import RateSource, Ticks


class Counts(Table):
    key: int
    count: int


stream = Stream("rescale")
ticks = stream.source("ticks", RateSource(parts=24, per_second=1000, keys=100))
stream.output("counts", ticks.key_by(Ticks.key).count(to=Counts), ParquetSink())
