"""Exchanges: what a phase of a run leaves for later ones, and the plan that cuts it into key ranges.

Each claim of a phase writes its rows to run files, which its ack publishes with its output. When all
partitions of the phases that a table comes from are acked, whoever comes first packs the buckets of their
files into key ranges, and writes that plan with one create-only write. Everybody reads it back, so that all
agree without a leader. Key ranges are partitions like any other from then on.

| the process dies … | left behind | what happens next |
|---|---|---|
| while it writes a run file | a file that no manifest names | the partition is computed again; `gc` sweeps it |
| after the ack | run files that the ack has published | the next phase reads them |
| before the plan is written | nothing | the next one to look makes the same plan |
| after it is written | a plan without a board | the next one to look makes the board |
| in a key range | a claim of a dead session | another instance claims it, and reads the same slices |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.batch.exchange import packing, range_splits, run_files
from penstock.batch.exchange.packing import ExchangePlan
from penstock.batch.exchange.run_files import ExchangeFile, ExchangeWriter
from penstock.batch.pipeline.phases import Exchange, Phase
from penstock.batch.runs import checkpoints, layout, manifests
from penstock.batch.runs.manifests import Exchanged, OutputManifest
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board, Claim, PartitionState, register
from penstock.core.failpoints import reach
from penstock.errors import PenstockError, RunError
from penstock.spark import files
from penstock.spark.faults import decode
from penstock.spark.files import Compression
from penstock.spark.flow import Flow, Scan
from penstock.storage import Storage
from penstock.store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

BUCKETS = 1024
"""Of the key's hash. Each run file tells how many rows it has in each of them."""


@dataclass(frozen=True, slots=True)
class Entering:
    """A table that a phase reads out of an exchange: the files of all partitions, in their order."""

    table: str
    schema: pa.Schema
    files: tuple[ExchangeFile, ...]

    @property
    def rows(self) -> int:
        return sum(each.file.rows for each in self.files)

    def flow(self, storage: Storage, buckets: tuple[int, int] | None, tasks: int, hint: str | None) -> Flow:
        """The rows of some buckets, or all rows where there are no buckets, read by at most ``tasks``."""
        if buckets is None:
            records = tuple(each.file for each in self.files)
            return checkpoints.read(storage, self.table, self.schema, (records,), hint)

        def cut(columns: Sequence[str]) -> Sequence[range_splits.RangeSplit]:
            return range_splits.cut(storage, self.files, *buckets, columns, tasks)

        return Flow.scan(self.table, Scan(self.schema, cut, hint=hint))

    def rows_in(self, buckets: tuple[int, int] | None) -> int:
        return self.rows if buckets is None else sum(each.rows_in(*buckets) for each in self.files)


def write(
    spark: SparkSession,
    storage: Storage,
    run: Run,
    phase: int,
    claims: Sequence[Claim],
    exchange: Exchange,
    flow: Flow,
    compression: Compression,
) -> list[Exchanged]:
    """Write the rows of a table for a later phase, on the executors.

    Of several claims, each task of the flow has the rows of one; what is left of each.
    """
    rows = flow.select(exchange.fields)
    place, name = run.place(phase), exchange.name
    folders = tuple(layout.exchange_folder(place, name, each.range, each.token) for each in claims)
    if not exchange.keys:
        written = files.write_each(spark, rows, storage, folders, format="arrow", compression=compression)
        return [Exchanged(rows.schema, tuple(ExchangeFile(r, 0, ()) for r in each)) for each in written]
    codec = files.codec(spark, storage, compression)
    task = ExchangeWriter(storage, folders, rows.schema, exchange.keys, BUCKETS, codec)
    try:
        found = run_files.numbered(rows.run(spark, (task,), run_files.SCHEMA).collect())
    except PenstockError:
        raise
    except Exception as error:
        raise decode(error) from error
    reach("exchange.written")
    return [Exchanged(rows.schema, each) for each in files.by_folder(found, len(folders))]


def published(store: Store, storage: Storage, run: Run, phase: int) -> Iterator[tuple[str, OutputManifest]]:
    """What the acks of a phase have published, in the order of its partitions, with their digests."""
    board = Board.find(store, run.place(phase))
    for view in board.partitions({PartitionState.COMPLETED}) if board else ():
        path = layout.output_manifest(run.place(phase), view.range, view.token, view.digest)
        yield view.digest, manifests.fetch(storage, path, view.digest, manifests.OUTPUT)


def entering(
    store: Store, storage: Storage, run: Run, origin: int, exchange: Exchange, schema: pa.Schema
) -> tuple[Entering, dict[str, str]]:
    """A table as an earlier phase left it, and the digests of the manifests that say so, by partition."""
    found: list[ExchangeFile] = []
    made_of = {}
    for digest, manifest in published(store, storage, run, origin):
        made_of[f"{origin}:{manifest.partition}"] = digest
        left = manifest.exchanges[exchange.name]
        schema = left.schema
        found += left.files
    return Entering(exchange.table, schema, tuple(found)), made_of


def plan_key(run: Run, phase: int) -> str:
    return f"runs/{run.place(phase)}/exchange"


def find_plan(store: Store, run: Run, phase: int) -> ExchangePlan | None:
    document = store.get(plan_key(run, phase))
    return ExchangePlan.decode(document.key, document.value) if document else None


def agree(
    store: Store,
    run: Run,
    phase: Phase,
    tables: Sequence[tuple[Entering, dict[str, str]]],
    *,
    target_bytes: int,
    small_bytes: int,
    at_least: int,
    without: Sequence[str],
) -> ExchangePlan:
    """The plan of a phase over key ranges: the one that is there, or else this one."""
    if (found := find_plan(store, run, phase.index)) is not None:
        return found
    written = [each for table, _ in tables for each in table.files]
    small = sum(each.file.bytes for each in written) <= small_bytes
    made = packing.plan(
        written,
        buckets=BUCKETS,
        target_bytes=max(target_bytes, small_bytes) if small else target_bytes,
        at_least=1 if small else at_least,
        made_of={name: digest for _, made_of in tables for name, digest in made_of.items()},
        without=without,
    )
    reach("exchange.plan.before")
    store.cas(plan_key(run, phase.index), 0, made.encode())
    reach("exchange.plan.after")
    agreed = find_plan(store, run, phase.index)
    if agreed is None:
        raise RunError(f"run {run.name!r} was removed meanwhile", hint="start it anew if it is still wanted")
    return agreed


def board(store: Store, run: Run, phase: int, max_failures: int, plan: ExchangePlan | None) -> Board:
    """The board of a phase, which is made if it is not there."""
    record = run.every_phase[phase]
    if plan is not None:
        return register(store, run.place(phase), len(plan.ranges), 1, max_failures)
    assert record.rows is not None and record.partition_rows is not None
    return register(store, run.place(phase), record.rows, record.partition_rows, max_failures)


def sweep_read(storage: Storage, run: Run, done: int) -> None:
    """Remove what earlier phases left for phases up to ``done``, all of whose partitions are completed."""
    for number, record in enumerate(run.phases):
        if record.last_reader is not None and record.last_reader <= done:
            storage.delete(layout.exchanges_folder(run.place(number)))
