"""A stream over journals, in the folder that the environment names."""

from __future__ import annotations

import os

from penstock import Stream
from penstock.sinks import ParquetSink
from penstock.sources import JournalSource
from tests.journals.shuffle.logs import Entries

stream = Stream("ledger")
entries = stream.source(
    "entries",
    JournalSource(os.environ["LEDGER_FOLDER"], Entries, key=["/account"], meta={"uuid": "uuid"}),
)
stream.output("all", entries, ParquetSink())
