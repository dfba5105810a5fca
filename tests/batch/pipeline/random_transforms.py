"""Transforms for `random_phases`: of each kind that a plan can need, over any tables that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import penstock as ps
from penstock.spark.plan_tree import JoinKind, PlanNode
from tests.batch.pipeline.random_phases import Plan, Row, Rows, Scene

INPUTS = ("a", "b", "c")
FIELDS = ("k", "j", "v")
DERIVED = ("w", "u")
JOINS: tuple[JoinKind, ...] = ("inner", "left_outer", "full_outer", "left_semi", "left_anti")


def total(values: Sequence[Any]) -> int:
    return int(sum(v for v in values if v is not None)) % 7


def groups(rows: Rows, keys: Sequence[str]) -> dict[tuple[Any, ...], Rows]:
    found: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def make_scene(scene: Scene, steps: int) -> None:
    for name in INPUTS:
        scene.table(name, FIELDS, DERIVED)
    kinds = [kind for kind, weight in KINDS for _ in range(weight)]
    for _ in range(steps):
        scene.rng.choice(kinds)(scene)


def _pick(scene: Scene) -> tuple[str, list[str]]:
    """A table, most often the one that was made last or the first input: steps have to meet."""
    names = list(scene.tables)
    name = scene.rng.choice([names[0], names[-1], scene.rng.choice(names)])
    return name, scene.there[name]


def _key(scene: Scene, table: str) -> str:
    there = scene.there[table]
    return scene.rng.choice([there[0], scene.rng.choice(there)])


def _keys(scene: Scene, names: Sequence[str]) -> list[str]:
    first = [names[0]] if scene.rng.random() < 0.5 else []
    more = scene.rng.sample(list(names), min(len(names), scene.rng.choice([1, 1, 1, 2])))
    return first or more


def _two(scene: Scene) -> tuple[str, str]:
    """Two tables, of which an input that may be small is often one."""
    one, _ = _pick(scene)
    return one, scene.rng.choice([t for t in (*INPUTS, *scene.tables) if t != one])


def _target(scene: Scene, table: str) -> str:
    fields = list(scene.tables[table].__fields__)
    made = scene.rng.choice([fields[0], *fields])
    if made not in scene.there[table]:
        scene.there[table].append(made)
    return made


def _new(scene: Scene, fields: Sequence[str]) -> type[ps.Table]:
    return scene.table(f"n{len(scene.steps)}", fields)


def _changed(
    scene: Scene, table: str, reads: Sequence[str], write: str, child: PlanNode, ids: Any
) -> dict[str, Plan]:
    columns = {name: ids[name] for name in reads if name != write} | {write: None}
    return {table: scene.project(child, columns)}


def narrow_write(scene: Scene) -> None:
    table, there = _pick(scene)
    reads = _keys(scene, there)
    write = _target(scene, table)
    salt = scene.rng.randint(1, 5)

    def function(rows: Rows) -> Rows:
        return [{**row, write: total([row[r] for r in reads] + [salt])} for row in rows]

    def plans() -> dict[str, Plan]:
        return _changed(scene, table, reads, write, *scene.leaf(table, reads))

    scene.add(function, [table], scene.fields(table, reads), scene.fields(table, [write]), plans)


def narrow_drop(scene: Scene) -> None:
    table, there = _pick(scene)
    reads = _keys(scene, there)

    def function(rows: Rows) -> Rows:
        return [row for row in rows if total([row[r] for r in reads]) != 3]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, reads)
        return {table: scene.project(leaf, ids)}

    scene.add(function, [table], scene.fields(table, reads), [], plans, drops=scene.tables[table])


def narrow_create(scene: Scene) -> None:
    table, there = _pick(scene)
    reads = scene.rng.sample(there, min(len(there), 3))
    names = {f"f{n}": read for n, read in enumerate(reads)}
    into = _new(scene, [*names, "z"])

    def function(rows: Rows) -> Rows:
        return [{**{f: row[r] for f, r in names.items()}, "z": total(list(row.values()))} for row in rows]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, reads)
        columns: dict[str, int | None] = {f: ids[r] for f, r in names.items()}
        return {into.__table_name__: scene.project(leaf, {**columns, "z": None})}

    scene.add(function, [table], scene.fields(table, reads), into, plans)


def window_write(scene: Scene) -> None:
    table, there = _pick(scene)
    keys = _keys(scene, there)
    value = scene.rng.choice(there)
    write = _target(scene, table)
    reads = sorted({*keys, value})

    def function(rows: Rows) -> Rows:
        sums = {key: total([r[value] for r in some]) for key, some in groups(rows, keys).items()}
        return [{**row, write: sums[tuple(row[k] for k in keys)]} for row in rows]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, reads)
        return _changed(scene, table, reads, write, scene.keyed(leaf, *(ids[k] for k in keys)), ids)

    by = scene.fields(table, keys[:1]) if scene.rng.random() < 0.3 else None
    readable = plans if by is None or scene.rng.random() < 0.5 else None
    scene.add(function, [table], scene.fields(table, reads), scene.fields(table, [write]), readable, by=by)


def keyed_drop(scene: Scene) -> None:
    table, there = _pick(scene)
    keys = _keys(scene, there)

    def function(rows: Rows) -> Rows:
        kept = {key for key, some in groups(rows, keys).items() if len(some) % 3}
        return [row for row in rows if tuple(row[k] for k in keys) in kept]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, keys)
        return {table: scene.project(scene.keyed(leaf, *ids.values()), ids)}

    scene.add(function, [table], scene.fields(table, keys), [], plans, drops=scene.tables[table])


def group_create(scene: Scene) -> None:
    table, there = _pick(scene)
    keys, value = _keys(scene, there), scene.rng.choice(there)
    names = {f"g{n}": key for n, key in enumerate(keys)}
    into = _new(scene, [*names, "m"])
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


def join_create(scene: Scene) -> None:
    left, right = _two(scene)
    count = scene.rng.choice([1, 1, 2])
    ones, others = ([_key(scene, t) for _ in range(count)] for t in (left, right))
    kind = scene.rng.choice(JOINS)
    one_side = kind in ("left_semi", "left_anti")
    into = _new(scene, ["p", "l"] if one_side else ["p", "q", "l", "r"])
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
    table, other = _two(scene)
    key, its = _key(scene, table), _key(scene, other)
    value = scene.rng.choice(scene.there[other])
    write = _target(scene, table)

    def function(rows: Rows, others: Rows) -> Rows:
        sums = {k[0]: total([r[value] for r in some]) for k, some in groups(others, [its]).items()}
        return [{**row, write: None if row[key] is None else sums.get(row[key])} for row in rows]

    def plans() -> dict[str, Plan]:
        left, first = scene.leaf(table, [key])
        right, second = scene.leaf(other, sorted({its, value}))
        node = scene.join(left, scene.keyed(right, second[its]), "left_outer", (first[key], second[its]))
        return _changed(scene, table, [key], write, node, first)

    fields = scene.fields(table, [key]) + scene.fields(other, sorted({its, value}))
    by = None
    if scene.rng.random() < 0.3:
        one, two = scene.fields(table, [key])[0], scene.fields(other, [its])[0]
        by = {scene.tables[table]: one, scene.tables[other]: two}
    readable = plans if by is None or scene.rng.random() < 0.5 else None
    scene.add(function, [table, other], fields, scene.fields(table, [write]), readable, by=by)


def look_up_and_group(scene: Scene) -> None:
    """Join a table that may be small, and group by a key of the other one."""
    table, other = _two(scene)
    key, one, its = _key(scene, table), scene.rng.choice(scene.there[table]), _key(scene, other)
    into = _new(scene, ["g", "m"])
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
    left, right = _two(scene)
    sides = [(t, _key(scene, t), scene.rng.choice(scene.there[t])) for t in (left, right)]
    into = _new(scene, ["one", "two", "m"])

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


def everything_write(scene: Scene) -> None:
    table, there = _pick(scene)
    value, write = scene.rng.choice(there), _target(scene, table)

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
    table, there = _pick(scene)
    value = scene.rng.choice(there)
    into = _new(scene, ["all"])

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


def unused(scene: Scene) -> None:
    """Declares to read a table, and does not use it."""
    table, other = _two(scene)
    key, not_used = scene.rng.choice(scene.there[table]), scene.rng.choice(scene.there[other])
    into = _new(scene, ["g", "m"])

    def function(rows: Rows, others: Rows) -> Rows:
        return [{"g": k[0], "m": len(some)} for k, some in groups(rows, [key]).items()]

    def plans() -> dict[str, Plan]:
        leaf, ids = scene.leaf(table, [key])
        return {into.__table_name__: scene.project(scene.keyed(leaf, ids[key]), {"g": ids[key], "m": None})}

    fields = scene.fields(table, [key]) + scene.fields(other, [not_used])
    scene.add(function, [table, other], fields, into, plans)


KINDS: list[tuple[Callable[[Scene], None], int]] = [
    (narrow_write, 5),
    (narrow_drop, 2),
    (narrow_create, 3),
    (window_write, 4),
    (keyed_drop, 1),
    (group_create, 3),
    (join_create, 3),
    (join_write, 3),
    (look_up_and_group, 3),
    (union_create, 2),
    (everything_write, 1),
    (everything_create, 1),
    (unused, 1),
]
