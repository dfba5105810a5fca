"""Committed epochs as the Spark source ``penstock``: a stream whose offset is the epoch, and a batch table.

Spark calls the stream's reader in a Python process of its own beside the driver, and reads partitions in its
workers. Nothing that is not committed is ever planned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.errors import StreamError, UsageError
from penstock.spark.faults import carried
from penstock.spark.fitting import fit
from penstock.spark.flow import Batches
from penstock.spark.session import parallelism
from penstock.storage import Storage
from penstock.streams.log import schemas
from penstock.streams.log.batch_table import Pin, checked_epoch, cut_table
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.log.readers import ReaderPositions, queue_name, reader_name
from penstock.streams.log.row_files import EpochSlice, balanced, counted
from penstock.streams.log.source_options import ReadOptions, columns_of
from penstock.streams.model import Epoch, RowFile
from penstock.streams.place import Opened, Place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.streams.api.stream import Stream
    from penstock.streams.operators.query import ReadSource

NAME = "penstock"

Offset = dict[str, int]


class EpochSource(DataSource):
    """The source. Its options are those of `ReadOptions`, and ``schema`` (JSON or DDL) and ``columns``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType | str:
        with carried("source penstock"):
            options = ReadOptions.parse(self.options)
            text = self.options.get("schema")
            if text is None:
                raise UsageError(
                    "option schema is missing", hint="give it as DDL, such as 'id bigint NOT NULL'"
                )
            if options.counted is not None:
                if columns_of(self.options) is not None:
                    raise UsageError("countBy names the columns already", hint="leave out columns")
                return schemas.counted(schemas.decode(text, options.counted))
            return schemas.decode(text, columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        with carried("source penstock"):
            return EpochBatchReader(ReadOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        with carried("source penstock"):
            return EpochStreamReader(ReadOptions.parse(self.options), schema)


class FilesPartition(InputPartition):
    """Row files that one task reads; after them, a row that tells the ``watermark``, if there is one."""

    def __init__(self, files: Sequence[RowFile], watermark: int | None = None) -> None:
        self.files = files
        self.watermark = watermark


class EpochsPartition(InputPartition):
    """Epochs that one task reads."""

    def __init__(self, epochs: EpochSlice) -> None:
        self.epochs = epochs


class EndPartition(InputPartition):
    """The row that says that the stream has ended."""

    def __init__(self) -> None:
        """Nothing needs to be said about it."""


class _Reading:
    """What both readers do in Spark's workers. It is pickled, and opens nothing."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._wanted = options.wanted(schema)
        self._schema = options.arrow(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with carried("reading a stream"):
            batches = self._batches(partition, Storage(self._options.place.storage))
            if self._options.counted is not None:
                batches = counted(batches, schemas.COUNT)
            for batch in batches:
                yield fit(self._options.source, batch, self._schema)

    def _batches(self, partition: InputPartition, storage: Storage) -> Batches:
        if isinstance(partition, FilesPartition):
            rows = self._wanted.batches(storage, partition.files)
            if partition.watermark is None:
                return rows
            told = schemas.watermark_row(self._schema, str(self._options.event_time), partition.watermark)
            return chain(rows, [told])
        if isinstance(partition, EpochsPartition):
            return partition.epochs.batches(storage, self._wanted)
        if isinstance(partition, EndPartition):
            return iter([schemas.end_row(self._schema, str(self._options.event_time))])
        return iter(())  # what Spark makes up where there is no partition


class EpochBatchReader(_Reading, DataSourceReader):
    """The retained epochs up to ``atEpoch``, or the newest one, as a table."""

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with carried("reading a stream"), options.place.open() as (store, storage):
            log = EpochLog(store, storage, options.place.layout)
            # Nobody says when the query ends, so that the hold lasts for a time.
            view = ReaderPositions(log).hold_for(store.session(options.hold_for), "a batch read")
            pin = Pin(checked_epoch(options.place.stream, view, options.at_epoch), view)
            return [EpochsPartition(each) for each in cut_table(log, pin, options.tasks)]


class EpochStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Committed epochs from an offset on. An offset ``{"epoch": n}`` means everything up to epoch n."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._stream: _OpenStream | None = None
        self._last: int | None = None
        self._newest = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}

    def initialOffset(self) -> Offset:  # noqa: N802
        with carried("reading a stream"):
            return {"epoch": self._opened().enter()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        with carried("reading a stream"):
            opened, after = self._opened(), start["epoch"]
            opened.begin(after)
            if self._last is not None and after >= self._last:
                return start
            newest = opened.log.wait(after, 0.0 if self._last is not None else self._options.wait)
            if newest is None:
                opened.check(after)
                return start
            self._newest = newest
            if self._last is not None:
                newest = min(newest, self._last)
            if isinstance(limit, ReadAllAvailable):
                return {"epoch": newest}
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows
            return {
                "epoch": min(newest, opened.log.read_on(after, _within(rows, self._options.epochs, after)))
            }

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return {"epoch": self._newest} if self._newest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with carried("reading a stream"):
            self._last = self._opened().log.view().newest

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with carried("reading a stream"):
            opened = self._opened()
            epochs = opened.log.entries(start["epoch"], end["epoch"])
            files = self._wanted.files(opened.storage, (b for epoch in epochs for b in epoch.brought))
            planned: list[InputPartition] = [
                FilesPartition(some) for some in balanced(files, self._options.tasks)
            ]
            final = any(epoch.ended for epoch in epochs)
            if self._options.watermarks:
                self._tell_watermark(planned, epochs, final)
            elif final and self._options.event_time is not None:
                planned.append(EndPartition())
            self._tell(start, end, final)
            return planned

    def commit(self, end: Offset) -> None:
        if self._options.ranges is not None:
            return  # whoever runs the output lets the epochs go, once Spark's checkpoint is on disk
        with carried("reading a stream"):
            self._opened().advance(end["epoch"])

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _opened(self) -> _OpenStream:
        if self._stream is None:
            self._stream = _OpenStream(self._options)
        return self._stream

    def _tell_watermark(self, planned: list[InputPartition], epochs: Sequence[Epoch], final: bool) -> None:
        """Let the batch move Spark's watermark to where the source was at its end."""
        told = (epoch.watermark(self._options.source) for epoch in epochs)
        newest = max((mark for mark in told if mark is not None), default=None)
        if final:
            newest = schemas.END_MICROS
        if newest is not None:
            first = planned[0] if planned else None
            files = first.files if isinstance(first, FilesPartition) else ()
            planned[:1] = [FilesPartition(files, newest)]

    def _tell(self, start: Offset, end: Offset, final: bool) -> None:
        """Write down which epochs the batch takes in, for whoever gets the batch.

        Spark's public API has no other way for it. This process talks to Spark's JVM alone. `foreachBatch`
        is given the number of the batch, and nothing of its offsets; a query's progress has them only after
        the batch, as its description of a source has no name of ours. Spark's offset log has them before,
        but by the place of a source in the plan, which is Spark's own affair. And a batch may have no rows
        that could carry them.
        """
        if self._options.ranges is None:
            return
        path = Path(self._options.ranges)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(json.dumps({"start": start["epoch"], "end": end["epoch"], "final": final}))
        beside.replace(path)


class _OpenStream:
    """A stream that is open in the process beside the driver, and the position of a named reader."""

    def __init__(self, options: ReadOptions) -> None:
        self._opened: Opened = options.place.open()
        self.storage = self._opened.storage
        self.log = EpochLog(self._opened.store, self.storage, options.place.layout)
        self._readers = ReaderPositions(self.log)
        self._options = options
        self._reader = options.reader
        self._begun = False

    def enter(self) -> int:
        """Where to begin without a checkpoint: at the position, or where everything retained is read."""
        if self._reader is None:
            return self.log.floor - 1
        options = self._options
        return self._readers.enter(self._reader, from_oldest=options.from_oldest, output=options.output)

    def begin(self, epoch: int) -> None:
        if self._reader is not None and not self._begun:
            self._readers.begin(self._reader, epoch, self._options.output)
        self._begun = True

    def check(self, epoch: int) -> None:
        """Raise `StreamError` if the stream is not as far as its reader: then it is not the same any more."""
        if epoch > (committed := self.log.committed()):
            raise StreamError(
                f"stream {self.log.layout.stream} has come to epoch {committed}, "
                f"but its reader was at {epoch}",
                hint="if the store was restored from a backup, begin with a new checkpoint",
            )

    def advance(self, epoch: int) -> None:
        if self._reader is not None:
            self._readers.advance(self._reader, epoch)

    def close(self) -> None:
        self._opened.store.close()


def _within(rows: int, epochs: int, after: int) -> Callable[[Iterator[Epoch]], int]:
    """Up to where to read on, within limits; the first epoch is taken whatever its size."""

    def last(found: Iterator[Epoch]) -> int:
        left, reached = rows, after
        for count, epoch in enumerate(found):
            left -= epoch.rows
            if count and (left < 0 or count >= epochs):
                break
            reached = epoch.number
        return reached

    return last


def read_stream(
    spark: SparkSession,
    place: Place,
    source: str,
    *,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    tasks: int | None = None,
    **options: Any,
) -> DataFrame:
    """The committed rows of a source as a streaming DataFrame.

    ``options`` are further fields of `ReadOptions`: ``late``, ``event_time``, ``watermarks``, ``reader``,
    ``from_oldest``, ``output``, ``counted``, ``ranges``, ``rows``, ``epochs``, ``wait``.
    """
    spark.dataSource.register(EpochSource)
    told = ReadOptions(place, source, tasks=tasks or 2 * parallelism(spark), **options).to_options()
    stream = spark.readStream.format(NAME).options(**told).option("schema", schemas.encode(schema))
    return (stream.option("columns", json.dumps(list(columns))) if columns is not None else stream).load()


def reading(place: Place, stream: Stream) -> Callable[[SparkSession, str, Path], ReadSource]:
    """For each output of a stream and a folder, the function that reads a source: see `ReadSource`.

    The output's position is kept under its name, and the ranges of its batches are told in the folder. The
    session is the one whose settings the query takes with it.
    """
    from penstock.streams.ingest.jobs.intake import queue_schema

    def for_output(spark: SparkSession, output: str, folder: Path) -> ReadSource:
        def read(source: str, late: bool | None, counted: Sequence[str] | None = None) -> DataFrame:
            spec = stream.sources[source]
            name = queue_name(source, late)
            timestamps = spec.timestamps if late is False else None
            return read_stream(
                spark,
                place,
                source,
                schema=queue_schema(spec),
                late=late,
                event_time=timestamps.field if timestamps else None,
                watermarks=timestamps is not None,
                reader=reader_name(output, source, late),
                output=output,
                counted=tuple(counted) if counted is not None else None,
                ranges=str(folder / f"{name}.json"),
            )

        return read

    return for_output
