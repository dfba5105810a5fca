"""Reading the table that a `DeltaSink` writes, as of its newest version, with what others wrote to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from penstock.config import shown_url
from penstock.core.packages import need
from penstock.errors import CorruptFile, StreamError
from penstock.sinks.delta.table import translated
from penstock.spark.flow import Batches, Flow, Scan
from penstock.spark.paths import for_spark
from penstock.storage import Storage
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

# What a table may ask of its readers that changes nothing for those who read whole files.
_HARMLESS = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "columnMapping"})
_MAPPING = "delta.columnMapping.mode"


class DeltaReading:
    """A Delta table at a place. Each call sees its newest version. For any thread."""

    def __init__(self, location: str) -> None:
        self._storage = Storage(location)
        self._lock = threading.Lock()
        self._table: DeltaTable | None = None

    def columns(self, application: str) -> pa.Schema | None:
        """Its columns; None as long as no `DeltaSink` has opened it for the output ``application``."""
        with self._lock:
            table = self._newest()
            return None if table is None or not _is_known(table, application) else _schema(table)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows."""
        with self._lock:
            table = self._newest()
            if table is None:
                raise StreamError(f"there is no Delta table at {shown_url(self._storage.root)} any more")
            _check_readable(table)
            schema, files = _schema(table), _files(table)
            parts = list(table.metadata().partition_columns)
        if self._storage.local and not parts and files:
            paths = [for_spark(self._storage.location(path)) for path, _, _ in files]
            return spark.read.schema(spark_schema(schema)).parquet(*paths).select(*schema.names)
        splits = tuple(_Split(self._storage, *file, schema) for file in files)
        return Flow.scan("delta", Scan(schema, lambda _: splits)).frame(spark)

    def _newest(self) -> DeltaTable | None:
        need("delta", "a Delta table")
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with translated(self._storage.root):
            try:
                if self._table is None:
                    self._table = DeltaTable(self._storage.root)
                else:
                    self._table.update_incremental()
            except TableNotFoundError:
                self._table = None
            return self._table


def _is_known(table: DeltaTable, application: str) -> bool:
    return table.transaction_version(f"{application}/owner") is not None


def _schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _check_readable(table: DeltaTable) -> None:
    """Raise `StreamError` if rows are not simply those of the files, under the names of the columns."""
    asked = set(table.protocol().reader_features or ()) - _HARMLESS
    if table.metadata().configuration.get(_MAPPING, "none") != "none":
        asked.add("columnMapping")
    if asked:
        raise StreamError(
            f"the Delta table at {shown_url(table.table_uri)} uses {', '.join(sorted(asked))}, "
            "which is not read here",
            hint="read it with a program that knows it, or write the output to a location of its own",
        )


def _files(table: DeltaTable) -> list[tuple[str, int, dict[str, Any]]]:
    """Path, rows and partition of every file. Delta writes paths as those of an URL."""
    found = pa.table(table.get_add_actions()).to_pylist()
    files = []
    for each in found:
        if "://" in each["path"] or each["path"].startswith("/"):
            raise StreamError(
                f"the Delta table at {shown_url(table.table_uri)} refers to files elsewhere",
                hint="it is a shallow clone: read it with another program, or copy it",
            )
        files.append((unquote(each["path"]), each["num_records"] or 0, each.get("partition") or {}))
    return files


@dataclass(frozen=True, slots=True)
class _Split:
    """One file, read by a Python worker. What its partition says is not in it."""

    storage: Storage
    path: str
    rows: int
    partition: dict[str, Any] = field(hash=False)
    schema: pa.Schema

    def batches(self) -> Batches:
        import pyarrow.parquet as pq

        try:
            with self.storage.open(self.path) as file, pq.ParquetFile(file) as parquet:
                there = set(parquet.schema_arrow.names) - self.partition.keys()
                names = [name for name in self.schema.names if name in there]
                for batch in parquet.iter_batches(columns=names, use_threads=False):
                    yield self._filled(batch, names)
        except (OSError, pa.ArrowInvalid) as error:
            where = shown_url(self.storage.location(self.path))
            raise CorruptFile(f"{where} cannot be read: {error}") from error

    def _filled(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """The batch with all columns of the table: of the file, of its partition, or nulls if added since."""
        columns = []
        for each in self.schema:
            if each.name in names:
                columns.append(batch.column(each.name).cast(each.type))
            else:
                value = pa.scalar(self.partition.get(each.name), each.type)
                columns.append(pa.repeat(value, batch.num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
