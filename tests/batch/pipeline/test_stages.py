"""Stages against what their definition says, tried on small random pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.batch.pipeline import Pipeline, Resource, Stage, Transform, transform
from penstock.batch.pipeline.stages import bind, derive, live
from penstock.types.tables import Table, derived


class One(Table):
    a: int
    b: int
    c: int


class Two(Table):
    a: int
    b: int


class Made(Table):
    x: int
    y: int = derived()


resource = Resource("resource", load=int)
other = Resource("other", load=int)
FIELDS: list[Any] = [One.a, One.b, One.c, Two.a, Two.b]


@dataclass(frozen=True)
class Spec:
    """A transform over fields, as the tests see it."""

    reads: frozenset[Any]
    writes: frozenset[Any]
    drops: frozenset[Any]

    def touches(self) -> tuple[set[str], set[str]]:
        """What it reads and what it writes, by the words of the definition: the rows of a table are one
        more field, read by all that touch it and written by those that drop some."""
        tables = {f.table for f in self.reads | self.writes if f is not resource} | {
            t.__table_name__ for t in self.drops
        }
        reads = {str(f) for f in self.reads} | {f"rows of {t}" for t in tables}
        writes = {str(f) for f in self.writes} | {f"rows of {t.__table_name__}" for t in self.drops}
        return reads, writes

    def transform(self, name: str) -> Transform:
        parameters = sorted(
            {f.table for f in self.reads | self.writes if f is not resource}
            | {t.__table_name__ for t in self.drops}
            | {"resource" for f in self.reads if f is resource}
        )
        scope: dict[str, Any] = {}
        exec(f"def {name}({', '.join(parameters)}): ...", scope)
        made: Transform = transform(reads=self.reads, writes=self.writes, drops=self.drops)(scope[name])
        return made


specs = st.builds(
    Spec,
    st.frozensets(st.sampled_from([*FIELDS, resource]), max_size=3),
    st.frozensets(st.sampled_from(FIELDS), max_size=2),
    st.frozensets(st.sampled_from([One, Two]), max_size=1),
).filter(lambda s: bool(s.writes or s.drops))
pipelines = st.lists(specs, max_size=7)


def conflict(one: Spec, two: Spec) -> bool:
    (reads1, writes1), (reads2, writes2) = one.touches(), two.touches()
    return bool(writes1 & (reads2 | writes2) or writes2 & reads1)


def longest_path(chosen: list[Spec], end: int) -> int:
    """The number of conflicts on the longest path that ends at a transform, by trying all paths."""
    return max(
        (longest_path(chosen, i) + 1 for i in range(end) if conflict(chosen[i], chosen[end])), default=0
    )


def stages_of(chosen: list[Spec], names: list[str]) -> tuple[Stage, ...]:
    bound, _ = bind([s.transform(n) for s, n in zip(chosen, names, strict=True)], [One, Two])
    return derive(bound)


def placed(stages: tuple[Stage, ...]) -> dict[str, int]:
    return {name: stage.index for stage in stages for name in stage.names}


@given(pipelines)
@settings(max_examples=300, deadline=None)
def test_a_stage_is_the_longest_path_of_conflicts(chosen: list[Spec]) -> None:
    names = [f"t{n}" for n in range(len(chosen))]
    stages = stages_of(chosen, names)
    assert placed(stages) == {name: longest_path(chosen, n) for n, name in enumerate(names)}
    assert [s.index for s in stages] == list(range(len(stages)))
    for stage in stages:
        inside = [chosen[int(name[1:])] for name in stage.names]
        assert not any(conflict(a, b) for i, a in enumerate(inside) for b in inside[:i])


@given(pipelines, st.data())
@settings(max_examples=200, deadline=None)
def test_the_order_of_what_does_not_conflict_does_not_matter(chosen: list[Spec], data: st.DataObject) -> None:
    names = [f"t{n}" for n in range(len(chosen))]
    before = placed(stages_of(chosen, names))
    order = list(range(len(chosen)))
    for _ in range(data.draw(st.integers(0, 12))):
        free = [i for i, (a, b) in enumerate(pairwise(order)) if not conflict(chosen[a], chosen[b])]
        if not free:
            break
        at = data.draw(st.sampled_from(free))
        order[at], order[at + 1] = order[at + 1], order[at]
    assert placed(stages_of([chosen[i] for i in order], [names[i] for i in order])) == before


@given(pipelines, st.data())
@settings(max_examples=200, deadline=None)
def test_live_fields_are_those_that_a_later_stage_reads_first(
    chosen: list[Spec], data: st.DataObject
) -> None:
    names = [f"t{n}" for n in range(len(chosen))]
    stages = stages_of(chosen, names)
    done = data.draw(st.integers(0, len(stages)))
    outputs = data.draw(st.sampled_from([(One,), (Two,), (One, Two)]))
    got = live(stages[done:], {t.__table_name__: frozenset(t.__fields__) for t in outputs})
    later = [chosen[int(name[1:])] for stage in stages[done:] for name in stage.names]
    for field in FIELDS:
        needed = field.table in {t.__table_name__ for t in outputs}
        for spec in reversed(later):
            needed = field in spec.reads or (needed and field not in spec.writes)
        assert (field.name in got.get(field.table, ())) == needed, (field, later)
    touched = {f.table for s in later for f in (s.reads | s.writes) - {resource}}
    dropped = {t.__table_name__ for s in later for t in s.drops}
    assert set(got) == touched | dropped | {t.__table_name__ for t in outputs}


def test_rows_keep_filters_and_counts_apart() -> None:
    @transform(reads=One.a, drops=One)
    def keep_some(one: Any) -> Any: ...

    @transform(reads=One.b, writes=Made)
    def count(one: Any) -> Any: ...

    @transform(reads=One.b, writes=One.c)
    def compute(one: Any) -> Any: ...

    @transform(reads=Made.x, writes=Made.y)
    def finish(made: Any) -> Any: ...

    pipeline = Pipeline(
        "rows", inputs=[One, Two], outputs=[Made, One], transforms=[compute, keep_some, count, finish]
    )
    assert [s.names for s in pipeline.stages] == [("compute",), ("keep_some",), ("count",), ("finish",)]
    assert repr(pipeline) == "<pipeline rows: 4 transforms in 4 stages>"
    assert pipeline.live(0) == {"one": {"a", "b"}}
    assert pipeline.live(2) == {"one": {"a", "b", "c"}}
    assert pipeline.live(3) == {"one": {"a", "b", "c"}, "made": {"x"}}
    assert pipeline.live(4) == {"one": {"a", "b", "c"}, "made": {"x", "y"}}


def test_resources_conflict_like_fields() -> None:
    @transform(reads=resource, writes=other)
    def prepare(resource: int) -> int: ...  # type: ignore[empty-body]

    @transform(reads=[One.a, other], writes=One.b)
    def use(one: Any, other: int) -> Any: ...

    @transform(reads=[One.a, resource], writes=One.c)
    def independent(one: Any, resource: int) -> Any: ...

    pipeline = Pipeline("resources", inputs=One, outputs=One, transforms=[prepare, use, independent])
    assert [s.names for s in pipeline.stages] == [("prepare", "independent"), ("use",)]
    assert list(pipeline.resources) == ["other", "resource"]


def test_a_table_without_needed_fields_is_still_needed_for_its_rows() -> None:
    @transform(reads=[], writes=One.c)
    def constant(one: Any) -> Any: ...

    class Only(Table, name="one"):
        c: int

    pipeline = Pipeline("rows-only", inputs=One, outputs=Only, transforms=[constant])
    assert pipeline.live(0) == {"one": frozenset()}
    assert pipeline.live(1) == {"one": {"c"}}
