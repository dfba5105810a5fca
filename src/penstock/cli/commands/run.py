"""``penstock run``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import exits
from penstock.cli.actions.running import execute
from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import count
from penstock.config import shown_url
from penstock.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.batch.runs.runs import Run
    from penstock.cli.actions.registering import Registrar

_SETTINGS = {
    "instances": "run.instances",
    "checkpoint": "run.checkpoint",
    "claims": "run.claims",
    "max_batches": "run.max_batches",
    "lease_ttl": "run.lease_ttl",
    "master": "spark.master",
}


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how to run; they go into the configuration of the command."""

    @click.option(
        "--instances", type=int, metavar="N", help="Processes that work on it, each with a Spark session."
    )
    @click.option("--checkpoint", metavar="WHEN", help="every-stage, every:N, auto or none.")
    @click.option("--claims", type=int, metavar="N", help="Partitions that an instance works on at once.")
    @click.option("--max-batches", type=int, metavar="N", help="Stop after N partitions.")
    @click.option("--lease-ttl", metavar="TIME", help="How long a dead instance's claims are kept: 10s, 2m.")
    @click.option("--master", metavar="URL", help="Spark master: local[*], spark://…, sc://….")
    @click.option(
        "--accept-changed-code",
        is_flag=True,
        help="Go on with new code, and keep what the old code completed.",
    )
    @click.option(
        "--without-poisoned",
        is_flag=True,
        help="Do not wait for poisoned partitions: later phases go on without their rows.",
    )
    @click.option("--quiet", "-q", is_flag=True, help="No progress.")
    @functools.wraps(function)
    def wrapped(context: CommandContext, **given: Any) -> Any:
        context.flags({key: given.pop(name) for name, key in _SETTINGS.items()})
        return function(context, **given)

    return wrapped


@click.command(epilog=exits.TABLE)
@click.argument("source", metavar="FILE[:NAME]")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=PATH",
    help="File, folder or pattern for an input table.",
)
@click.option(
    "--input-format",
    "formats",
    multiple=True,
    metavar="NAME=FORMAT",
    help="parquet, csv, jsonl or arrow, where the file names do not say it.",
)
@click.option(
    "--input-option",
    "options",
    multiple=True,
    metavar="NAME.KEY=VALUE",
    help="How CSV is written: header, delimiter, quote, null_values.",
)
@click.option("--output", metavar="DIR", help="Where output files go.  [default: STORAGE/output]")
@click.option("--output-format", type=click.Choice(["parquet", "arrow"]), help="[default: parquet]")
@click.option("--run", "name", metavar="NAME", help="Name of the run.  [default: the pipeline's name]")
@click.option(
    "--partition-rows",
    type=int,
    metavar="N",
    help="Rows of a partition.  [default: whole files, or 2.5 million]",
)
@with_context
@with_settings
def command(
    context: CommandContext,
    source: str,
    inputs: tuple[str, ...],
    formats: tuple[str, ...],
    options: tuple[str, ...],
    output: str | None,
    output_format: str | None,
    name: str | None,
    partition_rows: int | None,
    accept_changed_code: bool,
    without_poisoned: bool,
    quiet: bool,
) -> int:
    """Run a pipeline over its inputs.

    A run that exists goes on where it was.

    \b
      penstock run trades.py --input trades=data/trades.parquet --output out
      penstock run pipelines.py:daily --input trades='data/*.csv' --instances 4
      penstock run trades.py --input trades=data/trades.csv --input-option trades.delimiter=';'
    """  # noqa: D301 - click wants the character itself
    from penstock.batch.runner.places import check_places
    from penstock.batch.runs import runs
    from penstock.batch.runs.options import instance_id
    from penstock.cli.actions.inputs import parse
    from penstock.cli.actions.registering import Registrar
    from penstock.project import load
    from penstock.storage import Storage
    from penstock.workers.run_job import RunJob

    context.flags({"run.partition_rows": partition_rows})
    config = context.config
    project = load(source)
    sources = parse(project.pipeline, inputs, formats, options)
    name = runs.check_name(name or project.pipeline.name)
    existing = runs.find(context.store, name)
    registrar = Registrar(
        context.store,
        context.storage,
        project.pipeline,
        sources,
        name,
        begun=existing is not None,
        provided=project.factory is not None,
    )
    names = registrar.names()
    chosen = output or (existing.output if existing else None)
    # Now, not after minutes of counting rows and starting Spark.
    check_places(context.storage, Storage(chosen) if chosen else None, begun=existing is not None)
    register = _registration(context, registrar, existing, partition_rows)
    late = config.run.instances == 1 and registrar.needs_spark()
    if not late:
        register(None)
    job = RunJob(
        source=project.source,
        run=name,
        instance=instance_id(),
        store=config.store,
        storage=config.storage,
        inputs=names,
        output=chosen,
        output_format=output_format or (existing.output_format if existing else "parquet"),
        accept_changed_code=accept_changed_code,
        without_poisoned=without_poisoned,
        settings=config.run,
        spark=config.spark,
        cluster=config.cluster.name,
        tls=config.tls,
        store_password=config.store_password,
    )
    result = execute(context, project, job, quiet=quiet, prepare=register if late else None)
    context.output.show(result)
    context.output.say(result.advice())
    return result.code


def resume(
    context: CommandContext,
    name: str,
    source: str | None,
    accept_changed_code: bool,
    without_poisoned: bool,
    quiet: bool,
) -> int:
    """Go on with a run from what its record says."""
    from penstock.batch.runner.places import check_places
    from penstock.batch.runs.options import instance_id
    from penstock.project import load
    from penstock.storage import Storage
    from penstock.workers.run_job import RunJob

    run = context.run(name)
    source = source or run.source
    if not source:
        raise UsageError(
            f"run {name!r} was started from Python, so that its pipeline file is not known",
            hint=f"penstock runs resume {name} --file FILE[:NAME], or start its Runner again",
        )
    project = load(source)
    check_places(Storage(run.storage), run.output_storage, begun=True)
    config = context.config
    job = RunJob(
        source=project.source,
        run=name,
        instance=instance_id(),
        store=config.store,
        storage=run.storage,
        inputs=run.registered,
        output=run.output,
        output_format=run.output_format,
        accept_changed_code=accept_changed_code,
        without_poisoned=without_poisoned,
        settings=replace(config.run, partition_rows=run.partition_rows),
        spark=config.spark,
        cluster=config.cluster.name,
        tls=config.tls,
        store_password=config.store_password,
    )
    result = execute(context, project, job, quiet=quiet)
    context.output.show(result)
    context.output.say(result.advice())
    return result.code


def _registration(
    context: CommandContext, registrar: Registrar, existing: Run | None, partition_rows: int | None
) -> Callable[[SparkSession | None], None]:
    def register(spark: SparkSession | None) -> None:
        fixed = existing is not None and partition_rows is None
        made = registrar.register(spark, context.config.run.partition_rows, fixed=fixed)
        for number, each in enumerate(made):
            cut = f" in {count(each.partitions, 'partition')}" if number == 0 else ""
            context.output.say(
                f"input {each.name}: {count(each.total_rows, 'row')}{cut}, {shown_url(each.source)}"
            )

    return register
