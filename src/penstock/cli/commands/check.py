"""``penstock check``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.actions.planning import planning_session
from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, count

if TYPE_CHECKING:
    from penstock.batch.pipeline import Pipeline
    from penstock.batch.pipeline.check import Unchecked


@dataclass(frozen=True, slots=True)
class Checked:
    """A pipeline in which nothing wrong was found, and what could not be looked at without rows."""

    pipeline: Pipeline
    source: str
    unchecked: Sequence[Unchecked] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": True,
            "pipeline": self.pipeline.name,
            "source": self.source,
            "transforms": [t.name for t in self.pipeline.transforms],
            "stages": [s.names for s in self.pipeline.stages],
            "unchecked": [asdict(item) for item in self.unchecked],
        }

    def blocks(self) -> list[Block]:
        transforms = count(len(self.pipeline.transforms), "transform")
        stages = count(len(self.pipeline.stages), "stage")
        return [
            f"ok: pipeline {self.pipeline.name}, {transforms} in {stages}",
            *(f"checked only when it runs: {item.transform} ({item.reason})" for item in self.unchecked),
        ]


@click.command()
@click.argument("source", metavar="FILE[:NAME]")
@with_context
def command(context: CommandContext, source: str) -> None:
    """Check a pipeline without any data.

    Its tables and declarations are checked, and with Spark's help what its transforms really touch.
    """
    from penstock.batch.pipeline.check import check_pipeline
    from penstock.batch.pipeline.execute import resources_by_stage
    from penstock.batch.pipeline.needs import cut_pipeline
    from penstock.project import load

    project = load(source)
    pipeline = project.pipeline
    with planning_session(context, "penstock check") as spark:
        resources = resources_by_stage(pipeline.stages, pipeline.resources, {})
        checked = check_pipeline(spark, pipeline, resources)
        run = context.config.run
        cut_pipeline(pipeline, checked, {}, small=run.whole_bytes, as_one=run.small_bytes)
    context.output.show(Checked(pipeline, project.source, checked.unchecked))
