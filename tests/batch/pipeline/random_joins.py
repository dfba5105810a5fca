"""Transforms for `random_phases` over two tables, and pipelines of all kinds of transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.spark.plans.plan_tree import JoinKind, PlanNode
from tests.batch.pipeline import random_transforms as single
from tests.batch.pipeline.random_phases import Plan, Row, Rows, Scene
from tests.batch.pipeline.random_transforms import (
    DERIVED,
    FIELDS,
    INPUTS,
    a_key,
    a_table,
    a_target,
    changed,
    groups,
    new_table,
    total,
)

JOINS: tuple[JoinKind, ...] = ("inner", "left_outer", "full_outer", "left_semi", "left_anti")


def two_tables(scene: Scene) -> tuple[str, str]:
    """Two tables, of which an input that may be small is often one."""
    one, _ = a_table(scene)
    return one, scene.rng.choice([t for t in (*INPUTS, *scene.tables) if t != one])


def join_create(scene: Scene) -> None:
    left, right = two_tables(scene)
    count = scene.rng.choice([1, 1, 2])
    ones, others = ([a_key(scene, t) for _ in range(count)] for t in (left, right))
    kind = scene.rng.choice(JOINS)
    one_side = kind in ("left_semi", "left_anti")
    into = new_table(scene, ["p", "l"] if one_side else ["p", "q", "l", "r"])
    more = [scene.rng.choice(scene.there[t]) for t in (left, right)]
    shown = {"p": (0, ones[0]), "q": (1, others[0]), "l": (0, more[0]), "r": (1, more[1])}
    names = list(into.__fields__)

    def function(lefts: Rows, rights: Rows) -> Rows:
        return [
            {n: None if (row := pair[shown[n][0]]) is None else row[shown[n][1]] for n in names}
            for pair in joined(lefts, rights, ones, others, kind)
        ]

    def plans() -> dict[str, Plan]:
        one, first = scene.leaf(left, sorted({*ones, more[0]}))
        other, second = scene.leaf(right, sorted({*others, more[1]}))
        pairs = [(first[a], second[b]) for a, b in zip(ones, others, strict=True)]
        node = scene.join(one, other, kind, *pairs)
        columns = {n: (first, second)[shown[n][0]][shown[n][1]] for n in names}
        return {into.__table_name__: scene.project(node, columns)}

    fields = scene.fields(left, sorted({*ones, more[0]})) + scene.fields(right, sorted({*others, more[1]}))
    scene.add(function, [left, right], fields, into, plans)


def joined(
    lefts: Rows, rights: Rows, ones: Sequence[str], others: Sequence[str], kind: JoinKind
) -> list[tuple[Row | None, Row | None]]:
    found: list[tuple[Row | None, Row | None]] = []
    met: set[int] = set()
    for row in lefts:
        key = [row[c] for c in ones]
        hits = [] if None in key else [n for n, r in enumerate(rights) if [r[c] for c in others] == key]
        met.update(hits)
        if kind == "left_semi" or kind == "left_anti":
            found += [(row, None)] if bool(hits) is (kind == "left_semi") else []
        elif hits:
            found += [(row, rights[n]) for n in hits]
        elif kind != "inner":
            found.append((row, None))
    if kind == "full_outer":
        found += [(None, row) for n, row in enumerate(rights) if n not in met]
    return found


def join_write(scene: Scene) -> None:
    """Look something up in the groups of another table."""
    table, other = two_tables(scene)
    key, its = a_key(scene, table), a_key(scene, other)
    value = scene.rng.choice(scene.there[other])
    write = a_target(scene, table)

    def function(rows: Rows, others: Rows) -> Rows:
        sums = {k[0]: total([r[value] for r in some]) for k, some in groups(others, [its]).items()}
        return [{**row, write: None if row[key] is None else sums.get(row[key])} for row in rows]

    def plans() -> dict[str, Plan]:
        left, first = scene.leaf(table, [key])
        right, second = scene.leaf(other, sorted({its, value}))
        node = scene.join(left, scene.keyed(right, second[its]), "left_outer", (first[key], second[its]))
        return changed(scene, table, [key], write, node, first)

    fields = scene.fields(table, [key]) + scene.fields(other, sorted({its, value}))
    by = None
    if scene.rng.random() < 0.3:
        one, two = scene.fields(table, [key])[0], scene.fields(other, [its])[0]
        by = {scene.tables[table]: one, scene.tables[other]: two}
    readable = plans if by is None or scene.rng.random() < 0.5 else None
    scene.add(function, [table, other], fields, scene.fields(table, [write]), readable, by=by)


def look_up_and_group(scene: Scene) -> None:
    """Join a table that may be small, and group by a key of the other one."""
    table, other = two_tables(scene)
    key, one, its = a_key(scene, table), scene.rng.choice(scene.there[table]), a_key(scene, other)
    into = new_table(scene, ["g", "m"])
    reads = sorted({key, one})

    def function(rows: Rows, others: Rows) -> Rows:
        pairs = [row for row, _ in joined(rows, others, [one], [its], "inner") if row is not None]
        return [{"g": k[0], "m": len(some)} for k, some in groups(pairs, [key]).items()]

    def plans() -> dict[str, Plan]:
        left, first = scene.leaf(table, reads)
        right, second = scene.leaf(other, [its])
        node = scene.keyed(scene.join(left, right, "inner", (first[one], second[its])), first[key])
        return {into.__table_name__: scene.project(node, {"g": first[key], "m": None})}

    scene.add(function, [table, other], scene.fields(table, reads) + scene.fields(other, [its]), into, plans)


def union_create(scene: Scene) -> None:
    """Groups of two tables under each other, with the key under two names."""
    left, right = two_tables(scene)
    sides = [(t, a_key(scene, t), scene.rng.choice(scene.there[t])) for t in (left, right)]
    into = new_table(scene, ["one", "two", "m"])

    def function(*rows: Rows) -> Rows:
        return [
            {"one": k[0], "two": k[1], "m": len(some)}
            for some_rows, (_, one, two) in zip(rows, sides, strict=True)
            for k, some in groups(some_rows, [one, two]).items()
        ]

    def plans() -> dict[str, Plan]:
        children = []
        for table, one, two in sides:
            leaf, ids = scene.leaf(table, sorted({one, two}))
            node = scene.keyed(leaf, ids[one], ids[two])
            children.append(scene.project(node, {"one": ids[one], "two": ids[two], "m": None})[0])
        node = PlanNode("union", "union", tuple(children), output=children[0].output)
        return {into.__table_name__: (node, ("one", "two", "m"))}

    fields = [f for t, one, two in sides for f in scene.fields(t, sorted({one, two}))]
    scene.add(function, [left, right], fields, into, plans)


def unused(scene: Scene) -> None:
    """Declares to read a table, and does not use it."""
    table, other = two_tables(scene)
    key, not_used = scene.rng.choice(scene.there[table]), scene.rng.choice(scene.there[other])
    into = new_table(scene, ["g", "m"])

    def function(rows: Rows, others: Rows) -> Rows:
        return [{"g": k[0], "m": len(some)} for k, some in groups(rows, [key]).items()]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, [key])
        return {into.__table_name__: scene.project(scene.keyed(leaf, ids[key]), {"g": ids[key], "m": None})}

    fields = scene.fields(table, [key]) + scene.fields(other, [not_used])
    scene.add(function, [table, other], fields, into, plans)


KINDS: list[tuple[Callable[[Scene], None], int]] = [
    (single.narrow_write, 5),
    (single.narrow_drop, 2),
    (single.narrow_create, 3),
    (single.window_write, 4),
    (single.keyed_drop, 1),
    (single.group_create, 3),
    (join_create, 3),
    (join_write, 3),
    (look_up_and_group, 3),
    (union_create, 2),
    (single.everything_write, 1),
    (single.everything_create, 1),
    (unused, 1),
]


def make_scene(scene: Scene, steps: int) -> None:
    for name in INPUTS:
        scene.table(name, FIELDS, DERIVED)
    kinds = [kind for kind, weight in KINDS for _ in range(weight)]
    for _ in range(steps):
        scene.rng.choice(kinds)(scene)
