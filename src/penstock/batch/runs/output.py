"""Reading what a run has published.

The list of published files is what the acks say, and nothing else: a file in the output directory
that no ack names (half written, or a zombie's) does not exist for a reader.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.batch.runs import layout, manifests, runs
from penstock.batch.runs.manifests import OutputManifest
from penstock.batch.runs.runs import Run
from penstock.config import shown_url
from penstock.control.claims import Board, PartitionState
from penstock.core.arrow_data import sound
from penstock.core.codec import schema_from_text
from penstock.core.durable import sync_folder
from penstock.errors import CorruptFile, RunError, UsageError
from penstock.spark import files as spark_files
from penstock.spark.files import Format
from penstock.spark.paths import for_spark
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
        self._store = store
        self._storage = Storage(self.run.storage)

    @property
    def tables(self) -> tuple[str, ...]:
        return self.run.outputs

    def manifests(self) -> Iterator[OutputManifest]:
        """One for each completed partition, phase after phase, each in the order of its partitions."""
        for phase in range(len(self.run.every_phase)):
            for _, manifest in self.phase_manifests(phase):
                yield manifest

    def phase_manifests(self, phase: int) -> Iterator[tuple[str, OutputManifest]]:
        """Those of one phase, each with the digest that its ack recorded."""
        place = self.run.place(phase)
        board = Board.find(self._store, place) if phase else Board.open(self._store, place)
        for view in board.partitions({PartitionState.COMPLETED}) if board else ():
            path = layout.output_manifest(place, view.range, view.token, view.digest)
            yield view.digest, manifests.fetch(self._storage, path, view.digest, manifests.OUTPUT)

    def files(self, table: str) -> list[FileRecord]:
        """The published files of a table, in the order of the partitions that wrote them."""
        name = self._known(table)
        return [f for m in self._publishing(name) for f in m.tables[name].files]

    def paths(self, table: str) -> list[str]:
        """Where the published files are, for any program that reads Parquet or Arrow."""
        return [self.run.output_storage.location(f.path) for f in self.files(table)]

    def schema(self, table: str) -> pa.Schema:
        """The table's schema, known as soon as one partition is published, or that there is none."""
        name = self._known(table)
        for manifest in self._publishing(name):
            return manifest.tables[name].schema
        if self._unfinished() == 0 and name in self.run.schemas:
            return schema_from_text(self.run.schemas[name])
        raise RunError(
            f"run {self.run.name!r} has published nothing yet", hint=f"penstock runs show {self.run.name}"
        )

    def frame(self, spark: SparkSession, table: str) -> DataFrame:
        """The published rows as a DataFrame."""
        from penstock.types.spark import spark_schema

        schema, records = self.schema(table), self.files(table)
        storage = self.run.output_storage
        if self.run.output_format == "parquet" and records:
            return spark.read.schema(spark_schema(schema)).parquet(
                *(for_spark(storage.location(r.path)) for r in records)
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
                    parts.append(_rows(file, storage.location(record.path)))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def export(self, directory: str, tables: tuple[str, ...] = (), *, partial: bool = False) -> Exported:
        """Copy the published files to a plain directory, one folder for each table.

        Every byte is checked on the way. A run that is not complete is refused unless ``partial``.
        A local directory appears under its name when it is complete: a crash leaves nothing but a
        folder ``DIRECTORY.unfinished-…`` beside it. In an object store, files appear one by one.
        """
        if not partial and (left := self._unfinished()):
            raise RunError(
                f"run {self.run.name!r} is not complete: {left} partitions are not done",
                hint="finish it with `penstock runs resume`, or export what there is with --partial",
            )
        target = Storage(directory)
        if target.list():
            raise UsageError(f"{shown_url(target.root)} is not empty", hint="export to a new directory")
        form = self.run.output_format
        jobs: list[tuple[FileRecord, str]] = []
        empty: list[tuple[pa.Schema, str]] = []
        for table in tables or self.tables:
            records = self.files(table)
            for number, record in enumerate(records):
                jobs.append((record, f"{table}/part-{number:06d}.{form}"))
            if not records:
                empty.append((self.schema(table), f"{table}/part-000000.{form}"))
        source = self.run.output_storage
        with _appearing(target) as place, ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda job: _copy(source, place, *job), jobs))
            for schema, path in empty:
                _write_empty(place, path, schema, form)
        written = len(jobs) + len(empty)
        return Exported(target.root, written, sum(r.rows for r, _ in jobs), sum(r.bytes for r, _ in jobs))

    def _publishing(self, table: str) -> Iterator[OutputManifest]:
        """The manifests of the phase that publishes a table."""
        for phase, record in enumerate(self.run.every_phase):
            if table in record.outputs:
                yield from (m for _, m in self.phase_manifests(phase) if table in m.tables)

    def _unfinished(self) -> int:
        """How many partitions are not done, of later phases at least one each."""
        begun = runs.by_phase(self._store, self.run)
        left = sum(each.total.partitions - each.completed.partitions for each in begun)
        return left + len(self.run.every_phase) - len(begun)

    def _known(self, table: str) -> str:
        if table not in self.tables:
            raise UsageError(
                f"run {self.run.name!r} has no output {table!r}", hint=f"it has: {', '.join(self.tables)}"
            )
        return table


@contextmanager
def _appearing(target: Storage) -> Iterator[Storage]:
    """A place to write to that becomes ``target`` when the block ends without an error."""
    if target.local is None:
        yield target  # there are no folders that could be renamed
        return
    # What a link names is replaced, not the link.
    final = Path(os.path.realpath(target.local))
    unfinished = final.with_name(f"{final.name}.unfinished-{uuid.uuid4().hex[:8]}")
    unfinished.mkdir(parents=True)
    try:
        yield Storage(unfinished)
        target.remove_empty("")
        try:
            unfinished.rename(final)
        except OSError as error:
            raise UsageError(
                f"{final} cannot take the export: {error.strerror}",
                left="nothing was exported",
                hint="export to a new directory",
            ) from error
        sync_folder(final.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _rows(file: pa.NativeFile, where: str) -> pa.Table:
    try:
        return sound(pa.ipc.open_file(file).read_all())
    except pa.ArrowException as error:
        raise CorruptFile(
            f"{where} cannot be read: {error}", hint="`penstock runs verify` lists everything that is wrong"
        ) from error


def _write_empty(target: Storage, path: str, schema: pa.Schema, form: Format) -> None:
    """A file without rows: whoever reads the folder finds a table with the right columns."""
    import pyarrow.parquet as pq

    with target.create(path) as sink:
        if form == "parquet":
            pq.write_table(schema.empty_table(), pa.PythonFile(sink, mode="w"))
        else:
            with pa.ipc.new_file(sink, schema):
                pass


def _copy(source: Storage, target: Storage, record: FileRecord, path: str) -> None:
    digest = hashlib.sha256()
    with source.open(record.path) as file, target.create(path) as sink:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            sink.write(chunk)
        if digest.hexdigest() != record.sha256:
            raise CorruptFile(
                f"{shown_url(source.location(record.path))} does not match its checksum",
                left="nothing was exported",
                hint="`penstock runs verify` lists everything that is wrong",
            )
