"""Parquet files with manifests: a table of our own, exactly once and readable at every epoch.

A batch becomes visible by one compare-and-set on the table's document. Files, and the manifest that lists
them, are complete by then; whatever dies before leaves files that nobody refers to.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.config import shown_url
from penstock.core.codec import schema_to_text
from penstock.core.failpoints import reach
from penstock.errors import CorruptFile, PenstockError, StaleToken, StreamMismatch, UsageError
from penstock.sinks.base import Batch, Mode, Sink, Target, Writer, pass_over, repeats
from penstock.sinks.columns import flow_of
from penstock.sinks.parquet.document import TABLE, TablePlace, TableShape, TableState, TableVersion
from penstock.sinks.parquet.manifests import BatchEntry, ManifestNode, grown
from penstock.sinks.parquet.sweeping import sweep_recent
from penstock.spark import files as spark_files
from penstock.storage import FileRecord, Storage
from penstock.streams.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LINGER = 60.0
"""How many seconds files stay after the table has let go of them, for readers that are under way."""


@dataclass(frozen=True, slots=True)
class ParquetSink(Sink):
    """Parquet files that a `StreamTable` reads, exactly once.

    They stand with the other files of the stream, or below ``location``. Of a table in mode ``complete``,
    whose batches each hold all of it, the newest ``keep`` stay readable.
    """

    location: str | None = None
    keep: int = 8

    exactly_once: ClassVar[bool] = True
    modes: ClassVar[frozenset[Mode]] = frozenset({"append", "update", "complete"})

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise UsageError(f"keep={self.keep} leaves nothing to read", hint="keep at least one batch")

    def open(self, target: Target) -> Writer:
        location = Storage(self.location).root if self.location is not None else None
        place = TablePlace.of(
            target.store, target.storage, Layout(target.stream, target.id), target.output, location
        )
        schema = schema_to_text(target.table.arrow_schema())
        keys = target.keys if target.mode == "update" else ()
        if target.mode == "update" and not keys:
            raise UsageError(
                f"output {target.output} updates rows, but nothing says which fields identify one",
                hint="name its keys",
            )
        _probe(place.storage)
        writer = _ParquetWriter(place, target, TableShape(schema, target.mode, keys, location), self.keep)
        writer.fence()
        sweep_recent(place)
        return writer

    def describe(self) -> dict[str, str]:
        place = {"location": shown_url(Storage(self.location).root)} if self.location is not None else {}
        return {"kind": "parquet", **place}


class _ParquetWriter(Writer):
    def __init__(
        self,
        place: TablePlace,
        target: Target,
        shape: TableShape,
        keep: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._table = target.table
        self._output = target.output
        self._token = target.token
        self._shape = shape
        self._keep = keep
        self._clock = clock
        self._retired: deque[tuple[float, tuple[ManifestNode, ...]]] = deque()

    def fence(self) -> None:
        """Put our token into the document, so that no earlier owner's write is taken any more."""
        while True:
            found = self._place.read()
            if found is not None:
                self._check_token(found.state)
                self._check_shape(found.state.shape)
                if found.state.token == self._token:
                    return
            state = replace(found.state, token=self._token) if found else TableState(self._shape, self._token)
            version = found.version if found else 0
            if self._place.store.cas(self._place.key, version, TABLE.encode(state)) is not None:
                return

    def write(self, frame: DataFrame, batch: Batch) -> None:
        found = self._current()
        if self._has(found.state, batch):
            pass_over(frame)
            return
        records = self._write_rows(frame, batch)
        reach("sink.parquet.files")
        entry = BatchEntry(batch.number, max(batch.epoch, found.state.epoch), self._token, records)
        needless = self._commit(entry, batch, found)
        reach("sink.parquet.committed")
        self._retire(needless)

    def _write_rows(self, frame: DataFrame, batch: Batch) -> tuple[FileRecord, ...]:
        storage = self._place.storage
        flow = flow_of(frame, self._table)
        folder = self._place.attempt(batch.number, self._token, uuid.uuid4().hex[:8])
        try:
            records = spark_files.write(frame.sparkSession, flow, storage, folder, format="parquet")
        except BaseException:
            # Nobody refers to them. What cannot be removed now is swept when the table is next opened.
            with suppress(Exception):
                storage.delete(folder)
            raise
        if storage.local:
            # Spark writes a file even where there are no rows.
            listed = {record.path for record in records}
            for path in (path for path, _ in storage.list(folder) if path not in listed):
                storage.delete(path)
            storage.remove_empty(folder)
        return records

    def _commit(self, entry: BatchEntry, batch: Batch, found: TableVersion) -> tuple[ManifestNode, ...]:
        """Make the batch part of the table, unless it is by now; the nodes that are needless then."""
        node = self._place.manifests.add(entry) if self._shows(entry) else None
        reach("sink.parquet.manifest")
        while True:
            state, needless = self._grown(found.state, node)
            ended = state.ended or batch.final
            after = replace(state, token=self._token, batch=entry.batch, epoch=entry.epoch, ended=ended)
            reach("sink.parquet.folded")
            if self._place.store.cas(self._place.key, found.version, TABLE.encode(after)) is not None:
                return needless
            found = self._current()
            if self._has(found.state, batch):
                return ()

    def _grown(
        self, state: TableState, node: ManifestNode | None
    ) -> tuple[TableState, tuple[ManifestNode, ...]]:
        """The table with one node more, and the nodes that it does not refer to any more."""
        if node is None:
            return state, ()
        if self._shape.mode == "complete":
            return state.replaced(node, self._keep)
        levels, needless = grown(state.levels, node, self._place.manifests.fold)
        return replace(state, levels=levels), needless

    def _shows(self, entry: BatchEntry) -> bool:
        """Whether readers must know of the batch: one without rows only matters if it replaces others."""
        return bool(entry.files) or self._shape.mode == "complete"

    def _current(self) -> TableVersion:
        found = self._place.read()
        if found is None:
            raise StaleToken(
                f"the table of output {self._output} is not there any more",
                left="nothing was written",
                hint="the stream was dropped; start it anew",
            )
        self._check_token(found.state)
        return found

    def _has(self, state: TableState, batch: Batch) -> bool:
        return repeats(batch, state.batch, f"the table of output {self._output}", state.epoch)

    def _check_token(self, state: TableState) -> None:
        if state.token > self._token:
            raise StaleToken(
                f"output {self._output} was taken over with token {state.token}; ours is {self._token}",
                left="files that are not part of the table; they are swept later",
            )

    def _check_shape(self, before: TableShape) -> None:
        if reasons := before.differences(self._shape):
            raise StreamMismatch(
                f"the table of output {self._output} is another than before: {'; '.join(reasons)}",
                left="the table as it was",
                hint="take the change back, or give the output a new name",
            )

    def _retire(self, needless: tuple[ManifestNode, ...]) -> None:
        """Remove, after a while, what the table has let go of; what a crash leaves is swept later."""
        if needless:
            self._retired.append((self._clock() + _LINGER, needless))
        while self._retired and self._retired[0][0] <= self._clock():
            with suppress(OSError, PenstockError):
                self._remove(self._retired.popleft()[1])

    def _remove(self, nodes: Sequence[ManifestNode]) -> None:
        manifests, storage = self._place.manifests, self._place.storage
        if self._shape.mode == "complete":
            with suppress(CorruptFile):
                for record in (file for entry in manifests.read(nodes).entries for file in entry.files):
                    storage.delete(record.path)
                    storage.remove_empty(record.path.rpartition("/")[0])
        for node in nodes:
            storage.delete(manifests.path(node))


def _probe(storage: Storage) -> None:
    try:
        storage.probe()
    except OSError as error:
        raise UsageError(
            f"{shown_url(storage.root)} cannot be written to: {error.strerror or error}",
            left="nothing was written",
            hint="give the output another location, or give this process the right to write there",
        ) from error
