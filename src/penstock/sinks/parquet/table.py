"""Reading the table that a `ParquetSink` writes, as of its newest batch or as of an earlier epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import CorruptFile, EpochGone, StreamError, UsageError
from penstock.sinks.parquet import sweeping
from penstock.sinks.parquet.document import TablePlace, TableState, TableVersion
from penstock.sinks.parquet.manifests import BatchEntry, ManifestNode, in_order
from penstock.sinks.parquet.sweeping import Swept
from penstock.spark.flow import Batches, Flow, Scan
from penstock.spark.paths import for_spark
from penstock.storage import FileRecord, Storage
from penstock.store import Store
from penstock.streams.layout import Layout
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH = "__penstock_batch"
_BATCH_IN_PATH = r"/(\d{16})-\d{16}-[0-9a-f]{8}/[^/]*$"


class StreamTable:
    """The committed rows of an output. Each call sees the table as it is then, and only whole batches.

    ``epoch`` asks for the table with the last batch that was complete by that epoch, and nothing later. A
    batch counts for the newest epoch that it takes in: after one of epochs 5 to 9, the table at 7 is that
    at 4.
    """

    def __init__(self, store: Store, storage: Storage, stream: str, id: str, output: str) -> None:  # noqa: A002
        self._store, self._storage = store, storage
        self._layout, self._output = Layout(stream, id), output

    @property
    def schema(self) -> pa.Schema:
        return self._read()[1].state.shape.arrow

    @property
    def ended(self) -> bool:
        """Whether the stream has ended and the table has all of it."""
        return self._read()[1].state.ended

    def epochs(self) -> range:
        """The epochs that it can be read at; empty before the first batch."""
        state = self._read()[1].state
        return range(state.first, state.epoch + 1) if state.batch is not None else range(0)

    def files(self, epoch: int | None = None) -> list[FileRecord]:
        """The files of the table, oldest batch first. In mode ``update``, replaced rows are among theirs."""
        return [file for entry in self._entries(epoch)[2] for file in entry.files]

    def paths(self, epoch: int | None = None) -> list[str]:
        """Where these files are, for any program that reads Parquet."""
        place, _, entries = self._entries(epoch)
        return [place.storage.location(file.path) for entry in entries for file in entry.files]

    def frame(self, spark: SparkSession, epoch: int | None = None) -> DataFrame:
        """The rows. In mode ``update``: of each key the row of its newest batch."""
        from pyspark.sql import functions as F

        place, state, entries = self._entries(epoch)
        shape, names = state.shape, state.shape.arrow.names
        rows = _rows(spark, place.storage, self._output, shape.arrow, entries)
        if shape.mode != "update":
            return rows.select(*names)
        newest = F.max_by(F.struct(*names), _BATCH).alias("row")
        return rows.groupBy(*shape.keys).agg(newest).select("row.*")

    def sweep(self, *, dry_run: bool = False) -> Swept:
        """Remove the files of dead writers. What could still be referred to is left alone."""
        return sweeping.sweep(self._read()[0], dry_run=dry_run)

    def _read(self) -> tuple[TablePlace, TableVersion]:
        place = TablePlace.of(self._store, self._storage, self._layout, self._output, None)
        found = place.read()
        if found is None:
            raise StreamError(
                f"output {self._output} of stream {self._layout.stream} has no table yet",
                hint="it is made when the output is first run with a ParquetSink",
            )
        location = found.state.shape.location
        if location is not None:
            place = TablePlace.of(self._store, self._storage, self._layout, self._output, location)
        return place, found

    def _entries(self, epoch: int | None) -> tuple[TablePlace, TableState, list[BatchEntry]]:
        place, found = self._read()

        def read(state: TableState) -> tuple[TablePlace, TableState, list[BatchEntry]]:
            wanted = self._checked(state, epoch)
            entries = place.manifests.read(_nodes(state, wanted), lambda node: node.since <= wanted).entries
            return place, state, [entry for entry in entries if entry.epoch <= wanted]

        return place.steadily(found, read)

    def _checked(self, state: TableState, epoch: int | None) -> int:
        if epoch is None:
            return state.epoch
        if epoch > state.epoch or epoch < 0:
            raise UsageError(
                f"output {self._output} has come to epoch {state.epoch}, not to {epoch}",
                hint="wait until it gets there, or ask for an earlier epoch",
            )
        if epoch < state.first:
            raise EpochGone(
                f"output {self._output} no longer has what it held at epoch {epoch}",
                hint=f"ask for epoch {state.first} to {state.epoch}, or keep more with ParquetSink(keep=…)",
            )
        return epoch


def _nodes(state: TableState, epoch: int) -> Sequence[ManifestNode]:
    """The nodes to read for an epoch; where each batch is the whole table, that of the newest one."""
    nodes = [node for node in in_order(state.levels) if node.since <= epoch]
    return nodes[-1:] if state.shape.mode == "complete" else nodes


def _rows(
    spark: SparkSession, storage: Storage, table: str, schema: pa.Schema, entries: Sequence[BatchEntry]
) -> DataFrame:
    """The rows of all entries, and the number of the batch that each is from."""
    from pyspark.sql import functions as F

    paths = [for_spark(storage.location(file.path)) for entry in entries for file in entry.files]
    if storage.local and paths:
        read = spark.read.schema(spark_schema(schema)).parquet(*paths)
        batch = F.regexp_extract(F.col("_metadata.file_path"), _BATCH_IN_PATH, 1).cast("long")
        return read.select("*", batch.alias(_BATCH))
    splits = tuple(_Split(storage, file, schema, entry.batch) for entry in entries for file in entry.files)
    with_batch = schema.append(pa.field(_BATCH, pa.int64(), nullable=False))
    return Flow.scan(table, Scan(with_batch, lambda _: splits)).frame(spark)


@dataclass(frozen=True, slots=True)
class _Split:
    """One file, read by a Python worker: what Spark itself has no client for is read that way."""

    storage: Storage
    record: FileRecord
    schema: pa.Schema
    batch: int

    @property
    def rows(self) -> int:
        return self.record.rows

    def batches(self) -> Batches:
        import pyarrow.parquet as pq

        try:
            with self.storage.open(self.record.path) as file, pq.ParquetFile(file) as parquet:
                for batch in parquet.iter_batches(columns=self.schema.names, use_threads=False):
                    number = pa.repeat(pa.scalar(self.batch, pa.int64()), batch.num_rows)
                    yield batch.append_column(_BATCH, number)
        except (OSError, pa.ArrowInvalid) as error:
            raise CorruptFile(f"{self.storage.location(self.record.path)} cannot be read: {error}") from error
