"""PySpark in which a cut by the wrong key, or by the bytes of a key, would change the result.

Each trap has the cut that its plan must lead to: ``rows``, ``keys`` or ``everything``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

Trap = tuple[str, Callable[..., DataFrame]]
TRAPS: dict[str, Trap] = {}
COLLATIONS = ("UTF8_LCASE", "UNICODE", "UNICODE_CI", "UNICODE_AI", "UTF8_BINARY_RTRIM")
COUNTED = "k bigint, rows bigint"


def same_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def count_rows(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
    return pa.table({"k": pa.array([key[0].as_py()], pa.int64()), "rows": pa.array([len(rows)], pa.int64())})


def count_in_pandas(key: tuple[Any, ...], rows: Any) -> Any:
    import pandas as pd

    return pd.DataFrame({"k": [key[0]], "rows": [len(rows)]}).astype({"k": "Int64"})


def count_both(key: tuple[pa.Scalar, ...], left: pa.Table, right: pa.Table) -> pa.Table:
    rows = pa.array([1000 * len(left) + len(right)], pa.int64())
    return pa.table({"k": pa.array([key[0].as_py()], pa.int64()), "rows": rows})


def trap(cut: str) -> Callable[[Callable[..., DataFrame]], Callable[..., DataFrame]]:
    def add(function: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
        TRAPS[function.__name__] = (cut, function)
        return function

    return add


@trap("everything")
def cast_by_the_join(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.select("id", "k").join(b.select("d", "n"), F.expr("k = d"))


@trap("everything")
def scales_that_differ(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.select("id", "d").join(b.select("e", "n"), F.expr("d = e"), "left")


@trap("everything")
def cast_to_the_same(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.select("id", F.expr("cast(d as decimal(12,4))").alias("e")).join(b.select("e", "n"), "e")


@trap("keys")
def zeros_and_nans(a: DataFrame, b: DataFrame) -> DataFrame:
    other = b.select(F.col("x").alias("y"), F.col("n").alias("m"))
    return a.select("id", "x").join(other, F.expr("x = y"), "full")


@trap("keys")
def groups_of_zeros_and_nans(a: DataFrame) -> DataFrame:
    return a.groupBy("x").agg(F.count("*"), F.sum("n"))


@trap("keys")
def windows_of_zeros_and_nans(a: DataFrame) -> DataFrame:
    return a.select("id", F.sum("n").over(Window.partitionBy("x")).alias("m"))


@trap("keys")
def nulls_that_are_equal(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.select("id", "k").join(b.select(F.col("k").alias("q"), "n"), F.expr("k <=> q"), "full")


@trap("keys")
def nulls_that_are_not(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.select("id", "k").join(b.select("k"), "k", "anti")


@trap("everything")
def scalar_subquery(a: DataFrame) -> DataFrame:
    text = "select k, count(*) c from {a} where n > (select avg(n) from {a}) group by k"
    return a.sparkSession.sql(text, a=a)


@trap("everything")
def in_subquery(a: DataFrame) -> DataFrame:
    return a.sparkSession.sql("select id from {a} where k in (select n from {a})", a=a)


@trap("everything")
def correlated_exists(a: DataFrame) -> DataFrame:
    text = "select id from {a} p where exists (select 1 from {a} q where q.k = p.n and q.id > p.id)"
    return a.sparkSession.sql(text, a=a)


@trap("everything")
def scalar_in_a_group(a: DataFrame, b: DataFrame) -> DataFrame:
    groups = "select k, sum(n) s from {a} group by k"
    text = f"select k, s + (select max(n) from {{b}} q where q.k = g.k) m from ({groups}) g"
    return a.sparkSession.sql(text, a=a, b=b)


@trap("everything")
def first_five(a: DataFrame) -> DataFrame:
    return a.orderBy("id").limit(5).select("id")


@trap("everything")
def without_the_first(a: DataFrame) -> DataFrame:
    return a.orderBy("id").offset(7).select("id")


@trap("everything")
def groups_of_the_first(a: DataFrame) -> DataFrame:
    return a.orderBy("id").limit(20).groupBy("k").count()


@trap("everything")
def sampled(a: DataFrame) -> DataFrame:
    return a.sample(fraction=0.5, seed=1).agg(F.count("*") >= 0)


@trap("everything")
def numbered(a: DataFrame) -> DataFrame:
    made = a.withColumn("m", F.monotonically_increasing_id())
    return made.agg(F.countDistinct("m") == F.count("*"))


@trap("everything")
def random_with_a_seed(a: DataFrame) -> DataFrame:
    # In each of several parts the same numbers would come again.
    return a.select(F.rand(7).alias("r")).where("r < 0").select(F.count("*").over(Window.partitionBy("r")))


@trap("everything")
def sampled_by_key(a: DataFrame) -> DataFrame:
    return a.sampleBy("k", {1: 0.0, 2: 1.0}, seed=3).select("id")


@trap("rows")
def random_without_a_seed(a: DataFrame) -> DataFrame:
    return a.select("id", (F.rand() < 2).alias("r"), (F.length(F.uuid()) == 36).alias("u"))


@trap("everything")
def through_an_rdd(a: DataFrame) -> DataFrame:
    keys = a.select("k")
    return a.sparkSession.createDataFrame(keys.rdd, keys.schema).groupBy("k").count()


@trap("everything")
def through_a_lazy_checkpoint(a: DataFrame) -> DataFrame:
    return a.localCheckpoint(eager=False).groupBy("k").count()


@trap("keys")
def cached(a: DataFrame) -> DataFrame:
    kept = a.select("k", "n").cache()
    return kept.groupBy("k").agg(F.sum("n").alias("m")).join(kept.select("k").distinct(), "k")


@trap("keys")
def in_a_view(a: DataFrame, b: DataFrame) -> DataFrame:
    a.createOrReplaceTempView("one_of_mine")
    b.createOrReplaceTempView("another_of_mine")
    text = "select p.k, count(*) c from one_of_mine p join another_of_mine q on p.k = q.k group by p.k"
    return a.sparkSession.sql(text)


@trap("keys")
def in_python(a: DataFrame) -> DataFrame:
    twice = F.udf(lambda n: 2 * n, "bigint")
    return a.withColumn("m", twice("n")).groupBy("k").agg(F.sum("m"))


@trap("everything")
def key_made_in_python(a: DataFrame) -> DataFrame:
    half = F.udf(lambda n: n // 2, "bigint")
    return a.withColumn("m", half("n")).groupBy("m").count()


@trap("keys")
def mapped_after(a: DataFrame) -> DataFrame:
    made = a.groupBy("k").agg(F.count("*").alias("m"))
    return made.mapInArrow(same_batches, made.schema)


@trap("everything")
def mapped_before(a: DataFrame) -> DataFrame:
    keys = a.select("k", "n")
    return keys.mapInArrow(same_batches, keys.schema).groupBy("k").agg(F.sum("n"))


@trap("keys")
def applied_in_arrow(a: DataFrame) -> DataFrame:
    return a.select("k", "n").groupBy("k").applyInArrow(count_rows, COUNTED)


@trap("keys")
def applied_in_pandas(a: DataFrame) -> DataFrame:
    return a.select("k", "n").groupBy("k").applyInPandas(count_in_pandas, COUNTED)


@trap("keys")
def cogrouped(a: DataFrame, b: DataFrame) -> DataFrame:
    one, other = a.select("k", "n").groupBy("k"), b.select("k", "n").groupBy("k")
    return one.cogroup(other).applyInArrow(count_both, COUNTED)


@trap("everything")
def grouped_by_what_was_exploded(a: DataFrame) -> DataFrame:
    return a.select("k", F.explode("tags").alias("tag")).groupBy("tag").count()


@trap("keys")
def sessions(c: DataFrame) -> DataFrame:
    by = F.session_window("at", "2 seconds")
    return c.where("at is not null").groupBy("k", by).agg(F.sum("n").alias("m"))


@trap("everything")
def sessions_of_all(c: DataFrame) -> DataFrame:
    return c.where("at is not null").groupBy(F.session_window("at", "2 seconds")).agg(F.sum("n").alias("m"))


@trap("keys")
def windows_of_time(c: DataFrame) -> DataFrame:
    return c.groupBy("k", F.window("at", "2 seconds", "1 second")).agg(F.sum("n").alias("m"))


@trap("keys")
def newest_of_each(a: DataFrame) -> DataFrame:
    newest = a.groupBy("k").agg(F.max("id").alias("id"))
    return a.join(newest, ["k", "id"], "left_semi").select("id", "k", "n")


@trap("keys")
def merged(a: DataFrame, b: DataFrame) -> DataFrame:
    new = b.groupBy("k").agg(F.max("n").alias("m"))
    return a.select("k", "n").join(new, "k", "full").select("k", F.coalesce("m", "n").alias("n"))


@trap("everything")
def pairs_of_other_keys(a: DataFrame) -> DataFrame:
    return a.alias("p").join(a.alias("q"), F.expr("p.k = q.n")).select("p.id", F.col("q.id").alias("other"))


def _collated(collation: str) -> None:
    def group(a: DataFrame) -> DataFrame:
        made = a.groupBy(F.collate("s", collation).alias("c")).agg(F.sum("n").alias("m"))
        return made.select("m")

    def join(a: DataFrame, b: DataFrame) -> DataFrame:
        one = a.select("id", F.collate("s", collation).alias("one"))
        return one.join(
            b.select("n", F.collate("s", collation).alias("other")), F.expr("one = other")
        ).select("id", "n")

    name = collation.lower()
    TRAPS[f"groups_of_{name}"] = ("everything", group)
    TRAPS[f"joined_by_{name}"] = ("everything", join)


for each in COLLATIONS:
    _collated(each)
