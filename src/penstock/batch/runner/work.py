"""The work on one claim: from its newest checkpoint, stage by stage, to the ack."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from penstock.batch import inputs
from penstock.batch.inputs import Input
from penstock.batch.pipeline import Dataset, Retry, Stage
from penstock.batch.pipeline.execute import resources_by_stage
from penstock.batch.pipeline.phases import ByRows
from penstock.batch.pipeline.resources import Named, own_values
from penstock.batch.pipeline.retry import attempt_job
from penstock.batch.runner.bench import Bench, with_resources
from penstock.batch.runner.events import Event, EventKind
from penstock.batch.runner.lease import Hold
from penstock.batch.runner.writing import PhaseFiles, write_phase
from penstock.batch.runs import checkpoints, layout, manifests
from penstock.batch.runs.checkpoints import InputRows, SavedCheckpoint
from penstock.batch.runs.manifests import Exchanged, OutputManifest, SavedTable
from penstock.control.claims import Claim
from penstock.core.failpoints import reach
from penstock.errors import CorruptFile, UndeclaredWrite
from penstock.spark import files
from penstock.spark.flow import Flow, Scan
from penstock.spark.paths import for_spark
from penstock.spark.session import parallelism
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_LEAST_TASK_ROWS = 100_000
_MOST_TASK_ROWS = 4_000_000


class ClaimWork:
    """One claim on its way through the pipeline."""

    def __init__(self, bench: Bench, hold: Hold) -> None:
        self.bench = bench
        self.hold = hold
        self.claim: Claim = hold.claim
        self.began = time.monotonic()
        self.resumed_at = 0
        self.rows: dict[str, int] = {}
        self._buckets = _buckets(bench, self.claim)
        self._dropped: set[str] = set()
        self._watched: list[inputs.Whole] = []
        self._since: list[str] = []
        self._retries: list[Retry] = []
        self._resources = bench.resources
        self._own: list[Named] = []
        # Checkpoints only: a claim's output belongs to the run, whatever its factory provided.
        self._fingerprint = bench.run.fingerprint

    def do(self) -> str:
        """Compute the partition, write its output and publish it with the ack.

        Returns the digest of what was published.
        """
        dataset = self._dataset()
        self._provide(dataset.resources)
        handles = self.bench.executor.handles
        handles.hold(self._own)
        try:
            return self._compute(dataset)
        finally:
            handles.release(self._own)

    def _provide(self, given: Mapping[str, Any]) -> None:
        """Take the factory's resources; what does not depend on them is shared with all claims."""
        if not given:
            return
        bench = self.bench
        phases, known = bench.executor.phases, bench.pipeline.resources
        self._resources = resources_by_stage(phases.stages, known, given, bench.resources)
        self._own = own_values(self._resources, bench.resources)
        self._fingerprint = with_resources(bench.run.fingerprint, phases, self._resources, self._own)

    def _compute(self, dataset: Dataset) -> str:
        bench = self.bench
        done, flows = self._begin(dataset)
        phase, unsaved = bench.phase, 0
        for stage in phase.stages[done - phase.begin :]:
            self.hold.check()
            before = time.monotonic()
            flows = self._stage(stage, flows)
            unsaved += 1
            if bench.saves(stage):
                flows, saved = self._checkpoint(stage.index + 1, flows)
                bench.learn(stage, unsaved, time.monotonic() - before, [saved])
                unsaved = 0
            self.tell("stage", stage=stage.index, seconds=time.monotonic() - before)
        self.tell("writing", stage=phase.end)
        return self._publish(flows)

    def _begin(self, dataset: Dataset) -> tuple[int, dict[str, Flow]]:
        """Where to begin: after the newest checkpoint that fits and is whole, or at the input."""
        bench = self.bench
        judged = [
            checkpoints.judge(
                bench.storage,
                bench.place,
                self.claim.range,
                ref,
                bench.pipeline,
                bench.executor.phases,
                bench.phase,
                self._fingerprint,
            )
            for ref in self.claim.checkpoints
        ]
        for found in checkpoints.newest(judged):
            reasons = found.reasons
            if found.manifest is not None and not reasons:
                try:
                    flows = checkpoints.restore(
                        bench.spark, bench.storage, found.manifest, self._input, bench.hint
                    )
                    self.resumed_at = found.manifest.done
                    self.rows = {name: t.rows for name, t in found.manifest.tables.items() if t.input is None}
                    given = self._given_rows()
                    self.rows |= {t: given[t] for t in self._untouched(found.manifest) if t in given}
                    self.tell("resumed", stage=self.resumed_at)
                    return self.resumed_at, flows
                except CorruptFile as error:
                    reasons = (error.what,)
            bench.board.drop_checkpoint(self.claim, found.ref.stage)
            self.tell("set-aside", stage=found.ref.stage, message="; ".join(reasons))
        self.rows = self._given_rows()
        if bench.exchange is None:
            # Those of key ranges are checked while they are read, batch by batch.
            whole = [each.file for table in bench.entering.values() for each in table.files]
            files.verify(bench.spark, bench.storage, whole)
        return bench.phase.begin, bench.executor.flows(dataset)

    def _given_rows(self) -> dict[str, int]:
        """How many rows each table has that the phase cuts."""
        bench = self.bench
        if isinstance(cut := bench.phase.partitioning, ByRows):
            return {cut.table: self.claim.range.rows}
        whole = [t for t, origin in bench.phase.entering.items() if origin is None and t in bench.inputs]
        given = {t: bench.inputs[t].total_rows for t in whole}
        # How many of a sorted table are between two keys is known once they are read.
        unsorted = {t: found for t, found in bench.entering.items() if not found.order}
        return given | {t: found.rows_in(self._buckets) for t, found in unsorted.items()}

    def _input_rows(self) -> int:
        """How many rows of registered inputs are done with it. Rows out of exchanges were counted before."""
        cut = self.bench.phase.partitioning
        if isinstance(cut, ByRows):
            return self.claim.range.rows
        return sum(self.bench.inputs[t].total_rows for t, o in self.bench.phase.entering.items() if o is None)

    def _untouched(self, manifest: manifests.CheckpointManifest) -> list[str]:
        return [name for name, table in manifest.tables.items() if table.input is not None]

    def _dataset(self) -> Dataset:
        """The partition's rows, every small input as a whole, and what the factory adds."""
        bench = self.bench
        # What is not registered is the factory's to give.
        names = bench.phase.entering.keys() | (bench.phase.whole & bench.inputs.keys())
        if bench.run.phases == () or bench.factory:
            names |= bench.inputs.keys()
        dataset = Dataset({name: self._table(name) for name in sorted(names)}, {}, bench.spark)
        return bench.factory(dataset, self.claim.range) if bench.factory else dataset

    def _table(self, name: str) -> Flow:
        found = self.bench.entering.get(name)
        if found is None:
            return self._input(name)
        # A single range is read by several tasks, so that Spark's own shuffle keeps all cores busy. Of
        # several, each is one task: Spark sees one partition and moves nothing.
        alone = self.bench.exchange is None or len(self.bench.exchange.ranges) == 1
        hint = self.bench.hint(name, found.size)
        return found.flow(
            self.bench.storage, self._buckets, self._tasks(found.rows) if alone and found.rows else 1, hint
        )

    def _input(self, name: str) -> Flow:
        bench = self.bench
        registered = bench.inputs[name]
        schema = bench.pipeline.tables[name].input_schema()
        rows = self.claim.range if bench.phase.partitioning == ByRows(name) else registered.whole
        tasks = self._tasks(rows.rows) if rows else 1

        def cut(columns: Sequence[str]) -> Sequence[inputs.Split]:
            return inputs.splits(registered, bench.storage, rows, tasks, columns, schema)

        whole = inputs.whole_files(registered, rows, schema) if rows else None
        native = self._native(registered, whole, schema) if whole else None
        hint = bench.hint(name, registered.size)
        return Flow.scan(name, Scan(schema, cut, kept=InputRows(name), native=native, hint=hint))

    def _native(
        self, registered: Input, whole: inputs.Whole, schema: pa.Schema
    ) -> Callable[[SparkSession, Sequence[str]], DataFrame]:
        def read(spark: SparkSession, columns: Sequence[str]) -> DataFrame:
            whole.check_unchanged()
            self._watched.append(whole)
            chosen = pa.schema([schema.field(name) for name in columns])
            frame = spark.read.schema(spark_schema(chosen)).parquet(*map(for_spark, whole.paths))
            for rows in whole.rest:
                scan = Scan(chosen, partial(inputs.splits, registered, self.bench.storage, rows, 1))
                frame = frame.unionByName(Flow.scan(registered.name, scan).frame(spark))
            return frame

        return read

    def _tasks(self, rows: int) -> int:
        """As many tasks as there are cores, if each has enough to do.

        All cores work on one claim after the other, so that one is planned or published while the
        next is computed.
        """
        if self.bench.config.task_rows:
            return -(-rows // self.bench.config.task_rows)
        cores = parallelism(self.bench.spark)
        return max(min(cores, -(-rows // _LEAST_TASK_ROWS)), -(-rows // _MOST_TASK_ROWS))

    def _stage(self, stage: Stage, flows: Mapping[str, Flow]) -> dict[str, Flow]:
        made = self.bench.executor.run_stage(self.bench.phase, stage, flows, self._resources[stage.index])
        self.note(stage)
        reach("stage.planned")
        return made

    def note(self, stage: Stage) -> None:
        """Remember what a stage, which was planned, may do to rows, and how it is retried."""
        for bound in stage.transforms:
            if bound.transform.form == "frame" and not bound.writes_resources:
                self._retries.append(bound.transform.retry)
            for table in bound.creates:
                self.rows.pop(table, None)
            self._dropped |= bound.transform.drops
        self._since += stage.names

    def _checkpoint(self, done: int, flows: Mapping[str, Flow]) -> tuple[dict[str, Flow], SavedCheckpoint]:
        bench = self.bench
        [saved], onward = self._retried(
            lambda: checkpoints.save(
                bench.spark,
                bench.storage,
                bench.place,
                [self.claim],
                done,
                flows,
                self._fingerprint.upto(done, bench.phase.index),
                bench.config.compression,
                bench.hint,
            )
        )
        self.record(saved)
        return onward, saved

    def record(self, saved: SavedCheckpoint) -> None:
        """Note in the store that a checkpoint is complete."""
        # What follows reads files: the transforms up to here do not run again.
        self._retries = []
        self._count({name: table for name, table in saved.tables.items() if table.input is None})
        self._check_inputs()
        self.hold.check()
        reach("checkpoint.before")
        self.hold.patiently(lambda: self.bench.board.save_checkpoint(self.claim, saved.ref))
        reach("checkpoint.after")

    def _publish(self, flows: Mapping[str, Flow]) -> str:
        [made] = write_phase(self.bench, [self.claim], flows, self._retried)
        return self.publish(made)

    def publish(self, made: PhaseFiles, together: int = 1) -> str:
        """Publish what was written, by so many claims ``together``: each has taken its share of the time."""
        bench, written, left = self.bench, made.tables, made.exchanges
        # What is exchanged and published has one number of rows.
        exchanged = {each.table: left[each.name] for each in bench.phase.leaving}
        self._count({**exchanged, **written})
        self._check_inputs()
        seconds = (time.monotonic() - self.began) / together
        manifest = OutputManifest(
            self.claim.range,
            self.claim.token,
            bench.config.instance,
            self.resumed_at,
            seconds,
            bench.run.fingerprint,
            written,
            left,
            self._read(written),
        )
        data = manifest.encode()
        digest = manifests.digest(data)
        path = layout.output_manifest(bench.place, self.claim.range, self.claim.token, digest)
        bench.storage.write(path, data)
        self.hold.check()
        reach("ack.before")
        self.hold.patiently(lambda: bench.board.ack(self.claim, digest))
        reach("ack.after")
        self.tell("acked", stage=self.resumed_at, rows=self._input_rows(), seconds=seconds)
        return digest

    def _read(self, written: Mapping[str, SavedTable]) -> dict[str, int]:
        """The rows that were read out of exchanges. A sorted table is published as it was read."""
        return {
            name: written[name].rows if found.order else found.rows_in(self._buckets)
            for name, found in self.bench.entering.items()
        }

    def _retried(self, write: Callable[[], T]) -> T:
        """Run a job, again if Spark lost a worker on the way, or as the transforms in it say."""

        def told(pause: float) -> None:
            self.tell("retry", seconds=pause)
            time.sleep(pause)

        def once() -> T:
            self.hold.check()
            return write()

        return attempt_job(once, self._retries, told)

    def _count(self, written: Mapping[str, SavedTable | Exchanged]) -> None:
        """Rows can only get fewer or more where a transform declared it."""
        for name, table in written.items():
            before = self.rows.get(name, table.rows)
            if table.rows > before or (table.rows < before and name not in self._dropped):
                raise UndeclaredWrite(
                    f"table {name} had {before} rows and has {table.rows} after {', '.join(self._since)}, "
                    "which their declarations do not allow",
                    hint="declare drops=… on the transform that removes rows; one that multiplies them "
                    "creates a table of its own",
                )
            self.rows[name] = table.rows
        self._since = []
        self._dropped -= written.keys()

    def _check_inputs(self) -> None:
        """What Spark read by itself was still the registered file when it had been read."""
        for whole in self._watched:
            whole.check_unchanged()

    def tell(self, kind: EventKind, **more: Any) -> None:
        bench, claim = self.bench, self.claim
        phase = bench.phase.index
        bench.tell(Event(kind, bench.config.instance, claim.range, claim.token, phase=phase, **more))


def _buckets(bench: Bench, claim: Claim) -> tuple[int, int] | None:
    """The buckets of a claim of a key range."""
    if bench.exchange is None:
        return None
    found = bench.exchange.ranges[claim.range.begin]
    return found.begin_bucket, found.end_bucket
