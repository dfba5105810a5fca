"""Random pipelines of PySpark: transforms that write keys, drop rows, create tables and use resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

import penstock as ps
from penstock.batch.pipeline.stages import bind
from tests.batch.pipeline.random_phases import Scene
from tests.batch.pipeline.random_transforms import (
    DERIVED,
    FIELDS,
    INPUTS,
    a_key,
    a_table,
    a_target,
    new_table,
    some_keys,
)

salt = ps.Resource("salt", lambda: 3)
pepper = ps.Resource("pepper")
JOINS = ("inner", "left", "right", "full", "semi", "anti")


@ps.transform(reads=salt, writes=pepper)
def season(salt: int) -> int:
    return salt + 2


def small(column: Column) -> Column:
    return F.pmod(F.coalesce(column, F.lit(1)), F.lit(5))


def write(scene: Scene) -> None:
    table, there = a_table(scene)
    reads, into = some_keys(scene, there), a_target(scene, table)

    def function(rows: DataFrame) -> DataFrame:
        return rows.withColumn(into, small(F.col(reads[0]) * 3 + 1))

    scene.add(function, [table], scene.fields(table, reads), scene.fields(table, [into]), None)


def season_rows(scene: Scene) -> None:
    table, there = a_table(scene)
    reads, into = some_keys(scene, there), a_target(scene, table)

    def function(rows: DataFrame, salt: int, pepper: int) -> DataFrame:
        return rows.withColumn(into, small(F.col(reads[0]) * salt + pepper))

    fields = [*scene.fields(table, reads), salt, pepper]
    scene.add(function, [table, "salt", "pepper"], fields, scene.fields(table, [into]), None)


def write_in_arrow(scene: Scene) -> None:
    table, there = a_table(scene)
    read, into = there[0], a_target(scene, table)

    def function(rows: pa.RecordBatch) -> pa.RecordBatch:
        made = pc.bit_wise_xor(pc.fill_null(rows[read], 2), 1)
        return pa.RecordBatch.from_arrays([made], names=[into])

    def plain(rows: DataFrame) -> DataFrame:
        return rows.withColumn(into, F.coalesce(F.col(read), F.lit(2)).bitwiseXOR(F.lit(1)))

    scene.add(function, [table], scene.fields(table, [read]), scene.fields(table, [into]), None, plain)


def drop(scene: Scene) -> None:
    table, there = a_table(scene)
    reads = some_keys(scene, there)

    def function(rows: DataFrame) -> DataFrame:
        return rows.where(small(F.col(reads[0])) != 3)

    scene.add(function, [table], scene.fields(table, reads), [], None, drops=scene.tables[table])


def drop_by_group(scene: Scene) -> None:
    table, there = a_table(scene)
    keys = some_keys(scene, there)

    def function(rows: DataFrame) -> DataFrame:
        counted = rows.withColumn("_rows", F.count("*").over(Window.partitionBy(*keys)))
        return counted.where("_rows % 3 > 0").drop("_rows")

    scene.add(function, [table], scene.fields(table, keys), [], None, drops=scene.tables[table])


def copy(scene: Scene) -> None:
    table, there = a_table(scene)
    reads = scene.rng.sample(there, min(len(there), 3))
    into = new_table(scene, [*(f"f{n}" for n in range(len(reads))), "z"])

    def function(rows: DataFrame) -> DataFrame:
        made = [F.col(read).alias(f"f{n}") for n, read in enumerate(reads)]
        return rows.select(*made, small(F.col(reads[0]) + 1).alias("z"))

    scene.add(function, [table], scene.fields(table, reads), into, None)


def window(scene: Scene) -> None:
    table, there = a_table(scene)
    keys, value, into = some_keys(scene, there), scene.rng.choice(there), a_target(scene, table)

    def function(rows: DataFrame) -> DataFrame:
        return rows.withColumn(into, small(F.sum(value).over(Window.partitionBy(*keys))))

    by = scene.fields(table, keys[:1]) if scene.rng.random() < 0.3 else None
    reads = scene.fields(table, sorted({*keys, value}))
    scene.add(function, [table], reads, scene.fields(table, [into]), None, by=by)


def group(scene: Scene) -> None:
    table, there = a_table(scene)
    keys, value = some_keys(scene, there), scene.rng.choice(there)
    into = new_table(scene, [*(f"g{n}" for n in range(len(keys))), "m"])

    def function(rows: DataFrame) -> DataFrame:
        by = [F.col(key).alias(f"g{n}") for n, key in enumerate(keys)]
        return rows.groupBy(*by).agg(small(F.sum(value)).alias("m"))

    scene.add(function, [table], scene.fields(table, sorted({*keys, value})), into, None)


def _two(scene: Scene) -> tuple[str, str]:
    one, _ = a_table(scene)
    return one, scene.rng.choice([t for t in (*INPUTS, *scene.tables) if t != one])


def join(scene: Scene) -> None:
    left, right = _two(scene)
    one, other, how = a_key(scene, left), a_key(scene, right), scene.rng.choice(JOINS)
    into = new_table(scene, ["p"] if how in ("semi", "anti") else ["p", "q"])

    def function(rows: DataFrame, others: DataFrame) -> DataFrame:
        distinct = others.select(F.col(other).alias("q")).distinct()
        return rows.select(F.col(one).alias("p")).join(distinct, F.expr("p = q"), how)

    fields = scene.fields(left, [one]) + scene.fields(right, [other])
    scene.add(function, [left, right], fields, into, None)


def look_up(scene: Scene) -> None:
    table, other = _two(scene)
    key, its, value = a_key(scene, table), a_key(scene, other), scene.rng.choice(scene.there[other])
    into = a_target(scene, table)

    def function(rows: DataFrame, others: DataFrame) -> DataFrame:
        sums = others.groupBy(F.col(its).alias("_its")).agg(small(F.sum(value)).alias("_sum"))
        found = rows.join(sums, F.col(key) == F.col("_its"), "left")
        return found.withColumn(into, F.col("_sum")).drop("_its", "_sum")

    fields = scene.fields(table, [key]) + scene.fields(other, sorted({its, value}))
    scene.add(function, [table, other], fields, scene.fields(table, [into]), None)


def compare_all(scene: Scene) -> None:
    table, there = a_table(scene)
    value, into = scene.rng.choice(there), a_target(scene, table)

    def function(rows: DataFrame) -> DataFrame:
        return rows.withColumn(into, small(F.max(value).over(Window.partitionBy())))

    scene.add(function, [table], scene.fields(table, [value]), scene.fields(table, [into]), None)


KINDS: list[tuple[Callable[[Scene], None], int]] = [
    (write, 3),
    (season_rows, 1),
    (write_in_arrow, 1),
    (drop, 2),
    (drop_by_group, 1),
    (copy, 2),
    (window, 4),
    (group, 3),
    (join, 3),
    (look_up, 3),
    (compare_all, 1),
]


def make_frames(scene: Scene, steps: int) -> None:
    for name in INPUTS:
        scene.table(name, FIELDS, DERIVED)
    for _ in range(steps):
        scene.rng.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0](scene)


def in_order(scene: Scene, inputs: Mapping[str, DataFrame], outputs: Sequence[str]) -> DataFrame:
    """What plain Spark makes of the transforms as they are declared, as texts with the table's name."""
    tables = dict(inputs)
    bound, _ = bind([s.transform for s in scene.steps], [scene.tables[t] for t in inputs])
    values: dict[str, Any] = {"salt": 3, "pepper": 5}
    for each, step in zip(bound, scene.steps, strict=True):
        given: dict[str, Any] = {t: tables[t] for t in each.tables}
        given |= {r.name: values[r.name] for r in each.reads_resources}
        made = step.plain(*given.values()) if step.plain else each.transform.function(**given)
        tables[next(iter(each.changes))] = made
    shown = [as_texts(tables[t], scene.there[t]).select(F.lit(t).alias("table"), "row") for t in outputs]
    first, *others = shown
    for other in others:
        first = first.unionAll(other)
    return first


def as_texts(frame: DataFrame, fields: Sequence[str]) -> DataFrame:
    return frame.select(F.to_json(F.array(*(F.col(f).cast("string") for f in fields))).alias("row"))
