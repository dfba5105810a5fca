"""Words per minute of event time, counted over log files that grow.

Lines are JSON: ``{"at": "2026-01-01T12:00:00Z", "text": "to be or not to be"}``. A window comes out once, as
soon as the newest line is ten seconds past its end. Later ones go to a table of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock import Stream, Table
from penstock.sinks import ParquetSink
from penstock.sources import TailSource

LOGS = Path(os.environ.get("WORDS_LOGS", "logs")).absolute()


class Lines(Table):
    at: datetime
    text: str


class Words(Table):
    at: datetime
    word: str


class Counts(Table):
    word: str
    window_start: datetime
    count: int


def split(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for word in re.findall(r"\w+", line["text"].lower()):
        yield {"at": line["at"], "word": word}


stream = Stream("words")
lines = stream.source("lines", TailSource(f"{LOGS}/*.jsonl", Lines, format="jsonl"))
timed = lines.assign_timestamps(Lines.at, lateness=10, late="keep")
words = timed.flat_map(split, to=Words)
stream.output("counts", words.key_by(Words.word).tumbling(60).count(to=Counts), ParquetSink())
stream.output("late", timed.late(), ParquetSink())
