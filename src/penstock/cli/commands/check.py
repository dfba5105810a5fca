"""``penstock check``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.desk import Desk, with_desk
from penstock.cli.output import Block, count

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Checked:
    """A pipeline in which nothing wrong was found."""

    pipeline: Pipeline
    source: str

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": True,
            "pipeline": self.pipeline.name,
            "source": self.source,
            "transforms": [t.name for t in self.pipeline.transforms],
            "stages": [s.names for s in self.pipeline.stages],
        }

    def blocks(self) -> list[Block]:
        transforms, stages = len(self.pipeline.transforms), len(self.pipeline.stages)
        return [
            f"ok: pipeline {self.pipeline.name}, {count(transforms, 'transform')} in {count(stages, 'stage')}"
        ]


@click.command()
@click.argument("source", metavar="FILE[:NAME]")
@with_desk
def command(desk: Desk, source: str) -> None:
    """Check a pipeline without any data.

    Its tables and declarations are checked, and with Spark's help what its transforms really touch.
    """
    from penstock.project import load
    from penstock.spark import session

    project = load(source)
    spark = session.start(replace(desk.config.spark, fast_start=True), app_name="penstock check")
    try:
        project.pipeline.check(spark)
    finally:
        spark.stop()
    desk.output.show(Checked(project.pipeline, project.source))
