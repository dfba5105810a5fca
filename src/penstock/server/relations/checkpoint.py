"""``checkpoint('run', 'stage')``: the rows of a run between two stages, also of one that crashed.

Within a phase these are checkpoints of partitions that are not done. After the last stage of a phase they are
what its completed partitions have left for later phases, as long as some phase has to read it; ``'phase N'``
names that, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.batch import inputs
from penstock.batch.runs import exchanges, layout, manifests, runs
from penstock.batch.runs.manifests import CHECKPOINT, OUTPUT, SavedTable
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board, PartitionState, PartitionView
from penstock.core.codec import DocumentFormat
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

T = TypeVar("T")

_TASKS = 4
_PHASE = re.compile(r"phase[ -](\d+)")


Tables = Mapping[str, SavedTable]


@dataclass(frozen=True, slots=True)
class Saved:
    """A table as partitions have saved it at a stage: one part for each that has."""

    run: Run
    table: str
    parts: tuple[tuple[Range, SavedTable], ...]
    cut: str | None = None
    """The input whose row ranges the partitions are: not told for the primary one."""

    @property
    def columns(self) -> pa.Schema:
        return self.parts[0][1].schema

    def frame(self, spark: SparkSession, store: Store) -> DataFrame:
        storage = Storage(self.run.storage)
        records: list[FileRecord] = [f for _, saved in self.parts for f in saved.files]
        frame = files.read(storage, self.table, self.columns, records).frame(spark)
        for rows, saved in self._scanned():
            scanned = self._input(store, storage, saved, rows).frame(spark)
            frame = scanned if not records else frame.unionByName(scanned)
            records = records or [FileRecord("", 0, 0, "")]
        return frame.to(spark_schema(self.columns))

    def _scanned(self) -> Iterator[tuple[Range, SavedTable]]:
        """The parts whose rows are those of an input. One that each partition gets whole counts once."""
        whole: set[str] = set()
        for rows, saved in self.parts:
            if saved.input is None or saved.input in whole:
                continue
            if saved.input != self._primary:
                whole.add(saved.input)
            yield rows, saved

    def _input(self, store: Store, storage: Storage, saved: SavedTable, rows: Range) -> Flow:
        """Rows that were not saved again, because they are those of an input."""
        table = saved.input or ""
        registered = inputs.load(store, storage, self.run.registered.get(table, table))
        wanted = rows if table == self._primary else registered.whole
        cut = partial(inputs.splits, registered, storage, wanted, _TASKS)
        return Flow.scan(table, Scan(saved.schema, lambda columns: cut(columns, saved.schema)))

    @property
    def _primary(self) -> str:
        return self.run.primary if self.cut is None else self.cut


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
    phase, stage = _place(run, wanted)
    found = _found(store, run, phase, stage)
    if not found:
        raise SqlError(
            f'run "{name}" has no checkpoint after {f"stage {stage}" if stage is not None else wanted}',
            hint="a partition that is done has none, and it is then in the run's output; what a phase left "
            "for later ones goes when all have read it; "
            f"`penstock checkpoints ls {name}` lists those there are",
            sqlstate="02000",
        )
    table = _table(found[0][1], arguments[2] if len(arguments) == 3 else None, name)
    parts = tuple((rows, tables[table]) for rows, tables in found if table in tables)
    record = run.every_phase[phase]
    return Saved(run, table, parts, record.table if record.by_rows else "")


def _place(run: Run, wanted: str) -> tuple[int, int | None]:
    """The phase, and the stage in it; None for what the phase has left after its last one."""
    if (named := _PHASE.fullmatch(wanted)) and int(named[1]) < len(run.phases):
        return int(named[1]), None
    stage = _stage(run, wanted)
    phases = (n for n, each in enumerate(run.every_phase) if each.stages[0] <= stage < each.stages[1])
    return next(phases, 0), stage


def _stage(run: Run, wanted: str) -> int:
    stages = run.fingerprint.stages
    named = [number for number, stage in enumerate(stages) if wanted == stage.names]
    named += [n for n, stage in enumerate(stages) if wanted in re.split(r"[ ,+]", stage.names)]
    if wanted.isdecimal() and int(wanted) < len(stages):
        return int(wanted)
    if not named:
        every = ", ".join(f"{number} ({stage.names})" for number, stage in enumerate(stages))
        raise SqlError(f'run "{run.name}" has no stage "{wanted}"', hint=f"stages: {every}", sqlstate="42704")
    return named[0]


def _found(store: Store, run: Run, phase: int, stage: int | None) -> list[tuple[Range, Tables]]:
    """What partitions of a phase have saved, in their order."""
    board = Board.find(store, run.place(phase))
    storage, found = Storage(run.storage), []
    left = stage is None or stage == run.every_phase[phase].stages[1] - 1
    left = left and not exchanges.is_read(run, runs.boards(store, run), phase)
    for view in board.partitions(touched=True) if board else ():
        if view.state is PartitionState.COMPLETED:
            tables = _left(storage, run, phase, view) if left else None
        else:
            tables = _newest(storage, run, phase, view, stage)
        if tables:
            found.append((view.range, tables))
    return found


def _left(storage: Storage, run: Run, phase: int, view: PartitionView) -> Tables | None:
    """What a completed partition left for later phases; of a table by several keys, with the most fields."""
    path = layout.output_manifest(run.place(phase), view.range, view.token, view.digest)
    manifest = _read(storage, path, view.digest, OUTPUT)
    exchanged = sorted(manifest.exchanges.items(), key=lambda e: len(e[1].schema)) if manifest else ()
    return {
        name.partition(":")[0]: SavedTable(each.schema, tuple(f.file for f in each.files))
        for name, each in exchanged
    }


def _newest(storage: Storage, run: Run, phase: int, view: PartitionView, stage: int | None) -> Tables | None:
    """The tables of the newest readable checkpoint at a stage."""
    at_stage = sorted((ref for ref in view.checkpoints if ref.stage == stage), key=lambda ref: -ref.token)
    for ref in at_stage:
        path = layout.checkpoint_manifest(run.place(phase), view.range, ref.token, ref.stage, ref.digest)
        if (manifest := _read(storage, path, ref.digest, CHECKPOINT)) is not None:
            return manifest.tables
    return None


def _read(storage: Storage, path: str, digest: str, kind: DocumentFormat[T]) -> T | None:
    try:
        return manifests.fetch(storage, path, digest, kind)
    except CorruptFile:
        return None


def _table(found: Tables, wanted: str | None, run: str) -> str:
    tables = list(found)
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
