"""Exchanges: what a phase of a run leaves for later ones, and the plan that cuts it into key ranges.

Each claim of a phase writes its rows to run files, which its ack publishes with its output. When all
partitions of the phases that a table comes from are acked, whoever comes first packs the buckets of their
files into key ranges, and writes that plan with one create-only write. Everybody reads it back, so that all
agree without a leader. Key ranges are partitions like any other from then on.

| the process dies … | left behind | what happens next |
|---|---|---|
| while it writes a run file | a file that no manifest names | the partition is computed again |
| after the ack | run files that the ack has published | the next phase reads them |
| before the plan is written | nothing | the next one to look makes the same plan |
| after it is written | a plan without a board | the next one to look makes the board |
| in a key range | a claim of a dead session | another instance claims it, and reads the same slices |
| before it sweeps what all have read | run files that nobody needs | the next instance or `gc` sweeps them |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.batch.exchange import packing, range_splits, run_files, sorted_ranges
from penstock.batch.exchange.packing import ExchangePlan
from penstock.batch.exchange.run_files import ExchangeFile, ExchangeWriter
from penstock.batch.pipeline.phases import ByKeys, ByOrder, Exchange, Phase
from penstock.batch.runs import checkpoints, layout, manifests, runs
from penstock.batch.runs.manifests import Exchanged, OutputManifest
from penstock.batch.runs.runs import Run
from penstock.config import shown_url
from penstock.control.claims import Board, Claim, PartitionState, PartitionView, register
from penstock.core.failpoints import reach
from penstock.core.ranges import PartitionName
from penstock.errors import (
    CodeChanged,
    CorruptFile,
    ExchangeDamaged,
    PenstockError,
    RunError,
)
from penstock.spark import files
from penstock.spark.faults import decode
from penstock.spark.files import Compression
from penstock.spark.flow import Flow, Scan, ScanSplit
from penstock.storage import Storage
from penstock.store import Store
from penstock.types.order import Order

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

BUCKETS = 1024
"""Of the key's hash. Each run file tells how many rows it has in each of them."""
_READERS = 8


@dataclass(frozen=True, slots=True)
class Left:
    """What a phase has left: the manifests of its partitions by name, in their order, and their digests.

    Each partition was looked at once, so it is either here or among those that were ``poisoned``.
    """

    manifests: Mapping[str, OutputManifest]
    digests: Mapping[str, str]
    poisoned: tuple[str, ...] = ()

    def agreed(self, plan: ExchangePlan) -> Left:
        """What counts of it: a partition that the plan does without stays away, even if it is done by now."""
        kept = {name: each for name, each in self.manifests.items() if name not in plan.without}
        return Left(kept, {name: self.digests[name] for name in kept}, self.poisoned)


@dataclass(frozen=True, slots=True)
class Entering:
    """A table that a phase reads out of an exchange: the files of all partitions, in their order."""

    table: str
    schema: pa.Schema
    files: tuple[ExchangeFile, ...]
    writers: tuple[str, ...] = ()
    """The partition that wrote each of them."""
    order: Order = ()
    """What the chunks of the files are sorted by, if they are."""
    boundaries: str | None = None
    """Where ranges of sorted rows begin, once there is a plan."""

    @property
    def rows(self) -> int:
        return sum(each.file.rows for each in self.files)

    def flow(self, storage: Storage, buckets: tuple[int, int] | None, tasks: int, hint: str | None) -> Flow:
        """The rows of some buckets, or all rows where there are no buckets, read by at most ``tasks``.

        A range of sorted rows counts as a bucket, and is read by one task.
        """
        if buckets is None:
            records = tuple(each.file for each in self.files)
            return checkpoints.read(storage, self.table, self.schema, (records,), hint)

        def cut(columns: Sequence[str]) -> Sequence[ScanSplit]:
            if self.order:
                number = buckets[0]
                return sorted_ranges.cut(storage, self.files, self.order, self.boundaries, number, columns)
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
    # Of a table that is only counted, some field has to tell how many rows there are.
    rows = flow.select(exchange.fields or flow.schema.names[:1])
    place, name = run.place(phase), exchange.name
    folders = tuple(layout.exchange_folder(place, name, each.range, each.token) for each in claims)
    if not exchange.keys:
        written = files.write_each(spark, rows, storage, folders, format="arrow", compression=compression)
        return [Exchanged(rows.schema, tuple(ExchangeFile(r, 0, ()) for r in each)) for each in written]
    codec = files.codec(spark, storage, compression)
    buckets = 1 if exchange.order else BUCKETS
    task = ExchangeWriter(storage, folders, rows.schema, exchange.keys, buckets, codec, order=exchange.order)
    try:
        found = run_files.numbered(rows.run(spark, (task,), run_files.SCHEMA).collect())
    except PenstockError:
        raise
    except Exception as error:
        raise decode(error) from error
    reach("exchange.written")
    return [Exchanged(rows.schema, each) for each in files.by_folder(found, len(folders))]


def left(store: Store, storage: Storage, run: Run, phase: int, without: Sequence[str] = ()) -> Left:
    """What a phase has left, once nothing of it is to be done. Each partition is looked at once."""
    done: list[PartitionView] = []
    poisoned = []
    for view in Board.open(store, run.place(phase)).partitions():
        name = str(PartitionName(phase, view.range))
        if view.state is PartitionState.POISONED or name in without:
            poisoned.append(name)
        elif view.state is PartitionState.COMPLETED:
            done.append(view)
        else:
            raise RunError(
                f"partition {name} of run {run.name!r} is {view.state} again",
                left="what is complete is kept",
                hint=f"penstock runs resume {run.name}",
            )

    def fetch(view: PartitionView) -> OutputManifest:
        path = layout.output_manifest(run.place(phase), view.range, view.token, view.digest)
        try:
            return manifests.fetch(storage, path, view.digest, manifests.OUTPUT)
        except CorruptFile as error:
            raise _damage(storage, run, path, str(PartitionName(phase, view.range)), error) from error

    with ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(fetch, done))
    names = [str(PartitionName(phase, view.range)) for view in done]
    digests = {name: view.digest for name, view in zip(names, done, strict=True)}
    return Left(dict(zip(names, found, strict=True)), digests, tuple(poisoned))


def entering(left: Left, exchange: Exchange, schema: pa.Schema, plan: ExchangePlan | None = None) -> Entering:
    """A table as the partitions of an earlier phase left it; ``schema`` is for one without any."""
    found: list[ExchangeFile] = []
    writers: list[str] = []
    for name, manifest in left.manifests.items():
        exchanged = manifest.exchanges.get(exchange.name)
        lacking = exchange.fields - set(exchanged.schema.names) if exchanged else ()
        if exchanged is None or lacking:
            fields = f" the fields {', '.join(sorted(lacking))} of" if lacking else ""
            raise CodeChanged(
                f"partition {name} was completed by other code, which did not keep{fields} {exchange.table} "
                f"{exchange.how} for a later phase",
                left="what is complete is kept",
                hint="compute everything anew with --run NAME, or go back to that code",
            )
        schema = exchanged.schema
        found += exchanged.files
        writers += [name] * len(exchanged.files)
    boundaries = plan.boundaries if plan else None
    return Entering(exchange.table, schema, tuple(found), tuple(writers), exchange.order, boundaries)


def plan_key(run: Run, phase: int) -> str:
    return f"runs/{run.place(phase)}/exchange"


def find_plan(store: Store, run: Run, phase: int) -> ExchangePlan | None:
    document = store.get(plan_key(run, phase))
    return ExchangePlan.decode(document.key, document.value) if document else None


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large key ranges shall be. Up to ``small_bytes`` in all there is one."""

    target_bytes: int
    small_bytes: int
    at_least: int


def agree(
    store: Store, run: Run, phase: Phase, left: Iterable[Left], tables: Iterable[Entering], sizes: Sizes
) -> ExchangePlan:
    """The plan of a phase that reads what others ``left``: the one that is there, or else this one."""
    if (found := find_plan(store, run, phase.index)) is not None:
        return found
    made_of = {name: digest for each in left for name, digest in each.digests.items()}
    without = [name for each in left for name in each.poisoned]
    written = [each for table in tables for each in table.files]
    small = sum(each.file.bytes for each in written) <= sizes.small_bytes
    target = max(sizes.target_bytes, sizes.small_bytes) if small else sizes.target_bytes
    least = 1 if small else sizes.at_least
    if isinstance(cut := phase.partitioning, ByKeys):
        made = packing.plan(
            written,
            buckets=BUCKETS,
            target_bytes=target,
            at_least=least,
            made_of=made_of,
            without=without,
        )
    elif isinstance(cut, ByOrder):
        made = sorted_ranges.plan(
            written, cut.order, target_bytes=target, at_least=least, made_of=made_of, without=without
        )
    else:
        made = packing.plan_of_one(written, made_of=made_of, without=without)
    reach("exchange.plan.before")
    store.cas(plan_key(run, phase.index), 0, made.encode())
    reach("exchange.plan.after")
    agreed = find_plan(store, run, phase.index)
    if agreed is None:
        raise RunError(f"run {run.name!r} was removed meanwhile", hint="start it anew if it is still wanted")
    return agreed


def left_out(store: Store, run: Run) -> dict[str, int]:
    """The partitions that were poisoned when a later phase began without their rows, with that phase."""
    found: dict[str, int] = {}
    for phase, record in enumerate(run.phases):
        plan = find_plan(store, run, phase) if record.reads else None
        for name in plan.without if plan else ():
            found.setdefault(name, phase)
    return found


def check_retry(store: Store, run: Run, partition: PartitionName) -> None:
    """Raise `RunError` if a poisoned partition would be computed for nothing."""
    if (phase := left_out(store, run).get(str(partition))) is not None:
        raise RunError(
            f"phase {phase} of run {run.name!r} began without partition {partition}: it cannot take "
            "its rows any more",
            left="nothing was changed",
            hint="compute everything anew with --run NAME, once the cause is mended",
        )


def check_plan(run: Run, phase: int, plan: ExchangePlan, left: Iterable[Left]) -> None:
    """Raise `RunError` unless the plan was made of exactly what is there now."""
    digests = {name: digest for each in left for name, digest in each.digests.items()}
    if packing.digest_of(digests, plan.without) != plan.made_of:
        raise RunError(
            f"the plan of phase {phase} of run {run.name!r} was made of other partitions than there are",
            left="nothing was changed",
            hint="restore the store as it was, or compute everything anew with --run NAME",
        )


def board(store: Store, run: Run, phase: int, max_failures: int, plan: ExchangePlan | None) -> Board:
    """The board of a phase, which is made if it is not there."""
    record = run.every_phase[phase]
    if plan is not None:
        reach("exchange.board.before")
        return register(store, run.place(phase), len(plan.ranges), 1, max_failures)
    assert record.rows is not None and record.partition_rows is not None
    return register(store, run.place(phase), record.rows, record.partition_rows, max_failures)


def damaged(
    storage: Storage, run: Run, tables: Iterable[Entering], error: CorruptFile
) -> ExchangeDamaged | None:
    """What is to be said of a run file that could not be read, if it is not as it was written."""
    for table in tables:
        for each, writer in zip(table.files, table.writers, strict=True):
            if each.file.path in error.what:
                try:
                    storage.check(each.file)
                except CorruptFile as found:
                    return _damage(storage, run, each.file.path, writer, found)
    return None


def _damage(storage: Storage, run: Run, path: str, writer: str, found: CorruptFile) -> ExchangeDamaged:
    return ExchangeDamaged(
        f"{found.what}: partition {writer} wrote it for later phases",
        left="everything else is kept; no partition is blamed",
        hint=f"put {shown_url(storage.location(path))} back and resume the run "
        f"(penstock runs resume {run.name}), or compute everything anew with --run NAME",
    )


def is_read(run: Run, boards: Sequence[Board], phase: int) -> bool:
    """Whether nobody will read again what a phase left: all phases that do are complete."""
    readers = run.readers(phase)
    return bool(readers) and all(n < len(boards) and _is_complete(boards[n]) for n in readers)


def _is_complete(board: Board) -> bool:
    summary = board.summary()
    return summary.completed.partitions == summary.total.partitions


def sweep_read(store: Store, storage: Storage, run: Run) -> None:
    """Remove what phases left for others that are all complete by now."""
    boards = runs.boards(store, run)
    for phase in range(len(run.phases)):
        if is_read(run, boards, phase):
            storage.delete(layout.exchanges_folder(run.place(phase)))
