"""Proving that exchanges lost nothing: every key in one range, every row that was left read once.

What acks recorded is compared with the plans, and with the run files as long as they are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.batch.exchange import packing
from penstock.batch.exchange.hashing import bucket_numbers
from penstock.batch.exchange.packing import ExchangePlan
from penstock.batch.exchange.run_files import ExchangeFile
from penstock.batch.runs import exchanges, layout, runs
from penstock.batch.runs.exchanges import Left
from penstock.batch.runs.output import Output
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board
from penstock.core.ranges import PartitionName
from penstock.errors import CorruptFile, PenstockError
from penstock.storage import Storage
from penstock.store import Store


@dataclass(slots=True)
class Proof:
    """One thing that was looked at: what was found, and what is wrong with it."""

    name: str
    found: str = ""
    problems: list[str] = field(default_factory=list)


def prove(store: Store, run: Run) -> list[Proof]:
    """What can be said of the exchanges of a run; nothing if it has none."""
    if not any(run.readers(phase) for phase in range(len(run.phases))):
        return []
    return _Prover(store, run).prove()


class _Prover:
    def __init__(self, store: Store, run: Run) -> None:
        self.store = store
        self.run = run
        self.storage = Storage(run.storage)
        self.output = Output(store, run.name)
        self.boards: Sequence[Board] = runs.boards(store, run)

    def prove(self) -> list[Proof]:
        plans, once, placed = (
            Proof("exchange plans"),
            Proof("exchanged rows read once"),
            Proof("keys in one range"),
        )
        rows = ranges = 0
        for phase, plan in self._plans():
            try:
                left = self._left(phase, plan)
                plans.problems += self._check_plan(phase, plan, left)
                rows += self._check_reads(phase, plan, left, once.problems)
            except PenstockError as error:
                once.problems.append(error.what)
            ranges += len(plan.ranges)
        plans.found = f"{ranges} ranges, of all partitions that were acked"
        once.found = f"{rows} rows"
        try:
            placed.found = self._check_files(placed.problems)
        except PenstockError as error:
            placed.problems.append(error.what)
        return [plans, once, placed]

    def _plans(self) -> Iterator[tuple[int, ExchangePlan]]:
        for phase, record in enumerate(self.run.phases):
            if record.reads and (plan := exchanges.find_plan(self.store, self.run, phase)) is not None:
                yield phase, plan

    def _left(self, phase: int, plan: ExchangePlan) -> dict[int, Left]:
        origins = sorted({origin for origin, _ in self.run.phases[phase].reads.values()})
        return {
            origin: exchanges.left(self.store, self.storage, self.run, origin, plan.without).agreed(plan)
            for origin in origins
        }

    def _check_plan(self, phase: int, plan: ExchangePlan, left: dict[int, Left]) -> list[str]:
        """It has every bucket once, or it could not have been read; here: what it was made of."""
        problems = [f"phase {phase} does without partition {name}" for name in plan.without]
        digests = {name: digest for each in left.values() for name, digest in each.digests.items()}
        if packing.digest_of(digests, plan.without) != plan.made_of:
            problems.append(f"the plan of phase {phase} was made of other partitions than there are")
        if phase < len(self.boards) and self.boards[phase].geometry.total_rows != len(plan.ranges):
            partitions = self.boards[phase].geometry.total_rows
            problems.append(f"phase {phase} has {partitions} partitions for {len(plan.ranges)} ranges")
        return problems

    def _check_reads(self, phase: int, plan: ExchangePlan, left: dict[int, Left], problems: list[str]) -> int:
        """Compare what each range read with what was left for it; the rows of all of them."""
        total = 0
        record = self.run.phases[phase]
        for table, (origin, name) in record.reads.items():
            there = [f for m in left[origin].manifests.values() for f in m.exchanges[name].files]
            if record.by_order:
                total += self._check_sorted_reads(phase, plan, table, there, problems)
                continue
            for _, manifest in self.output.phase_manifests(phase):
                chosen = plan.ranges[manifest.partition.begin]
                keyed = record.by_keys
                rows = sum(
                    each.rows_in(chosen.begin_bucket, chosen.end_bucket) if keyed else each.file.rows
                    for each in there
                )
                read = manifest.read.get(table, 0)
                total += read
                if read != rows:
                    which = PartitionName(phase, manifest.partition)
                    problems.append(f"{which} read {read} rows of {table}, and {rows} were left for it")
        return total

    def _check_sorted_reads(
        self,
        phase: int,
        plan: ExchangePlan,
        table: str,
        there: Sequence[ExchangeFile],
        problems: list[str],
    ) -> int:
        """How many rows are between two keys was not known before: all ranges together have all rows."""
        found = [manifest.read.get(table, 0) for _, manifest in self.output.phase_manifests(phase)]
        rows = sum(each.file.rows for each in there)
        if len(found) == len(plan.ranges) and sum(found) != rows:
            problems.append(f"phase {phase} read {sum(found)} rows of {table}, and {rows} were left for it")
        return sum(found)

    def _check_files(self, problems: list[str]) -> str:
        """Look into the run files: each row has to be in the bucket of its key."""
        looked = swept = 0
        with ThreadPoolExecutor(4) as pool:
            for phase in range(len(self.boards)):
                files = list(self._run_files(phase))
                if files and exchanges.is_read(self.run, self.boards, phase):
                    there = {path for path, _ in self._listed(phase)}
                    swept += sum(each.file.path not in there for _, _, each in files)
                    files = [each for each in files if each[2].file.path in there]
                looked += len(files)
                problems += [found for found in pool.map(self._problem, files) if found]
        gone = f"; {swept} were swept after all had read them" if swept else ""
        return f"{looked} run files have each row in the bucket of its key{gone}"

    def _listed(self, phase: int) -> list[tuple[str, int]]:
        return self.storage.list(layout.exchanges_folder(self.run.place(phase)))

    def _run_files(self, phase: int) -> Iterator[tuple[PartitionName, str, ExchangeFile]]:
        """What the acks of a phase left, each with the partition that wrote it and its exchange."""
        for _, manifest in self.output.phase_manifests(phase):
            for name, exchanged in manifest.exchanges.items():
                for each in exchanged.files:
                    yield PartitionName(phase, manifest.partition), name, each

    def _problem(self, item: tuple[PartitionName, str, ExchangeFile]) -> str | None:
        partition, name, file = item
        # Rows that are sorted are in no buckets: their order is looked at where they are published.
        keys = [key for key in name.partition(":")[2].split(",") if key] if file.samples is None else []
        try:
            self.storage.check(file.file)
            wrong = misplaced(self.storage, file, keys) if keys else None
        except (CorruptFile, OSError, pa.ArrowException) as error:
            wrong = str(error)
        return f"partition {partition}: {wrong}" if wrong else None


def misplaced(storage: Storage, file: ExchangeFile, keys: Sequence[str]) -> str | None:
    """What is wrong with the order of a run file, if a row is not where the counts of its buckets say."""
    counts = file.chunks()
    buckets = counts.shape[1]
    wanted = np.concatenate([np.repeat(np.arange(buckets), chunk) for chunk in counts])
    row = 0
    with storage.open(file.file.path) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            found = bucket_numbers([batch.column(key) for key in keys], buckets)
            here = wanted[row : row + batch.num_rows]
            if len(here) != len(found) or (here != found).any():
                return f"{file.file.path} has a row in another bucket than that of its key"
            row += batch.num_rows
    return None if row == len(wanted) else f"{file.file.path} has {row} rows, not {len(wanted)}"
