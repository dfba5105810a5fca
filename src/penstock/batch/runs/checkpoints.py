"""Saving the dataset between stages, and finding the newest saved one that still fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.batch.pipeline import Pipeline
from penstock.batch.pipeline.phases import Phase, Phases
from penstock.batch.runs import layout, manifests
from penstock.batch.runs.manifests import CHECKPOINT, CheckpointManifest, Fingerprint, SavedTable
from penstock.control.claims import CheckpointRef, Claim
from penstock.core.failpoints import reach
from penstock.core.ranges import Range
from penstock.errors import CorruptFile
from penstock.spark import files
from penstock.spark.files import Compression
from penstock.spark.flow import Flow, Scan, ScanSplit, Splits
from penstock.storage import FileRecord, Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FilesByClaim = tuple[tuple[FileRecord, ...], ...]


@dataclass(frozen=True, slots=True)
class InputRows:
    """What a scan of a registered input is found by: its rows need not be saved again."""

    name: str


@dataclass(frozen=True, slots=True)
class SavedRows:
    """What a scan of a checkpoint is found by: the files of each claim that the rows are of."""

    files: FilesByClaim


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a checkpoint can be used now, and if not, why."""

    ref: CheckpointRef
    reasons: tuple[str, ...]
    manifest: CheckpointManifest | None = None

    @property
    def fits(self) -> bool:
        return not self.reasons


def judge(
    storage: Storage,
    place: str,
    partition: Range,
    ref: CheckpointRef,
    pipeline: Pipeline,
    phases: Phases,
    phase: Phase,
    current: Fingerprint,
) -> Judgement:
    """Compare a checkpoint of a phase with the pipeline as it is now. The data files are not looked at."""
    path = layout.checkpoint_manifest(place, partition, ref.token, ref.stage, ref.digest)
    try:
        manifest = manifests.fetch(storage, path, ref.digest, CHECKPOINT)
    except CorruptFile as error:
        return Judgement(ref, (f"its manifest is corrupt: {error.what}",))
    if manifest.done > phase.end:
        return Judgement(ref, ("the pipeline has fewer stages now",))
    reasons = manifest.fingerprint.differences(current.upto(manifest.done, phase.index))
    for table, fields in phases.live(phase, manifest.done).items():
        saved = manifest.tables.get(table)
        declared = pipeline.tables[table]
        names = set(saved.schema.names) if saved else set()
        for name in sorted(fields):
            if name not in names:
                reasons.append(f"{table}.{name}, which is needed now, was not saved")
            elif saved and saved.schema.field(name).type != declared.__fields__[name].type:
                reasons.append(f"the type of {table}.{name} changed")
    return Judgement(ref, tuple(reasons), manifest)


def newest(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Newest stage first: the order in which checkpoints are tried."""
    return sorted(judgements, key=lambda j: (j.ref.stage, j.ref.token), reverse=True)


Hint = Callable[[str, int], str | None]
"""How Spark shall join a table of so many bytes."""


def restore(
    spark: SparkSession,
    storage: Storage,
    manifest: CheckpointManifest,
    load_input: Callable[[str], Flow],
    hint: Hint,
) -> dict[str, Flow]:
    """The tables of a checkpoint, after checking every byte; `CorruptFile` if one is not right."""
    files.verify(spark, storage, [record for table in manifest.tables.values() for record in table.files])
    flows = {}
    for name, table in manifest.tables.items():
        if table.input is not None:
            flows[name] = load_input(table.input).select(table.schema.names)
        else:
            size = sum(record.bytes for record in table.files)
            flows[name] = read(storage, name, table.schema, (table.files,), hint(name, size))
    return flows


class SavedCheckpoint(NamedTuple):
    """A checkpoint of one claim: the pointer for the store, and what it has of each table."""

    ref: CheckpointRef
    tables: dict[str, SavedTable]


def save(
    spark: SparkSession,
    storage: Storage,
    run: str,
    claims: Sequence[Claim],
    done: int,
    flows: Mapping[str, Flow],
    fingerprint: Fingerprint,
    compression: Compression,
    hint: Hint,
) -> tuple[list[SavedCheckpoint], dict[str, Flow]]:
    """Write the tables; what comes back is a checkpoint for each claim, and flows that read the files.

    Of several claims, each task of a flow has the rows of one. ``fingerprint`` is the part that decides about
    the first ``done`` stages.
    """
    tables: list[dict[str, SavedTable]] = [{} for _ in claims]
    onward: dict[str, Flow] = {}
    for name, flow in flows.items():
        kept = flow.kept
        if isinstance(kept, InputRows):
            onward[name] = flow
            for each in tables:
                each[name] = SavedTable(flow.schema, input=kept.name)
            continue
        if isinstance(kept, SavedRows):
            written = kept.files
        else:
            folders = [layout.checkpoint_folder(run, c.range, c.token, done - 1, name) for c in claims]
            found = files.write_each(spark, flow, storage, folders, format="arrow", compression=compression)
            written = tuple(found)
        size = sum(record.bytes for each in written for record in each)
        onward[name] = read(storage, name, flow.schema, written, hint(name, size))
        for each, records in zip(tables, written, strict=True):
            each[name] = SavedTable(flow.schema, records)
    reach("checkpoint.written")
    saved = []
    for claim, each in zip(claims, tables, strict=True):
        data = CHECKPOINT.encode(CheckpointManifest(claim.range, claim.token, done, fingerprint, each))
        digest = manifests.digest(data)
        storage.write(layout.checkpoint_manifest(run, claim.range, claim.token, done - 1, digest), data)
        saved.append(SavedCheckpoint(CheckpointRef(done - 1, claim.token, digest), each))
    return saved, onward


def read(
    storage: Storage, table: str, schema: pa.Schema, written: FilesByClaim, hint: str | None = None
) -> Flow:
    """The rows of Arrow files: a task for each, or for each claim if there are several."""

    def cut(columns: Sequence[str]) -> Sequence[ScanSplit]:
        splits = [tuple(files.IpcSplit(storage, r, tuple(columns)) for r in each) for each in written]
        return splits[0] if len(splits) == 1 else [Splits(each) for each in splits]

    return Flow.scan(table, Scan(schema, cut, kept=SavedRows(written), hint=hint))
