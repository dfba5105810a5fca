"""A stream as a program reads it: rows of its queue, and the tables of its outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

from penstock.config.tls import Tls
from penstock.errors import StreamError, UsageError
from penstock.sinks.parquet.table import StreamTable
from penstock.streams import registry
from penstock.streams.log.batch_table import pinned, read_table
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.log.spark_source import read_stream
from penstock.streams.place import Place
from penstock.types.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Committed(NamedTuple):
    """A committed epoch: its number, when it was committed (if that is known), and rows by instance."""

    number: int
    at: datetime | None
    rows: dict[str, int]


class StreamHandle:
    """A stream that exists, found by its name in a store. Only what is committed is seen.

    ::

        with StreamHandle("words", "sqlite:////data/.penstock/store.db", "/data/.penstock/storage") as words:
            words.follow(spark, "lines", reader="mine")  # a streaming DataFrame; its offset is the epoch
            with words.rows(spark, "lines", epoch=120) as frame:  # a table AT EPOCH 120
                frame.show()
            words.table("counts").frame(spark).show()
    """

    def __init__(self, name: str, store: str, storage: str, tls: Tls | None = None) -> None:
        self._store, self._storage = Place(store, storage, name, "", tls).open()
        try:
            self._record = registry.load(self._store, name)
        except BaseException:
            self._store.close()
            raise
        self.place = Place(store, storage, name, self._record.id, tls)
        self._log = EpochLog(self._store, self._storage, self.place.layout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._store.close()

    @property
    def epoch(self) -> int:
        """The newest committed epoch."""
        return self._log.committed()

    def epochs(self) -> list[int]:
        """The retained epochs that brought rows, oldest first."""
        return self._log.read(lambda view: [each.number for each in self._log.retained(view) if each.rows])

    def history(self) -> list[Committed]:
        """The same epochs, with when each was committed and how many rows each instance brought."""
        return self._log.read(
            lambda view: [
                Committed(
                    each.number,
                    datetime.fromisoformat(each.at) if each.at else None,
                    {brought.member: brought.rows for brought in each.brought},
                )
                for each in self._log.retained(view)
                if each.rows
            ]
        )

    def table(self, output: str) -> StreamTable:
        """The table that the `ParquetSink` of an output writes."""
        return StreamTable(self._store, self._storage, self.place.stream, self.place.id, output)

    @contextmanager
    def rows(
        self,
        spark: SparkSession,
        source: str,
        epoch: int | None = None,
        *,
        late: bool = False,
        table: type[Table] | None = None,
    ) -> Iterator[DataFrame]:
        """All retained rows of a source up to ``epoch``, or the newest. They are kept inside the block.

        ``late`` asks for those alone that came too late for windows.
        """
        schema = self._schema(source, table, late)
        with pinned(self._store, self._storage, self.place.layout, epoch) as upto:
            yield read_table(
                spark,
                self._store,
                self._storage,
                self.place.layout,
                source,
                upto,
                late or None,
                schema=schema,
            )

    def follow(
        self,
        spark: SparkSession,
        source: str,
        *,
        reader: str | None = None,
        from_oldest: bool = False,
        late: bool = False,
        table: type[Table] | None = None,
    ) -> DataFrame:
        """The rows of a source as a streaming DataFrame.

        With a name, ``reader``, nothing is removed that it has not read, until ``penstock stream readers``
        drops it. A new one begins with the first epoch of the stream; if that is not retained any more, it
        fails with `EpochGone`, or begins with the oldest that is, ``from_oldest``. Without a name, it begins
        there, and fails when it falls behind what is retained. ``late`` asks for those rows alone that came
        too late for windows.
        """
        schema = self._schema(source, table, late)
        return read_stream(
            spark,
            self.place,
            source,
            schema=schema,
            late=late or None,
            reader=reader,
            from_oldest=from_oldest,
        )

    def _schema(self, source: str, table: type[Table] | None, late: bool) -> pa.Schema:
        known = self._record.definition.get("sources", {})
        if source not in known:
            raise UsageError(
                f"stream {self.place.stream} has no source {source!r}", hint=f"it has: {', '.join(known)}"
            )
        if table is not None:
            return table.input_schema()
        for epoch in self._log.retained(self._log.view()):
            for brought in epoch.brought:
                for file in brought.files(self._storage):
                    if file.source == source and (file.late or not late):
                        with self._storage.open(file.record.path) as opened:
                            return pa.ipc.open_file(opened).schema
        raise StreamError(
            f"stream {self.place.stream} has no rows of {source} yet, so that their columns are not known",
            hint="wait for the first ones, or give the table: table=…",
        )
