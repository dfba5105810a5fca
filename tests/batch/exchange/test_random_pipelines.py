"""Runs of random pipelines publish what plain Spark makes of their transforms, one after the other."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock as ps
from tests.batch.exchange.both import Both, quick
from tests.batch.exchange.random_frames import in_order, make_frames, season
from tests.batch.pipeline.random_phases import Scene
from tests.batch.pipeline.random_transforms import FIELDS, INPUTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(scene: Scene, table: str) -> pa.Table:
    rng = scene.rng
    count = rng.choice([0, 25, 50, 50])
    values = {f: [None if rng.random() < 0.1 else rng.randint(0, 6) for _ in range(count)] for f in FIELDS}
    return pa.table(values, schema=scene.tables[table].input_schema())


def compare(spark: SparkSession, path: Path, seed: int) -> None:
    rng = random.Random(seed)
    scene = Scene(rng)
    make_frames(scene, rng.randint(4, 8))
    outputs = rng.sample(list(scene.tables), min(len(scene.tables), rng.randint(1, 3)))
    given = {name: rows(scene, name) for name in INPUTS}
    both = Both(spark, path, rng, given)
    pipeline = ps.Pipeline(
        f"pipeline-{seed}",
        inputs=[scene.tables[name] for name in INPUTS],
        outputs=[scene.output(name) for name in outputs],
        transforms=[season, *(step.transform for step in scene.steps)],
    )
    checkpoint: Any = rng.choice([ps.EveryStage(), ps.EveryNStages(2), None])
    with quick(spark):
        frames = {
            name: spark.createDataFrame(table, scene.tables[name].spark_schema(table.column_names))
            for name, table in given.items()
        }
        expected: dict[str, Counter[str]] = {name: Counter() for name in outputs}
        for row in in_order(scene, frames, outputs).collect():
            expected[row["table"]][row["row"]] += 1
        found = both.phased(pipeline, checkpoint=checkpoint, whole_bytes=rng.choice([0, 0, 1 << 20]))
    for name in outputs:
        columns = [found[name][field].to_pylist() for field in scene.there[name]]
        texts = Counter(_text(values) for values in zip(*columns, strict=True))
        assert texts == expected[name], f"seed {seed}: {name} of {[s.transform for s in scene.steps]}"


def _text(values: tuple[int | None, ...]) -> str:
    return "[" + ",".join("null" if v is None else f'"{v}"' for v in values) + "]"


@pytest.mark.parametrize("seed", range(16))
def test_a_run_publishes_what_spark_makes(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    compare(spark, tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_more_runs(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    compare(spark, tmp_path, seed)
