"""A stream of numbered rows whose every row can be accounted for. Parameters come from the environment."""

from __future__ import annotations

import os

from penstock import Table
from penstock.sinks import ParquetSink
from penstock.sources import RateSource, Ticks
from penstock.streams.api.stream import Stream

PARTS = int(os.environ.get("NUMBERS_PARTS", "12"))
ROWS = int(os.environ.get("NUMBERS_ROWS", "1500"))


class Counts(Table):
    part: str
    count: int


stream = Stream("numbers")
ticks = stream.source("ticks", RateSource(parts=PARTS, rows=ROWS))
stream.output("all", ticks, ParquetSink())
stream.output("counts", ticks.key_by(Ticks.part).count(to=Counts), ParquetSink())
