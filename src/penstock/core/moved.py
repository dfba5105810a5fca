"""Where things of Penstock stood in the first release.

Fingerprints of code and definitions of streams hold the names of modules, those of Penstock among them. So
that runs and streams go on after an upgrade, these names stay what they were, wherever the code is by now:
whoever moves something that users can refer to adds a line here. `tests/golden` finds what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping

MOVED: Mapping[str, str] = {
    "penstock.batch.inputs.registry": "penstock.inputs.registry",
    "penstock.batch.pipeline.dataset": "penstock.pipeline.dataset",
    "penstock.batch.pipeline.pipeline": "penstock.pipeline.pipeline",
    "penstock.batch.pipeline.resources": "penstock.pipeline.resources",
    "penstock.batch.pipeline.transforms": "penstock.pipeline.transforms",
    "penstock.batch.runner.events": "penstock.runner.events",
    "penstock.batch.runner.runner": "penstock.runner.runner",
    "penstock.batch.runs.options": "penstock.runner.options",
    "penstock.batch.runs.output": "penstock.runner.output",
    "penstock.batch.runs.verification": "penstock.runner.verification",
    "penstock.core.ranges": "penstock.ranges",
    "penstock.journals.reader.journals": "penstock.journals.journals",
    "penstock.sinks": "penstock.streams.sinks",
    "penstock.sinks.base": "penstock.streams.sinks.base",
    "penstock.sinks.conformance": "penstock.streams.sinks.conformance",
    "penstock.sinks.delta.files": "penstock.streams.sinks.delta_files",
    "penstock.sinks.delta.reading": "penstock.streams.sinks.delta_reading",
    "penstock.sinks.delta.sink": "penstock.streams.sinks.delta",
    "penstock.sinks.delta.stats": "penstock.streams.sinks.delta_stats",
    "penstock.sinks.delta.table": "penstock.streams.sinks.delta_table",
    "penstock.sinks.function": "penstock.streams.sinks.function",
    "penstock.sinks.kafka": "penstock.streams.sinks.kafka",
    "penstock.sinks.parquet.document": "penstock.streams.sinks.document",
    "penstock.sinks.parquet.manifests": "penstock.streams.sinks.manifests",
    "penstock.sinks.parquet.sink": "penstock.streams.sinks.parquet",
    "penstock.sinks.parquet.sweeping": "penstock.streams.sinks.sweeping",
    "penstock.sinks.parquet.table": "penstock.streams.sinks.table",
    "penstock.sinks.postgres.copy": "penstock.streams.sinks.postgres_copy",
    "penstock.sinks.postgres.errors": "penstock.streams.sinks.postgres_errors",
    "penstock.sinks.postgres.sink": "penstock.streams.sinks.postgres",
    "penstock.sinks.postgres.table": "penstock.streams.sinks.postgres_table",
    "penstock.sinks.postgres.texts": "penstock.streams.sinks.postgres_texts",
    "penstock.sinks.postgres.writer": "penstock.streams.sinks.postgres_writer",
    "penstock.sinks.columns": "penstock.streams.sinks.shape",
    "penstock.sources.files.directory": "penstock.sources.files",
    "penstock.sources.files.followed": "penstock.sources._followed",
    "penstock.sources.files.formats": "penstock.sources._formats",
    "penstock.sources.files.marked": "penstock.sources._marked",
    "penstock.sources.files.tail": "penstock.sources.tail",
    "penstock.sources.files.text": "penstock.sources._text",
    "penstock.sources.kafka.client": "penstock.sources.kafka_client",
    "penstock.sources.kafka.shared_consumer": "penstock.sources._kafka_hub",
    "penstock.sources.kafka.rows": "penstock.sources._kafka_rows",
    "penstock.sources.kafka.source": "penstock.sources.kafka",
    "penstock.sources.postgres.client": "penstock.sources._postgres_client",
    "penstock.sources.postgres.horizon": "penstock.sources._postgres_horizon",
    "penstock.sources.postgres.rows": "penstock.sources._postgres_rows",
    "penstock.sources.postgres.shape": "penstock.sources._postgres_shape",
    "penstock.sources.postgres.source": "penstock.sources.postgres",
    "penstock.streams.api.handle": "penstock.streams.handle",
    "penstock.streams.api.stream": "penstock.streams.stream",
    "penstock.types.tables": "penstock.tables",
}
"""By the module where something is now, the module where it was. With ``module:Name``, one thing alone."""


def first_home(module: str, name: str = "") -> str:
    """The module in which ``name`` of ``module`` was first; modules of others stay what they are."""
    if module != "penstock" and not module.startswith("penstock."):
        return module
    return MOVED.get(f"{module}:{name}", MOVED.get(module, module))
