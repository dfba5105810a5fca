"""What keyed phases publish of tables that transforms change: counts, columns, and claims side by side."""

from __future__ import annotations

import random
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import penstock as ps
from tests.batch.exchange.both import Both, cuts_of, phases_of, quick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 60


class A(ps.Table):
    id: int
    k: int | None
    d: Annotated[Decimal, ps.Precision(10, 2)]
    rank: int = ps.derived()


class B(ps.Table):
    d: Annotated[Decimal, ps.Precision(12, 4)]
    name: str


class Wide(ps.Table):
    d: Annotated[Decimal, ps.Precision(12, 4)]
    rows: int


class Named(ps.Table):
    name: str
    rows: int


class Counted(ps.Table):
    k: int | None
    rows: int


KEYS = [None if n % 11 == 0 else n % 7 for n in range(ROWS)]
DECIMALS = [Decimal(n % 9) for n in range(ROWS)]


@ps.transform(reads=[A.id, A.k], writes=A.rank)
def ranked(a: DataFrame) -> DataFrame:
    return a.withColumn("rank", F.row_number().over(Window.partitionBy("k").orderBy("id")))


@ps.transform(reads=A.rank, drops=A)
def first_two(a: DataFrame) -> DataFrame:
    return a.where("rank <= 2")


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path) -> Both:
    a = pa.table({"id": range(ROWS), "k": KEYS, "d": DECIMALS}, schema=A.input_schema())
    b = pa.table({"d": [Decimal(n) for n in range(9)], "name": list("abcdefghi")}, schema=B.input_schema())
    return Both(spark, tmp_path, random.Random(1), {"a": a, "b": b})


@ps.transform(reads=A.id, writes=A.rank)
def careless(a: DataFrame) -> DataFrame:
    """It drops rows, and does not say so."""
    return a.where("id % 2 = 0").withColumn("rank", F.lit(1))


@ps.transform(reads=[A.k, A.rank], writes=Counted)
def counted_by_key(a: DataFrame) -> DataFrame:
    return a.groupBy("k").agg(F.count("rank").alias("rows"))


def test_rows_that_are_lost_before_an_exchange_halt_the_run(spark: SparkSession, both: Both) -> None:
    pipeline = ps.Pipeline("lossy", inputs=[A, B], outputs=Counted, transforms=[careless, counted_by_key])
    with quick(spark), pytest.raises(AssertionError, match="which their declarations do not allow"):
        both.phased(pipeline, checkpoint=ps.Never())


def test_a_table_that_was_exchanged_is_published_with_all_fields(spark: SparkSession, both: Both) -> None:
    pipeline = ps.Pipeline("ranked", inputs=[A, B], outputs=A, transforms=[ranked, first_two])
    assert cuts_of(phases_of(spark, pipeline)) == {"ranked": "keys", "first_two": "keys"}
    with quick(spark):
        found = both.phased(pipeline, checkpoint=ps.EveryStage())["a"].sort_by("id").to_pylist()
    assert Counter(row["k"] for row in found) == dict.fromkeys(KEYS, 2)
    assert all(row["d"] == DECIMALS[row["id"]] and row["k"] == KEYS[row["id"]] for row in found)


@pytest.mark.parametrize("more", [False, True])
def test_rows_that_get_fewer_or_more_in_secret_are_found_in_a_key_range(
    spark: SparkSession, both: Both, more: bool
) -> None:
    @ps.transform(reads=[A.id, A.k], writes=A.rank)
    def wrong(a: DataFrame) -> DataFrame:
        made = a.withColumn("rank", F.count("*").over(Window.partitionBy("k")))
        return made.unionAll(made.where("id = 5")) if more else made.where("id != 5")

    pipeline = ps.Pipeline("secret", inputs=[A, B], outputs=A, transforms=[wrong])
    assert cuts_of(phases_of(spark, pipeline)) == {"wrong": "keys"}
    with quick(spark), pytest.raises(AssertionError, match="which their declarations do not allow"):
        both.phased(pipeline)


def test_a_key_that_gets_wider_is_cut_anew(spark: SparkSession, both: Both) -> None:
    """The same number has other bits with more digits, and would be in another key range."""

    @ps.transform(reads=A.d, writes=Wide)
    def count(a: DataFrame) -> DataFrame:
        return a.groupBy("d").agg(F.count("*").alias("rows"))

    @ps.transform(reads=[Wide, B], writes=Named)
    def name(wide: DataFrame, b: DataFrame) -> DataFrame:
        return wide.join(b, "d").select("name", "rows")

    pipeline = ps.Pipeline("wide", inputs=[A, B], outputs=Named, transforms=[count, name])
    with quick(spark):
        found = both.phased(pipeline)["named"].to_pylist()
    expected = Counter("abcdefghi"[int(each)] for each in DECIMALS)
    assert Counter({row["name"]: row["rows"] for row in found}) == expected


def test_rows_of_which_no_field_is_needed(spark: SparkSession, both: Both) -> None:
    """A table that is only made smaller is exchanged without any field."""

    @ps.transform(drops=A)
    def some(a: DataFrame) -> DataFrame:
        return a.limit(3)

    @ps.transform(reads=B.name, writes=Named)
    def names(b: DataFrame) -> DataFrame:
        return b.groupBy("name").agg(F.count("*").alias("rows"))

    pipeline = ps.Pipeline("unneeded", inputs=[A, B], outputs=Named, transforms=[some, names])
    with quick(spark):
        assert len(both.phased(pipeline)["named"]) == 9


def test_claims_do_not_see_the_views_of_others(spark: SparkSession, both: Both) -> None:
    @ps.transform(reads=A.k, writes=Counted)
    def count(a: DataFrame) -> DataFrame:
        a.createOrReplaceTempView("rows_of_a_claim")
        # Long enough for another claim to put its rows in place of these.
        time.sleep(0.3)
        return a.sparkSession.sql("select k, count(*) rows from rows_of_a_claim group by k")

    pipeline = ps.Pipeline("views", inputs=[A, B], outputs=Counted, transforms=[count])
    with quick(spark):
        found = both.phased(pipeline)["counted"].to_pylist()
    expected: Counter[Any] = Counter(KEYS)
    assert sorted(map(str, found)) == sorted(str({"k": k, "rows": n}) for k, n in expected.items())
