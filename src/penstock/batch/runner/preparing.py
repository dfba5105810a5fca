"""Starting a run, or joining it: everything that is checked and fixed before the first claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.batch import inputs
from penstock.batch.inputs import Input
from penstock.batch.pipeline import DatasetFactory, Pipeline
from penstock.batch.pipeline.check import check_pipeline
from penstock.batch.pipeline.execute import Executor, resources_by_stage
from penstock.batch.pipeline.needs import cut_pipeline
from penstock.batch.pipeline.phases import ByKeys, ByOrder, ByRows, Phases
from penstock.batch.runner import limits
from penstock.batch.runner.bench import Bench, fingerprint
from penstock.batch.runner.events import Listener
from penstock.batch.runner.places import check_places
from penstock.batch.runs import runs
from penstock.batch.runs.exchange_disk import ExchangeDisk
from penstock.batch.runs.options import RunnerConfig
from penstock.batch.runs.runs import PhaseRecord, Run
from penstock.core.clocks import wall_clock
from penstock.core.codec import schema_to_text
from penstock.spark.sharing import check_shared
from penstock.storage import Storage
from penstock.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def prepare(
    pipeline: Pipeline,
    store: Store,
    storage: Storage,
    config: RunnerConfig,
    spark: SparkSession,
    *,
    factory: DatasetFactory | None,
    source: str,
    tell: Listener,
) -> Bench:
    """Check the pipeline and its inputs, and start the run or join it. The first phase is not entered yet."""
    name = config.run or pipeline.name
    begun = runs.find(store, name)
    registered = _inputs(pipeline, store, storage, config, begun, with_factory=factory is not None)
    output = Storage(config.output) if config.output else None
    check_places(storage, output, begun=begun is not None)
    check_shared(spark, storage)
    if output is not None:
        check_shared(spark, output)
    digests = {name: found.digest for name, found in registered.items()}
    known = pipeline.resources
    resources = resources_by_stage(pipeline.stages, known, {})
    checked = check_pipeline(spark, pipeline, resources)
    sizes = {name: found.size for name, found in registered.items()}
    one = config.small_bytes
    phases = cut_pipeline(pipeline, checked, sizes, small=config.whole_bytes, as_one=one)
    limits.check_given(phases, registered.keys(), next(iter(registered)))
    limits.check_everything(phases, sizes, config.everything_bytes)
    if begun is None:
        limits.check_exchanged(phases, sizes, config.exchange_bytes)
    if phases.stages != pipeline.stages:
        resources = resources_by_stage(phases.stages, known, {}, resources[:1])
    executor = Executor(spark, pipeline, phases, checked.checked, checked.without_views)
    primary_table, primary = next(iter(registered.items()))
    wanted = Run(
        name=name,
        id=runs.new_id(),
        pipeline=pipeline.name,
        inputs=digests,
        registered={table: found.name for table, found in registered.items()},
        total_rows=primary.total_rows,
        partition_rows=primary.partition_rows,
        outputs=tuple(t.__table_name__ for t in pipeline.outputs),
        output=output.root if output is not None else storage.location("output"),
        output_format=config.output_format,
        fingerprint=fingerprint(
            pipeline, phases.stages, phases.texts(), digests, resources, factory, spark.version
        ),
        storage=storage.root,
        created=wall_clock("seconds"),
        keeps_rows=_keeps_rows(phases, primary_table),
        schemas=_output_schemas(pipeline),
        source=source,
        registrations={table: found.id for table, found in registered.items()},
        phases=_phase_records(phases, registered),
    )
    run, board = runs.start(
        store,
        wanted,
        max_failures=config.max_failures,
        accept_changed_code=config.accept_changed_code,
    )
    if run.id == wanted.id:
        for found in registered.values():
            inputs.take(store, found)
    return Bench(
        spark,
        pipeline,
        run,
        board,
        storage,
        config,
        registered,
        executor,
        resources,
        factory,
        tell,
        phases[0],
        disk=ExchangeDisk(storage, run, config.exchange_bytes),
    )


def _inputs(
    pipeline: Pipeline,
    store: Store,
    storage: Storage,
    config: RunnerConfig,
    begun: Run | None,
    *,
    with_factory: bool,
) -> dict[str, Input]:
    """The registered inputs, unchanged and of fitting types. Further ones may be the factory's."""
    known = inputs.names(store) if with_factory else []
    names = {**(begun.registered if begun else {}), **config.inputs}
    found = {}
    for number, table in enumerate(pipeline.inputs):
        name = names.get(table.__table_name__, table.__table_name__)
        if number and with_factory and name not in known:
            continue
        registered = inputs.load(store, storage, name)
        inputs.check_schema(registered.schema, table.input_schema(), file=f"input {name!r}")
        inputs.check_unchanged(registered)
        found[table.__table_name__] = registered
    return found


def _output_schemas(pipeline: Pipeline) -> dict[str, str]:
    return {t.__table_name__: schema_to_text(t.arrow_schema(t.__fields__)) for t in pipeline.outputs}


def _keeps_rows(phases: Phases, primary: str) -> tuple[str, ...]:
    """The primary input, if it is published by its row ranges and nothing drops any of its rows."""
    for phase in phases:
        if phase.partitioning == ByRows(primary) and primary in phase.outputs:
            dropped = {t for s in phase.stages for b in s.transforms for t in b.transform.drops}
            return () if primary in dropped else (primary,)
    return ()


def _phase_records(phases: Phases, registered: Mapping[str, Input]) -> tuple[PhaseRecord, ...]:
    """What a run's record tells about its phases."""
    if not phases.texts():
        return ()
    found = []
    for phase in phases:
        rows: int | None = 1
        size: int | None = 1
        if isinstance(cut := phase.partitioning, ByRows):
            rows, size = registered[cut.table].total_rows, registered[cut.table].partition_rows
        elif isinstance(cut, ByKeys | ByOrder):
            rows = size = None
        reads = {
            table: (origin, phases[origin].exchange(table, phase.index).name)
            for table, origin in phase.entering.items()
            if origin is not None
        }
        names = tuple(each.name for each in phase.leaving)
        stages = (phase.begin, phase.end)
        record = PhaseRecord(str(cut), stages, phase.outputs, rows, size, names, reads, phase.ordered)
        found.append(record)
    return tuple(found)
