"""Random pipelines over rows that are dictionaries, and what a run does with their phases, without Spark.

A transform here has a function over lists of rows and the plan that Spark would show for it. So thousands of
pipelines can be cut into phases, run in parts, and compared with the transforms one after the other.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import penstock as ps
from penstock.batch.pipeline.check import CheckedTransform, ResultPlan
from penstock.batch.pipeline.needs import need_of
from penstock.batch.pipeline.partitioning import Need
from penstock.batch.pipeline.phase_planner import Carried, derive_phases
from penstock.batch.pipeline.phases import AsOne, ByKeys, ByRows, Phase, Phases
from penstock.batch.pipeline.stages import Bound, bind
from penstock.spark.plans.plan_tree import JoinKind, PlanNode
from penstock.types.tables import TableMeta

Row = dict[str, Any]
Rows = list[Row]
Plan = tuple[PlanNode, tuple[str, ...]]
PARTS = 3


@dataclass(slots=True)
class Step:
    """A transform, and the plan of each table that it returns."""

    transform: Any
    plans: Callable[[], dict[str, Plan]] | None
    """None for one whose plan cannot be had: it says ``by``."""
    plain: Callable[..., Any] | None = None
    """What it does with frames, where its own function takes Arrow batches."""


@dataclass(slots=True)
class Scene:
    """A pipeline that is being made up: its tables, and which of their fields are there."""

    rng: random.Random
    tables: dict[str, type[ps.Table]] = field(default_factory=dict)
    there: dict[str, list[str]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    _ids: Any = field(default_factory=count)

    def table(self, name: str, fields: Sequence[str], derived: Sequence[str] = ()) -> type[ps.Table]:
        made = _table(name, [*fields, *derived], derived)
        self.tables[name], self.there[name] = made, list(fields)
        return made

    def output(self, name: str) -> type[ps.Table]:
        """The table with the fields that are there in the end."""
        return _table(name, self.there[name])

    def add(
        self,
        function: Callable[..., Any],
        tables: Sequence[str],
        reads: Sequence[Any],
        writes: Any,
        plans: Callable[[], dict[str, Plan]] | None,
        plain: Callable[..., Any] | None = None,
        **more: Any,
    ) -> None:
        name = f"t{len(self.steps)}"
        code = f"def {name}({', '.join(tables)}): return function({', '.join(tables)})"
        known: dict[str, Any] = {"function": function}
        exec(code, known)
        declare = ps.arrow_transform if plain else ps.transform
        made = declare(reads=reads, writes=writes, name=name, **more)(known[name])
        self.steps.append(Step(made, plans, plain))

    def fields(self, table: str, names: Sequence[str]) -> list[Any]:
        return [getattr(self.tables[table], name) for name in names]

    # Plans.

    def leaf(self, table: str, names: Sequence[str]) -> tuple[PlanNode, dict[str, int]]:
        ids = {name: next(self._ids) for name in names}
        fields = {i: name for name, i in ids.items()}
        return PlanNode(
            "table",
            "table",
            output=tuple(fields),
            table=table,
            fields=fields,
            types=dict.fromkeys(fields, "int"),
        ), ids

    def project(self, child: PlanNode, columns: Mapping[str, int | None]) -> Plan:
        """Columns that have the value of a column of the child, or (None) a new one."""
        made = {name: next(self._ids) for name in columns}
        same = {made[name]: i for name, i in columns.items() if i is not None}
        node = PlanNode("narrow", "Project", (child,), output=tuple(made.values()), same=same)
        return node, tuple(columns)

    def keyed(self, child: PlanNode, *keys: int) -> PlanNode:
        same = {i: i for i in child.output}
        return PlanNode("keyed", "groupBy", (child,), output=child.output, same=same, keys=keys)

    def join(self, left: PlanNode, right: PlanNode, kind: JoinKind, *pairs: tuple[int, int]) -> PlanNode:
        output = left.output if kind in ("left_semi", "left_anti") else (*left.output, *right.output)
        return PlanNode(
            "join", "join", (left, right), output=output, same={i: i for i in output}, pairs=pairs, join=kind
        )


def _table(name: str, fields: Sequence[str], derived: Sequence[str] = ()) -> type[ps.Table]:
    body: dict[str, Any] = {field: ps.derived() for field in derived}
    body |= {"__annotations__": dict.fromkeys(fields, int | None), "__qualname__": name}
    return cast("type[ps.Table]", TableMeta(name.title(), (ps.Table,), body))


def decide(steps: Mapping[str, Step]) -> Callable[[Bound, frozenset[str]], tuple[Need, Carried]]:
    def decided(bound: Bound, whole: frozenset[str]) -> tuple[Need, Carried]:
        plans = steps[bound.name].plans
        if plans is None:
            return need_of(bound, CheckedTransform("it looks at rows while it is planned"), whole)
        found = {table: ResultPlan(node, names) for table, (node, names) in plans().items()}
        return need_of(bound, CheckedTransform(plans=found), whole)

    return decided


def in_order(scene: Scene, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
    """What the transforms give one after the other, over all rows."""
    tables = dict(inputs)
    bound, _ = bind([s.transform for s in scene.steps], [scene.tables[t] for t in inputs])
    for each in bound:
        tables |= _applied(each, tables)
    return tables


def _applied(bound: Bound, tables: Mapping[str, Rows]) -> dict[str, Rows]:
    given = {
        t: tables[t]
        if t in bound.changes
        else [{name: row[name] for name in bound.declared(t)} for row in tables[t]]
        for t in bound.tables
    }
    made = bound.transform.function(**given)
    return made if isinstance(made, dict) else {next(iter(bound.changes)): made}


def planned(scene: Scene, inputs: Sequence[str], outputs: Sequence[str], small: frozenset[str]) -> Phases:
    bound, _ = bind([s.transform for s in scene.steps], [scene.tables[t] for t in inputs])
    steps = {s.transform.name: s for s in scene.steps}
    return derive_phases(
        bound,
        [scene.tables[t] for t in inputs],
        [scene.output(t) for t in outputs],
        decide(steps),
        small,
        orders={},
    )


def in_phases(phases: Phases, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
    """What a run publishes: phase after phase, each partition by itself."""
    left: dict[tuple[int, str, tuple[str, ...]], Rows] = {}
    published: dict[str, Rows] = {}
    for phase in phases:
        for part in range(1 if isinstance(phase.partitioning, AsOne) else PARTS):
            tables = _entered(phase, part, inputs, left)
            for stage in phase.stages:
                tables = _pruned(phases, phase, tables, stage.index)
                for bound in stage.transforms:
                    tables |= _applied(bound, tables)
            tables = _pruned(phases, phase, tables, phase.end)
            for name in phase.outputs:
                published.setdefault(name, []).extend(tables[name])
            for each in phase.leaving:
                rows = [{f: row[f] for f in each.fields} for row in tables[each.table]]
                left.setdefault((phase.index, each.table, each.keys), []).extend(rows)
    return published


def _entered(
    phase: Phase, part: int, inputs: Mapping[str, Rows], left: Mapping[tuple[int, str, tuple[str, ...]], Rows]
) -> dict[str, Rows]:
    tables = {name: inputs[name] for name in phase.whole}
    for name, origin in phase.entering.items():
        if origin is not None:
            rows = left.get((origin, name, phase.keys(name)), [])
            if isinstance(phase.partitioning, ByKeys):
                rows = [r for r in rows if bucket([r[c] for c in phase.keys(name)]) == part]
            tables[name] = rows
        elif phase.partitioning == ByRows(name):
            tables[name] = inputs[name][part::PARTS]
        else:
            assert isinstance(phase.partitioning, AsOne)
            tables[name] = inputs[name]
    return tables


def bucket(key: Sequence[Any]) -> int:
    return zlib.crc32(repr(key).encode()) // 7 % PARTS


def _pruned(phases: Phases, phase: Phase, tables: Mapping[str, Rows], done: int) -> dict[str, Rows]:
    return {
        name: [{f: v for f, v in row.items() if f in fields} for row in tables[name]]
        for name, fields in phases.live(phase, done).items()
    }
