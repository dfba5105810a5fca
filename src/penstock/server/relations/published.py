"""What runs and streams have published, as tables: a schema for each of them, under its name.

They come and go without asking the gateway. A table is looked for in the store when it is named; listings
are kept for about a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.batch.runs import runs
from penstock.batch.runs.output import Output
from penstock.batch.runs.runs import Run
from penstock.core.names import is_name
from penstock.errors import PenstockError
from penstock.server.relations.relation import Key
from penstock.sinks.base import application
from penstock.sinks.parquet.table import StreamTable
from penstock.storage import Storage
from penstock.store import Store
from penstock.streams import registry
from penstock.streams.registry import StreamRecord
from penstock.streams.views.observer import outputs_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.sinks.delta.reading import DeltaReading

_FRESH = 1.0
_SHARE = 20
"""Listing may take one part in so many of the time."""


@dataclass(frozen=True, slots=True)
class Published:
    """A table that a run or a stream has published something of."""

    key: Key
    columns: pa.Schema
    frame: Callable[[SparkSession], DataFrame]


class Publications:
    """The published tables in a store. For any thread."""

    def __init__(self, store: Store, storage: Storage) -> None:
        self._store, self._storage = store, storage
        self._lock = threading.Lock()
        self._schemas: dict[tuple[str, str], pa.Schema] = {}
        self._deltas: dict[str, DeltaReading] = {}
        self._listed: dict[Key, pa.Schema] = {}
        self._names: frozenset[str] = frozenset()
        self._until = 0.0
        self.version = 0
        """Grows when a listing differs from the one before."""

    def has_schema(self, name: str) -> bool:
        """Whether a run or stream has this name now."""
        return is_name(name) and (
            runs.find(self._store, name) is not None or registry.find(self._store, name) is not None
        )

    def find(self, key: Key) -> Published | None:
        """The table of this name as it is now, if anything of it is published."""
        schema, name = key
        if not is_name(schema):
            return None
        run = runs.find(self._store, schema)
        if run is not None and name in run.outputs and (columns := self._of_run(run, name)) is not None:
            return Published(key, columns, lambda spark: Output(self._store, schema).frame(spark, name))
        stream = registry.find(self._store, schema)
        if stream is None or stream.dropped or name not in outputs_of(stream):
            return None
        columns = self._of_stream(stream, name)
        if columns is None:
            return None
        if (delta := self._delta(stream, name)) is not None:
            return Published(key, columns, delta.frame)
        table = StreamTable(self._store, self._storage, stream.name, stream.id, name)
        return Published(key, columns, table.frame)

    def listed(self) -> dict[Key, pa.Schema]:
        """All of them with their columns, as they were at most about a second ago."""
        with self._lock:
            begin = time.monotonic()
            if begin >= self._until:
                self._list()
                end = time.monotonic()
                self._until = end + max(_FRESH, (end - begin) * _SHARE)
            return self._listed

    def names(self) -> frozenset[str]:
        """Every run and stream, also those that have published nothing."""
        self.listed()
        return self._names

    def places(self, chosen: Callable[[str], bool]) -> list[str]:
        """Where the runs and streams that are chosen by name put their files, beside the storage."""
        found = [run.output_storage.root for run in runs.every(self._store) if chosen(run.name)]
        for stream in registry.every(self._store):
            sinks = [output.get("sink", {}) for output in outputs_of(stream).values()]
            found += [sink["location"] for sink in sinks if "location" in sink and chosen(stream.name)]
        return found

    def _list(self) -> None:
        found: dict[Key, pa.Schema] = {}
        every, streams = runs.every(self._store), registry.every(self._store)
        for stream in streams:
            for name in () if stream.dropped else outputs_of(stream):
                if (columns := self._of_stream(stream, name)) is not None:
                    found[stream.name, name] = columns
        for run in every:
            for name in run.outputs:
                if (columns := self._of_run(run, name)) is not None:
                    found[run.name, name] = columns
        if found != self._listed:
            self._listed = found
            self.version += 1
        self._names = frozenset([*(run.name for run in every), *(stream.name for stream in streams)])

    def _of_run(self, run: Run, table: str) -> pa.Schema | None:
        # It stays the same while the outputs do, and reading it takes a look into a manifest.
        known = (f"{run.key} {run.fingerprint.outputs.get(table)}", table)
        if known not in self._schemas:
            try:
                self._schemas[known] = Output(self._store, run.name).schema(table)
            except PenstockError:
                return None
        return self._schemas[known]

    def _of_stream(self, stream: StreamRecord, output: str) -> pa.Schema | None:
        if (delta := self._delta(stream, output)) is not None:
            # Others may write to it as well, and add columns.
            try:
                return delta.columns(application(stream.name, stream.id, output))
            except PenstockError:
                return None
        known = (f"{stream.name} {stream.id}", output)
        if known not in self._schemas:
            table = StreamTable(self._store, self._storage, stream.name, stream.id, output)
            try:
                self._schemas[known] = table.schema
            except PenstockError:
                return None
        return self._schemas[known]

    def _delta(self, stream: StreamRecord, output: str) -> DeltaReading | None:
        """The Delta table of an output, if it writes to one whose place can be told."""
        sink = outputs_of(stream)[output].get("sink", {})
        location = str(sink.get("location", ""))
        # An URL with a password is kept without it, and so is of no use here.
        if sink.get("kind") != "delta" or "***" in location:
            return None
        if location not in self._deltas:
            from penstock.sinks.delta.reading import DeltaReading

            self._deltas[location] = DeltaReading(location)
        return self._deltas[location]
