"""``by``: it confirms what a plan shows, says what no plan shows, and is refused where it is wrong."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from penstock.batch.pipeline.phases import ByKeys
from penstock.errors import DefinitionError, UndeclaredRead
from tests.batch.exchange.both import Both, cuts_of, phases_of, quick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class A(ps.Table):
    id: int
    k: int | None
    s: str | None
    n: int
    m: int = ps.derived()


class B(ps.Table):
    id: int
    k: int | None
    j: str | None


class Made(ps.Table):
    k: int | None
    rows: int


class Pairs(ps.Table):
    id: int
    j: str | None


def cut(spark: SparkSession, *transforms: Any, outputs: Any = Made) -> str:
    pipeline = ps.Pipeline("by", inputs=[A, B], outputs=outputs, transforms=transforms)
    return cuts_of(phases_of(spark, pipeline))[transforms[-1].name]


def grouped(by: Any, needs_rows: bool = False) -> Any:
    @ps.transform(reads=[A.k, A.s], writes=Made, by=by)
    def group(a: DataFrame) -> DataFrame:
        if needs_rows:
            a.toArrow()
        return a.groupBy("k", "s").agg(F.count("*").alias("rows")).select("k", "rows")

    return group


def joined(by: Any) -> Any:
    @ps.transform(reads=[A.id, A.k, B.k, B.j], writes=Pairs, by=by)
    def join(a: DataFrame, b: DataFrame) -> DataFrame:
        return a.join(b, "k", "left").select("id", "j")

    return join


@pytest.mark.parametrize("needs_rows", [False, True])
@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ([A.k], "keys"),
        (A.s, "keys"),
        ([A.k, A.s], "keys"),
        ({A: A.k}, "keys"),
        ({A: [A.k, A.s]}, "keys"),
        (ps.everything, "everything"),
        (ps.partition, "rows"),
    ],
)
def test_a_key_that_is_right_is_taken(spark: SparkSession, by: Any, expected: str, needs_rows: bool) -> None:
    assert cut(spark, grouped(by, needs_rows)) == expected


def test_a_key_of_two_tables(spark: SparkSession) -> None:
    assert cut(spark, joined({A: A.k, B: B.k}), outputs=Pairs) == "keys"
    assert cut(spark, joined([A.k, B.k]), outputs=Pairs) == "keys"
    # Nothing is said about the other one.
    assert cut(spark, joined([A.k]), outputs=Pairs) == "everything"


def test_a_table_that_by_names_is_cut_even_if_it_is_small(spark: SparkSession) -> None:
    """Nobody knows what a function that needs rows does with those that have no match."""

    @ps.transform(reads=[A.k, B.k], writes=Made, by={A: A.k, B: B.k})
    def count(a: DataFrame, b: DataFrame) -> DataFrame:
        a.toArrow()
        return b.join(a, "k", "left").groupBy("k").agg(F.count("*").alias("rows"))

    pipeline = ps.Pipeline("by-small", inputs=[A, B], outputs=Made, transforms=[count])
    for small in ([], ["b"], ["a", "b"]):
        (phase,) = [p for p in phases_of(spark, pipeline, small) if p.stages]
        assert phase.partitioning == ByKeys({"a": ("k",), "b": ("k",)})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: grouped([A.k, A.n]), "has a.n in by, and does not declare to read it"),
        (lambda: grouped([B.k]), "has b.k in by, but is not given b"),
        (lambda: grouped([A.m]), "has a.m in by, and does not declare to read it"),
        (lambda: joined({A: A.k, B: B.j}), "has a key of different types"),
        (lambda: joined({A: [A.k, A.id], B: B.k}), r"has by=.*"),
    ],
)
def test_a_key_that_cannot_be_is_refused_where_it_is_written(made: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as raised:
        ps.Pipeline("by-error", inputs=[A, B], outputs=[Made], transforms=[made()])
    assert f"{Path(__file__).name}:" in raised.value.what


def test_a_key_that_contradicts_the_plan_is_refused_where_it_is_written(spark: SparkSession) -> None:
    @ps.transform(reads=[A.k, A.s], writes=Made, by=A.s)
    def group(a: DataFrame) -> DataFrame:
        return a.groupBy("k").agg(F.count("s").alias("rows"))

    with pytest.raises(DefinitionError, match=r"a cut by a\.s takes rows apart .* cut by a\.k") as raised:
        cut(spark, group)
    assert f"{Path(__file__).name}:" in raised.value.what

    @ps.transform(reads=A.k, writes=Made, by=A.k)
    def limit(a: DataFrame) -> DataFrame:
        return a.limit(3).groupBy("k").agg(F.count("*").alias("rows"))

    with pytest.raises(DefinitionError, match=r"has by=a\.k, but limit looks at all rows"):
        cut(spark, limit)


def test_where_no_plan_can_be_had_a_key_is_asked_for(spark: SparkSession) -> None:
    with pytest.raises(DefinitionError, match="cannot be planned beforehand: it looks at rows") as raised:
        cut(spark, grouped(None, needs_rows=True))
    assert f"{Path(__file__).name}:" in raised.value.what
    assert raised.value.hint is not None and "by=" in raised.value.hint


def test_rows_are_compared_by_declared_fields(spark: SparkSession) -> None:
    @ps.transform(reads=A.k, drops=A)
    def some(a: DataFrame) -> DataFrame:
        return a.dropDuplicates()

    @ps.transform(reads=A, drops=A)
    def every(a: DataFrame) -> DataFrame:
        return a.dropDuplicates()

    class Left(ps.Table, name="a"):
        id: int

    with pytest.raises(UndeclaredRead, match="compares all fields of a in dropDuplicates"):
        cut(spark, some, outputs=Left)
    assert cut(spark, every, outputs=Left) == "keys"


def test_partial_and_collected_results(spark: SparkSession, tmp_path: Path) -> None:
    """A function that needs rows is given all of a key, and with ``partition`` those of a partition."""

    class Collected(ps.Table):
        k: int | None
        rows: int

    @ps.transform(reads=A.k, writes=Collected, by=A.k)
    def collect(a: DataFrame) -> DataFrame:
        found = Counter(row.k for row in a.collect())
        return a.sparkSession.createDataFrame(list(found.items()), "k bigint, rows bigint")

    @ps.transform(reads=[A.k], writes=Made, by=ps.partition)
    def partial(a: DataFrame) -> DataFrame:
        return a.groupBy("k").agg(F.count("*").alias("rows"))

    keys = [None if n % 7 == 0 else n % 5 for n in range(40)]
    rows = pa.table({"id": range(40), "k": keys, "s": ["x"] * 40, "n": range(40)}, schema=A.input_schema())
    both = Both(spark, tmp_path, random.Random(1), {"a": rows})
    pipeline = ps.Pipeline("collected", inputs=A, outputs=[Collected, Made], transforms=[collect, partial])
    with quick(spark):
        found = both.phased(pipeline)
    expected = Counter(keys)
    assert dict(zip(*found["collected"].to_pydict().values(), strict=True)) == expected
    assert len(found["collected"]) == len(expected)
    assert len(found["made"]) > len(expected)
    assert sum(found["made"]["rows"].to_pylist()) == 40
