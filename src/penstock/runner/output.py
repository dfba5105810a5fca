"""Reading what a run has published.

The list of published files is what the acks say, and nothing else: a file in the output directory
that no ack names (half written, or a zombie's) does not exist for a reader.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.claims import Board, State
from penstock.errors import CorruptFile, RunError, UsageError
from penstock.runner import layout, manifests, runs
from penstock.runner.manifests import OutputManifest
from penstock.runner.runs import Run
from penstock.spark import files as spark_files
from penstock.storage import FileRecord, Storage
from penstock.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    directory: str
    files: int
    rows: int
    bytes: int


class Output:
    """The published output of a run, as it is at each call."""

    def __init__(self, store: Store, run: str) -> None:
        self.run: Run = runs.load(store, run)
        self._board = Board.open(store, run)
        self._storage = Storage(self.run.storage)

    @property
    def tables(self) -> tuple[str, ...]:
        return self.run.outputs

    def manifests(self) -> Iterator[OutputManifest]:
        """One for each completed partition, in row order."""
        for view in self._board.partitions(states={State.COMPLETED}):
            path = layout.output_manifest(self.run.name, view.range, view.token)
            yield OutputManifest.decode(manifests.fetch(self._storage, path, view.digest))

    def files(self, table: str) -> list[FileRecord]:
        """The published files of a table, in row order."""
        return [f for m in self.manifests() for f in m.tables[self._known(table)].files]

    def paths(self, table: str) -> list[str]:
        """Where the published files are, for any program that reads Parquet or Arrow."""
        return [self.run.output_storage.location(f.path) for f in self.files(table)]

    def schema(self, table: str) -> pa.Schema:
        """The table's schema, known as soon as one partition is published."""
        for manifest in self.manifests():
            return manifest.tables[self._known(table)].schema
        raise RunError(
            f"run {self.run.name!r} has published nothing yet", hint=f"penstock runs show {self.run.name}"
        )

    def frame(self, spark: SparkSession, table: str) -> DataFrame:
        """The published rows as a DataFrame."""
        from penstock.tables import spark_schema

        schema, records = self.schema(table), self.files(table)
        storage = self.run.output_storage
        if self.run.output_format == "parquet" and records:
            return spark.read.schema(spark_schema(schema)).parquet(
                *(storage.location(r.path) for r in records)
            )
        return spark_files.read(storage, table, schema, records).frame(spark)

    def arrow(self, table: str) -> pa.Table:
        """The published rows in memory."""
        import pyarrow.parquet as pq

        storage, schema = self.run.output_storage, self.schema(table)
        parts = []
        for record in self.files(table):
            with storage.open(record.path) as file:
                if self.run.output_format == "parquet":
                    parts.append(pq.read_table(file).cast(schema))
                else:
                    parts.append(pa.ipc.open_file(file).read_all())
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def export(self, directory: str, tables: tuple[str, ...] = (), *, partial: bool = False) -> Exported:
        """Copy the published files to a plain directory, one folder for each table.

        Every byte is checked on the way. A run that is not complete is refused unless ``partial``.
        """
        if not partial and (left := self._unfinished()):
            raise RunError(
                f"run {self.run.name!r} is not complete: {left} partitions are not done",
                hint="finish it with `penstock runs resume`, or export what there is with --partial",
            )
        target = Storage(directory)
        if target.list():
            raise UsageError(f"{target.root} is not empty", hint="export to a new directory")
        jobs: list[tuple[FileRecord, str]] = []
        for table in tables or self.tables:
            for number, record in enumerate(self.files(table)):
                jobs.append((record, f"{table}/part-{number:06d}.{self.run.output_format}"))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda job: _copy(self.run.output_storage, target, *job), jobs))
        return Exported(target.root, len(jobs), sum(r.rows for r, _ in jobs), sum(r.bytes for r, _ in jobs))

    def _unfinished(self) -> int:
        summary = self._board.summary()
        return summary.total.partitions - summary.completed.partitions

    def _known(self, table: str) -> str:
        if table not in self.tables:
            raise UsageError(
                f"run {self.run.name!r} has no output {table!r}", hint=f"it has: {', '.join(self.tables)}"
            )
        return table


def _copy(source: Storage, target: Storage, record: FileRecord, path: str) -> None:
    digest = hashlib.sha256()
    with source.open(record.path) as file, target.create(path) as sink:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            sink.write(chunk)
        if digest.hexdigest() != record.sha256:
            raise CorruptFile(
                f"{source.location(record.path)} does not match its checksum",
                left="the export is unfinished",
                hint="`penstock runs verify` lists everything that is wrong",
            )
