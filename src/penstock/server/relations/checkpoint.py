"""``checkpoint('run', 'stage')``: the rows of a run between two stages, also of one that crashed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.batch import inputs
from penstock.batch.runs import layout, manifests, runs
from penstock.batch.runs.manifests import CHECKPOINT, CheckpointManifest, SavedTable
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board, CheckpointRef, PartitionView
from penstock.core.names import is_name
from penstock.core.ranges import Range
from penstock.errors import CorruptFile, SqlError
from penstock.spark import files
from penstock.spark.flow import Flow, Scan
from penstock.storage import FileRecord, Storage
from penstock.store import Store
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_TASKS = 4


@dataclass(frozen=True, slots=True)
class Saved:
    """A table of the newest checkpoints at a stage, one for each partition that has one."""

    run: Run
    table: str
    parts: tuple[tuple[Range, SavedTable], ...]

    @property
    def columns(self) -> pa.Schema:
        return self.parts[0][1].schema

    def frame(self, spark: SparkSession, store: Store) -> DataFrame:
        storage = Storage(self.run.storage)
        records: list[FileRecord] = [f for _, saved in self.parts for f in saved.files]
        frame = files.read(storage, self.table, self.columns, records).frame(spark)
        for rows, saved in self._scanned():
            scanned = _input(store, storage, self.run, saved, rows).frame(spark)
            frame = scanned if not records else frame.unionByName(scanned)
            records = records or [FileRecord("", 0, 0, "")]
        return frame.to(spark_schema(self.columns))

    def _scanned(self) -> Iterator[tuple[Range, SavedTable]]:
        """The parts whose rows are those of an input. One that each partition gets whole counts once."""
        whole: set[str] = set()
        for rows, saved in self.parts:
            if saved.input is None or saved.input in whole:
                continue
            if saved.input != self.run.primary:
                whole.add(saved.input)
            yield rows, saved


def find(store: Store, arguments: Sequence[str], readable: Callable[[str], bool]) -> Saved:
    """What ``checkpoint(run, stage[, table])`` means now. Only runs that are ``readable`` are ever named."""
    if len(arguments) not in (2, 3):
        raise SqlError(
            "checkpoint needs a run and a stage",
            hint="SELECT * FROM checkpoint('run', 'stage'), and a table as third where there are several",
            sqlstate="42883",
        )
    name, wanted = arguments[0], arguments[1]
    run = runs.find(store, name) if is_name(name) else None
    if run is None:
        known = ", ".join(each.name for each in runs.every(store) if readable(each.name)) or "none"
        raise SqlError(f'there is no run "{name}"', hint=f"known runs: {known}", sqlstate="42704")
    stage = _stage(run, wanted)
    found = _newest(store, run, stage)
    if not found:
        raise SqlError(
            f'run "{name}" has no checkpoint after stage {stage}',
            hint="a partition that is done has none, and it is then in the run's output; "
            f"`penstock checkpoints ls {name}` lists those there are",
            sqlstate="02000",
        )
    table = _table(found[0][1], arguments[2] if len(arguments) == 3 else None, name)
    parts = tuple((rows, manifest.tables[table]) for rows, manifest in found if table in manifest.tables)
    return Saved(run, table, parts)


def _stage(run: Run, wanted: str) -> int:
    stages = run.fingerprint.stages
    named = [number for number, stage in enumerate(stages) if wanted == stage.names]
    named += [n for n, stage in enumerate(stages) if wanted in stage.names.replace(",", " ").split()]
    if wanted.isdecimal() and int(wanted) < len(stages):
        return int(wanted)
    if not named:
        every = ", ".join(f"{number} ({stage.names})" for number, stage in enumerate(stages))
        raise SqlError(f'run "{run.name}" has no stage "{wanted}"', hint=f"stages: {every}", sqlstate="42704")
    return named[0]


def _newest(store: Store, run: Run, stage: int) -> list[tuple[Range, CheckpointManifest]]:
    """The manifest of the newest readable checkpoint of each partition at the stage, in row order."""
    storage, found = Storage(run.storage), []
    for view in Board.open(store, run.key).partitions(touched=True):
        at_stage = sorted((ref for ref in view.checkpoints if ref.stage == stage), key=lambda ref: -ref.token)
        manifest = next((m for ref in at_stage if (m := _read(storage, run, view, ref))), None)
        if manifest is not None:
            found.append((view.range, manifest))
    return found


def _read(storage: Storage, run: Run, view: PartitionView, ref: CheckpointRef) -> CheckpointManifest | None:
    path = layout.checkpoint_manifest(run.key, view.range, ref.token, ref.stage, ref.digest)
    try:
        return manifests.fetch(storage, path, ref.digest, CHECKPOINT)
    except CorruptFile:
        return None


def _table(manifest: CheckpointManifest, wanted: str | None, run: str) -> str:
    tables = list(manifest.tables)
    if wanted is None and len(tables) == 1:
        return tables[0]
    if wanted not in tables:
        what = f'has no table "{wanted}"' if wanted is not None else "holds several tables"
        raise SqlError(
            f'the checkpoint of run "{run}" {what}',
            hint=f"name one as third argument: {', '.join(tables)}",
            sqlstate="42P01" if wanted is not None else "42P09",
        )
    return wanted


def _input(store: Store, storage: Storage, run: Run, saved: SavedTable, rows: Range) -> Flow:
    """Rows that were not saved again, because they are those of an input."""
    table = saved.input or ""
    registered = inputs.load(store, storage, run.registered.get(table, table))
    wanted = rows if table == run.primary else registered.whole
    cut = partial(inputs.splits, registered, storage, wanted, _TASKS)
    return Flow.scan(table, Scan(saved.schema, lambda columns: cut(columns, saved.schema)))
