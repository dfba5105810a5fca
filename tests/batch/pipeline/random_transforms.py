"""Transforms for `random_phases`: over one table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import penstock as ps
from penstock.spark.plans.plan_tree import PlanNode
from tests.batch.pipeline.random_phases import Plan, Rows, Scene

INPUTS = ("a", "b", "c")
FIELDS = ("k", "j", "v")
DERIVED = ("w", "u")


def total(values: Sequence[Any]) -> int:
    return int(sum(v for v in values if v is not None)) % 7


def groups(rows: Rows, keys: Sequence[str]) -> dict[tuple[Any, ...], Rows]:
    found: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def a_table(scene: Scene) -> tuple[str, list[str]]:
    """A table, most often the one that was made last or the first input: steps have to meet."""
    names = list(scene.tables)
    name = scene.rng.choice([names[0], names[-1], scene.rng.choice(names)])
    return name, scene.there[name]


def a_key(scene: Scene, table: str) -> str:
    there = scene.there[table]
    return scene.rng.choice([there[0], scene.rng.choice(there)])


def some_keys(scene: Scene, names: Sequence[str]) -> list[str]:
    first = [names[0]] if scene.rng.random() < 0.5 else []
    more = scene.rng.sample(list(names), min(len(names), scene.rng.choice([1, 1, 1, 2])))
    return first or more


def a_target(scene: Scene, table: str) -> str:
    fields = list(scene.tables[table].__fields__)
    made = scene.rng.choice([fields[0], *fields])
    if made not in scene.there[table]:
        scene.there[table].append(made)
    return made


def new_table(scene: Scene, fields: Sequence[str]) -> type[ps.Table]:
    return scene.table(f"n{len(scene.steps)}", fields)


def changed(
    scene: Scene, table: str, reads: Sequence[str], write: str, child: PlanNode, ids: Any
) -> dict[str, Plan]:
    columns = {name: ids[name] for name in reads if name != write} | {write: None}
    return {table: scene.project(child, columns)}


def narrow_write(scene: Scene) -> None:
    table, there = a_table(scene)
    reads = some_keys(scene, there)
    write = a_target(scene, table)
    salt = scene.rng.randint(1, 5)

    def function(rows: Rows) -> Rows:
        return [{**row, write: total([row[r] for r in reads] + [salt])} for row in rows]

    def plans() -> dict[str, Plan]:
        return changed(scene, table, reads, write, *scene.leaf(table, reads))

    scene.add(function, [table], scene.fields(table, reads), scene.fields(table, [write]), plans)


def narrow_drop(scene: Scene) -> None:
    table, there = a_table(scene)
    reads = some_keys(scene, there)

    def function(rows: Rows) -> Rows:
        return [row for row in rows if total([row[r] for r in reads]) != 3]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, reads)
        return {table: scene.project(leaf, ids)}

    scene.add(function, [table], scene.fields(table, reads), [], plans, drops=scene.tables[table])


def narrow_create(scene: Scene) -> None:
    table, there = a_table(scene)
    reads = scene.rng.sample(there, min(len(there), 3))
    names = {f"f{n}": read for n, read in enumerate(reads)}
    into = new_table(scene, [*names, "z"])

    def function(rows: Rows) -> Rows:
        return [{**{f: row[r] for f, r in names.items()}, "z": total(list(row.values()))} for row in rows]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, reads)
        columns: dict[str, int | None] = {f: ids[r] for f, r in names.items()}
        return {into.__table_name__: scene.project(leaf, {**columns, "z": None})}

    scene.add(function, [table], scene.fields(table, reads), into, plans)


def window_write(scene: Scene) -> None:
    table, there = a_table(scene)
    keys = some_keys(scene, there)
    value = scene.rng.choice(there)
    write = a_target(scene, table)
    reads = sorted({*keys, value})

    def function(rows: Rows) -> Rows:
        sums = {key: total([r[value] for r in some]) for key, some in groups(rows, keys).items()}
        return [{**row, write: sums[tuple(row[k] for k in keys)]} for row in rows]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, reads)
        return changed(scene, table, reads, write, scene.keyed(leaf, *(ids[k] for k in keys)), ids)

    by = scene.fields(table, keys[:1]) if scene.rng.random() < 0.3 else None
    readable = plans if by is None or scene.rng.random() < 0.5 else None
    scene.add(function, [table], scene.fields(table, reads), scene.fields(table, [write]), readable, by=by)


def keyed_drop(scene: Scene) -> None:
    table, there = a_table(scene)
    keys = some_keys(scene, there)

    def function(rows: Rows) -> Rows:
        kept = {key for key, some in groups(rows, keys).items() if len(some) % 3}
        return [row for row in rows if tuple(row[k] for k in keys) in kept]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, keys)
        return {table: scene.project(scene.keyed(leaf, *ids.values()), ids)}

    scene.add(function, [table], scene.fields(table, keys), [], plans, drops=scene.tables[table])


def group_create(scene: Scene) -> None:
    table, there = a_table(scene)
    keys, value = some_keys(scene, there), scene.rng.choice(there)
    names = {f"g{n}": key for n, key in enumerate(keys)}
    into = new_table(scene, [*names, "m"])
    reads = sorted({*keys, value})

    def function(rows: Rows) -> Rows:
        return [
            {**dict(zip(names, key, strict=True)), "m": total([r[value] for r in some])}
            for key, some in groups(rows, keys).items()
        ]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, reads)
        node = scene.keyed(leaf, *(ids[k] for k in keys))
        columns: dict[str, int | None] = {f: ids[k] for f, k in names.items()}
        return {into.__table_name__: scene.project(node, {**columns, "m": None})}

    scene.add(function, [table], scene.fields(table, reads), into, plans)


def everything_write(scene: Scene) -> None:
    table, there = a_table(scene)
    value, write = scene.rng.choice(there), a_target(scene, table)

    def function(rows: Rows) -> Rows:
        return [{**row, write: total([r[value] for r in rows])} for row in rows]

    scene.add(
        function,
        [table],
        scene.fields(table, [value]),
        scene.fields(table, [write]),
        partial(_everything, scene, table, table, [value], {value, write}),
    )


def everything_create(scene: Scene) -> None:
    table, there = a_table(scene)
    value = scene.rng.choice(there)
    into = new_table(scene, ["all"])

    def function(rows: Rows) -> Rows:
        return [{"all": total([row[value] for row in rows])}]

    made = partial(_everything, scene, table, into.__table_name__, [value], {"all"})
    scene.add(function, [table], scene.fields(table, [value]), into, made)


def _everything(
    scene: Scene, table: str, into: str, reads: Sequence[str], columns: set[str]
) -> dict[str, Plan]:
    leaf, _ = scene.leaf(table, reads)
    node = PlanNode("everything", "limit", (leaf,), why="limit looks at all rows")
    return {into: scene.project(node, dict.fromkeys(sorted(columns)))}
