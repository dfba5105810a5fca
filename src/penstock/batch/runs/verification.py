"""Proving from manifests, checksums and counts that every input row was processed once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from penstock.batch import inputs
from penstock.batch.runs import exchange_proofs, order_proofs, runs
from penstock.batch.runs.manifests import OutputManifest
from penstock.batch.runs.output import Output
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board, PartitionState
from penstock.core.ranges import PartitionName
from penstock.errors import CorruptFile, InputError, PenstockError
from penstock.storage import FileRecord, Storage
from penstock.store import Store

_NAMED = 10


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """All that was looked at, and the rows that came out."""

    run: str
    checks: tuple[Check, ...]
    rows_in: int
    rows_out: dict[str, int]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "ok": self.ok,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "checks": [asdict(c) for c in self.checks],
        }


def verify(store: Store, name: str) -> Verification:
    """Look at everything that a run has published. Nothing is changed."""
    run = runs.load(store, name)
    Board.open(store, run.key)
    return _Verifier(store, run).verify()


class _Verifier:
    def __init__(self, store: Store, run: Run) -> None:
        self.store = store
        self.run = run
        self.storage = Storage(run.storage)

    def verify(self) -> Verification:
        coverage, done_rows = self._coverage()
        manifests, found, rows_out = self._manifests()
        checks = (
            self._inputs(),
            coverage,
            *self._exchanges(),
            manifests,
            self._once(found),
            self._bytes(found),
            self._counts(found),
        )
        return Verification(self.run.name, checks, done_rows, rows_out)

    def _inputs(self) -> Check:
        try:
            for table, digest in self.run.inputs.items():
                name = self.run.registered[table]
                registered = inputs.load(self.store, self.storage, name)
                inputs.check_unchanged(registered)
                if registered.digest != digest:
                    return Check("inputs", False, f"input {name} is not the one that the run began with")
        except InputError as error:
            return Check("inputs", False, error.what)
        return Check("inputs", True, f"{', '.join(self.run.inputs)}: unchanged since they were registered")

    def _coverage(self) -> tuple[Check, int]:
        """The completed partitions of each phase lie side by side, from the first to the last."""
        rows = 0
        problems: list[str] = []
        boards = runs.boards(self.store, self.run)
        for phase, board in enumerate(boards):
            done = self._covered(phase, board, problems)
            if self.run.every_phase[phase].by_rows:
                rows += done
            elif done == board.geometry.total_rows and not self.run.every_phase[phase].reads:
                rows += self.run.total_rows  # one partition that has everything
        problems += [f"phase {n} is not begun" for n in range(len(boards), len(self.run.every_phase))]
        if len(self.run.every_phase) == 1:
            detail = f"{rows} of {self.run.total_rows} rows lie in completed partitions"
        else:
            detail = f"{rows} rows of inputs lie in completed partitions, of {len(boards)} phases"
        return Check("every row once", not problems, _listed(detail, problems)), rows

    def _covered(self, phase: int, board: Board, problems: list[str]) -> int:
        row = done = 0
        for view in board.partitions():
            name = PartitionName(phase, view.range)
            if view.range.begin != row:
                problems.append(f"what is before {name} belongs to no partition, or to two")
            row = view.range.end
            if view.state is PartitionState.COMPLETED:
                done += view.range.rows
            else:
                problems.append(f"{name} is {view.state}")
        expected = self.run.every_phase[phase].rows
        if row != (board.geometry.total_rows if expected is None else expected):
            problems.append(f"partitions of phase {phase} end at {row} of {expected}")
        return done

    def _exchanges(self) -> list[Check]:
        return [
            Check(proof.name, not proof.problems, _listed(proof.found, proof.problems))
            for proof in (
                *exchange_proofs.prove(self.store, self.run),
                *order_proofs.prove(self.store, self.run),
            )
        ]

    def _manifests(self) -> tuple[Check, list[tuple[str, FileRecord]], dict[str, int]]:
        found: list[tuple[str, FileRecord]] = []
        rows = dict.fromkeys(self.run.outputs, 0)
        problems: list[str] = []
        count = accepted = 0
        output = Output(self.store, self.run.name)
        try:
            for phase in range(len(self.run.every_phase)):
                for _, manifest in output.phase_manifests(phase):
                    count += 1
                    accepted += self._check_manifest(phase, manifest, problems)
                    for table, saved in manifest.tables.items():
                        found += [(table, f) for f in saved.files]
                        rows[table] = rows.get(table, 0) + saved.rows
        except PenstockError as error:
            problems.append(error.what)
        detail = f"{count} manifests, all as they were acked"
        if accepted:
            detail += f"; {accepted} of them made by earlier code that was accepted"
        return Check("manifests", not problems, _listed(detail, problems)), found, rows

    def _check_manifest(self, phase: int, manifest: OutputManifest, problems: list[str]) -> bool:
        """Whether earlier code made it that was accepted; what is wrong goes to ``problems``."""
        name, done = PartitionName(phase, manifest.partition), self.run.every_phase[phase].stages[1]
        # What follows in later phases does not matter to it.
        made = manifest.fingerprint.of_phase(done, phase)
        reasons = made.differences(self.run.fingerprint.of_phase(done, phase))
        earlier = (fingerprint.of_phase(done, phase) for fingerprint in self.run.accepted)
        accepted = bool(reasons) and any(not made.differences(each) for each in earlier)
        if reasons and not accepted:
            problems.append(f"{name} was made by other code: {'; '.join(reasons)}")
        if self.run.every_phase[phase].by_rows:
            for table, saved in manifest.tables.items():
                if table == self.run.primary and saved.rows > manifest.partition.rows:
                    problems.append(f"{name} has more rows of {table} than it began with")
                if table in self.run.keeps_rows and saved.rows != manifest.partition.rows:
                    problems.append(f"{name} has {saved.rows} rows of {table}")
        return accepted

    def _once(self, found: list[tuple[str, FileRecord]]) -> Check:
        twice = [path for path, n in Counter(record.path for _, record in found).items() if n > 1]
        return Check(
            "no file twice",
            not twice,
            _listed(f"{len(found)} files", [f"{p} is listed twice" for p in twice]),
        )

    def _bytes(self, found: list[tuple[str, FileRecord]]) -> Check:
        output = self.run.output_storage

        def problem(item: tuple[str, FileRecord]) -> str | None:
            try:
                output.check(item[1])
            except CorruptFile as error:
                return error.what
            return None

        with ThreadPoolExecutor(4) as pool:
            problems = [p for p in pool.map(problem, found) if p]
        size = sum(record.bytes for _, record in found)
        return Check("checksums", not problems, _listed(f"{len(found)} files, {size} bytes", problems))

    def _counts(self, found: list[tuple[str, FileRecord]]) -> Check:
        def problem(item: tuple[str, FileRecord]) -> str | None:
            try:
                rows = self._rows(item[1].path)
            except (OSError, ValueError) as error:
                return f"{item[1].path}: {error}"
            return None if rows == item[1].rows else f"{item[1].path} has {rows} rows, not {item[1].rows}"

        with ThreadPoolExecutor(4) as pool:
            problems = [p for p in pool.map(problem, found) if p]
        return Check("row counts", not problems, _listed("as recorded in every file", problems))

    def _rows(self, path: str) -> int:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self.run.output_storage.open(path) as file:
            if self.run.output_format == "parquet":
                return int(pq.ParquetFile(file).metadata.num_rows)
            reader = pa.ipc.open_file(file)
            return sum(reader.get_batch(n).num_rows for n in range(reader.num_record_batches))


def _listed(detail: str, problems: list[str]) -> str:
    if not problems:
        return detail
    more = f" (and {len(problems) - _NAMED} more)" if len(problems) > _NAMED else ""
    return f"{detail}; " + "; ".join(problems[:_NAMED]) + more
