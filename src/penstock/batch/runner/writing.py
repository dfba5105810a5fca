"""Writing what a phase makes: its outputs, and what it leaves for later phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from penstock.batch.pipeline.ordered import sorted_frame
from penstock.batch.pipeline.phases import AsOne
from penstock.batch.runner.bench import Bench
from penstock.batch.runs import exchanges, layout
from penstock.batch.runs.manifests import Exchanged, SavedTable
from penstock.control.claims import Claim
from penstock.errors import DiskLimit
from penstock.spark import files
from penstock.spark.flow import Flow
from penstock.storage import FileRecord


class PhaseFiles(NamedTuple):
    """What a phase has made of one claim's rows, in files that nothing refers to yet."""

    tables: dict[str, SavedTable]
    exchanges: dict[str, Exchanged]


def write_phase(
    bench: Bench,
    claims: Sequence[Claim],
    flows: Mapping[str, Flow],
    run: Callable[[Callable[[], list[Any]]], list[Any]],
) -> list[PhaseFiles]:
    """Write the outputs of a phase, and what it leaves for others; ``run`` runs a job.

    Of several claims, each task of a flow has the rows of one.
    """
    made = [PhaseFiles({}, {}) for _ in claims]
    for name in bench.phase.outputs:
        # What later phases need beside the output's own fields is not published.
        flow = _sorted(bench, name, flows[name].select(bench.executor.pipeline.tables[name].__fields__))
        for each, records in zip(made, run(partial(_output, bench, claims, name, flow)), strict=True):
            each.tables[name] = SavedTable(flow.schema, records)
    for exchange in bench.phase.leaving:
        left = partial(
            exchanges.write,
            bench.spark,
            bench.storage,
            bench.run,
            bench.phase.index,
            claims,
            exchange,
            flows[exchange.table],
            bench.config.compression,
        )
        written = run(left)
        _check_disk(bench, written)
        for each, found in zip(made, written, strict=True):
            each.exchanges[exchange.name] = found
    return made


def _sorted(bench: Bench, name: str, flow: Flow) -> Flow:
    """Rows that Spark has to sort before they are published: where a claim has all of them."""
    phase = bench.phase
    if name not in phase.ordered or not isinstance(phase.partitioning, AsOne):
        return flow
    return Flow(name, sorted_frame(flow.frame(bench.spark), phase.ordered[name]), flow.schema)


def _check_disk(bench: Bench, left: Sequence[Exchanged]) -> None:
    """Count run files that were written; what is too much is removed again."""
    if bench.disk is None:
        return
    files = [each.file for found in left for each in found.files]
    try:
        bench.disk.add(sum(each.bytes for each in files))
    except DiskLimit:
        for each in files:
            bench.storage.delete(each.path)
        raise


def _output(bench: Bench, claims: Sequence[Claim], name: str, flow: Flow) -> list[tuple[FileRecord, ...]]:
    run, form = bench.run, bench.run.output_format
    folders = [layout.output_folder(run.name, run.id, each.range, each.token, name) for each in claims]
    # What is published stays: unlike a checkpoint, it is worth compressing.
    return files.write_each(bench.spark, flow, run.output_storage, folders, format=form, compression="lz4")
