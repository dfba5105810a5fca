"""What is read from Spark's plans, and that the cuts which follow from it give the rows of everything."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
import pyarrow as pa
import pytest

from penstock.batch.pipeline.partitioning import Everything, Keyed, Narrow, Need, Slot, needs
from penstock.spark.plans import analysed as plans
from penstock.spark.plans.analysed import PlanUnreadable, leaf, needs_rows, read
from penstock.spark.plans.plan_json import grow
from penstock.spark.plans.plan_reader import NO_DETAILS, PlanReader
from penstock.spark.plans.plan_tree import PlanNode, is_key_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Frames = dict[str, "DataFrame"]
Transform = Callable[["DataFrame", "DataFrame"], "DataFrame"]

ORDERS = "id int not null, k int, v string, n bigint, c string collate UTF8_LCASE, tags array<string>"
USERS = "k int, j int, w string"
TYPES = {
    **dict.fromkeys(("id", "k", "j"), pa.int32()),
    **dict.fromkeys(("v", "c", "w"), pa.string()),
    "n": pa.int64(),
    "tags": pa.list_(pa.string()),
}
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "orders": [
        (1, 1, "a", 1, "X", ["p", "q"]),
        (2, 1, "b", 2, "x", []),
        (3, 2, "a", 3, "Y", ["p"]),
        (4, None, "a", 4, "y", None),
        (5, 3, None, 5, "Z", ["q"]),
        (6, 3, "a", 5, "z", ["q", "q"]),
        (7, 4, "b", 1, None, []),
        (8, None, None, 2, "X", []),
        (9, 4, "b", 1, "x", []),
        (10, 6, "c", 9, "x", ["r"]),
        (11, 7, "c", 9, "x", ["r"]),
    ],
    "users": [
        (1, 2, "a"),
        (2, 1, "b"),
        (2, 3, "b"),
        (None, 4, "a"),
        (5, None, None),
        (4, 4, "b"),
        (3, 1, "a"),
    ],
}


def schema(ddl: str) -> StructType:
    from pyspark.sql.types import StructType

    return cast("StructType", StructType.fromDDL(ddl))


def stands_for(spark: SparkSession) -> Frames:
    return {"orders": leaf(spark, schema(ORDERS), "orders"), "users": leaf(spark, schema(USERS), "users")}


def given(spark: SparkSession, rows: dict[str, list[tuple[Any, ...]]]) -> Frames:
    # From Arrow: a list would go through an RDD and a Python worker.
    frames = {}
    for name, ddl in (("orders", ORDERS), ("users", USERS)):
        fields = schema(ddl)
        columns = [pa.array([row[n] for row in rows[name]], TYPES[f.name]) for n, f in enumerate(fields)]
        frames[name] = spark.createDataFrame(pa.table(columns, names=fields.names), fields)
    return frames


def need_of(spark: SparkSession, transform: Transform, *whole: str, known: Sequence[object] = ()) -> Need:
    frames = stands_for(spark)
    return needs([read(transform(frames["orders"], frames["users"]), known)], whole)


def sql(text: str) -> Transform:
    def run(orders: DataFrame, users: DataFrame) -> DataFrame:
        return orders.sparkSession.sql(text, orders=orders, users=users)

    return run


def keep_all(frames: Iterator[Any]) -> Iterator[Any]:
    yield from frames


def count_pandas(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"k": [key[0]], "rows": [len(frame)]}).astype({"k": "Int32"})


def count_arrow(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
    return pa.table({"k": pa.array([key[0].as_py()], pa.int32()), "rows": pa.array([len(table)], pa.int64())})


def count_both(key: tuple[Any, ...], left: pa.Table, right: pa.Table) -> pa.Table:
    rows = pa.array([100 * len(left) + len(right)], pa.int64())
    return pa.table({"k": pa.array([key[0].as_py()], pa.int32()), "rows": rows})


def by_rank(orders: DataFrame, *columns: str) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    return orders.withColumn("r", F.rank().over(Window.partitionBy(*columns).orderBy("id")))


K = "orders.k=users.k"
RIGHT: dict[str, tuple[str, tuple[str, ...], Transform]] = {}
WRONG: dict[str, tuple[tuple[str, ...], Transform]] = {}


def cases() -> None:
    from pyspark.sql import functions as F

    def right(name: str, slots: str, transform: Transform, *whole: str) -> None:
        assert name not in RIGHT
        RIGHT[name] = (slots, whole, transform)

    def wrong(name: str, transform: Transform, *whole: str) -> None:
        assert name not in WRONG
        WRONG[name] = (whole, transform)

    right("filter", "", lambda o, u: o.where("n > 1").withColumn("m", F.col("n") + 1))
    right("explode", "", lambda o, u: o.select("id", F.explode("tags").alias("tag")))
    right("explode and group", "orders.k", lambda o, u: o.select("k", F.explode("tags")).groupBy("k").count())
    right("local sort", "", lambda o, u: o.repartition(3, "k").sortWithinPartitions("k").hint("broadcast"))
    right("map", "", lambda o, u: o.drop("c").mapInArrow(keep_all, o.drop("c").schema))
    right("map in pandas", "", lambda o, u: o.select("n").mapInPandas(keep_all, "n bigint"))
    right("self-union", "", lambda o, u: o.unionByName(o.where("n > 2")))
    right("unpivot", "", lambda o, u: o.select("k", "id", "n").unpivot("k", ["id", "n"], "name", "value"))
    right("group", "orders.k", lambda o, u: o.groupBy("k").agg(F.sum("n")))
    right("group by two", "orders.k orders.v", lambda o, u: o.groupBy("k", "v").count())
    right("group by alias", "orders.k", lambda o, u: o.groupBy(F.col("k").alias("key")).count())
    right("renamed", "orders.k", lambda o, u: o.withColumnRenamed("k", "z").select("z").groupBy("z").count())
    right("alias", "orders.k", lambda o, u: o.alias("t").select(F.col("t.k").alias("z")).groupBy("z").count())
    right("distinct", "orders.k orders.v", lambda o, u: o.select("k", "v", F.col("n") % 2).distinct())
    right("dropDuplicates", "orders.k", lambda o, u: o.select("k").dropDuplicates(["k"]))
    right("window", "orders.k orders.v", lambda o, u: by_rank(o, "k", "v"))
    right("window, group", "orders.k", lambda o, u: by_rank(o, "k", "v").groupBy("k").agg(F.sum("r")))
    right("first of each", "orders.k", lambda o, u: by_rank(o, "k").where("r = 1").drop("r"))
    right("group, join", K, lambda o, u: o.groupBy("k", "v").count().join(u, "k"))
    right("inner", K, lambda o, u: o.join(u, "k"))
    right("inner by two", f"{K} orders.v=users.w", lambda o, u: o.join(u, (o.k == u.k) & (u.w == o.v)))
    right("inner and more", K, lambda o, u: o.join(u, (o.k == u.k) & (o.n > u.j)).select(o.k, "n", "j"))
    right("null-safe", K, lambda o, u: o.join(u, o.k.eqNullSafe(u.k)).select("id", "j"))
    right("left", K, lambda o, u: o.join(u, "k", "left").groupBy("k").count())
    right("right", K, lambda o, u: o.join(u, "k", "right").groupBy("k").count())
    right("full", K, lambda o, u: o.join(u, o.k == u.k, "full").select(o.id, u.j))
    right("full using", K, lambda o, u: o.join(u, "k", "full").groupBy("k").count())
    right("semi", K, lambda o, u: o.join(u, "k", "semi").groupBy("k").count())
    right("anti", K, lambda o, u: o.join(u, "k", "anti").groupBy("k").count())
    right("three", K, lambda o, u: o.join(u, "k", "full").join(o.groupBy("k").count(), "k", "full"))
    right(
        "self-join",
        "orders.k",
        lambda o, u: o.alias("a").join(o.alias("b"), F.expr("a.k = b.k")).select("a.id"),
    )
    right("whole inner", "", lambda o, u: o.join(u, "k"), "users")
    right("whole cross", "", lambda o, u: o.crossJoin(u), "users")
    right("whole left", "", lambda o, u: o.join(u, "k", "left"), "users")
    right("whole on the left", "", lambda o, u: u.join(o, "k", "right"), "users")
    right("whole semi", "", lambda o, u: o.join(u, "k", "semi"), "users")
    right("whole anti", "", lambda o, u: o.join(u, o.v == u.w, "anti"), "users")
    right("whole, grouped", "orders.k", lambda o, u: o.join(u, "k").groupBy("k").count(), "users")
    right("whole aggregated", "", lambda o, u: o.crossJoin(u.agg(F.max("j"))), "users")
    right("coerced whole", "", lambda o, u: o.join(u, o.n == u.k), "users")
    right(
        "whole subquery", "", sql("select id from {orders} where n > (select min(j) from {users})"), "users"
    )
    right("union, group", K, lambda o, u: o.select("k").union(u.select("k")).groupBy("k").count())
    right("groups, union", K, lambda o, u: o.groupBy("k").count().union(u.groupBy("k").count()))
    right("group, union", K, lambda o, u: o.groupBy("k").agg(F.max("id")).union(u.select("k", "j")))
    right("intersect", f"{K} orders.v=users.w", lambda o, u: o.select("k", "v").intersect(u.select("k", "w")))
    right("intersect all", K, lambda o, u: o.select("k").intersectAll(u.select("k")))
    right("except", K, lambda o, u: o.select("k").subtract(u.select("k")))
    right("except all", K, lambda o, u: o.select("k").exceptAll(u.select("k")))
    right("except whole", "orders.k", lambda o, u: o.select("k").subtract(u.select("k")), "users")
    right("except all whole", "orders.k", lambda o, u: o.select("k").exceptAll(u.select("k")), "users")
    right("pivot", "orders.k", lambda o, u: o.groupBy("k").pivot("v", ["a", "b"]).count())
    right(
        "grouping sets",
        "orders.k",
        sql("select k, v, count(*) from {orders} group by grouping sets ((k, v), (k))"),
    )
    right(
        "with",
        "orders.k",
        sql("with t as (select k, id from {orders}) select a.id from t a join t b using (k)"),
    )
    right(
        "apply in pandas", "orders.k", lambda o, u: _apply(o.drop("c")).applyInPandas(count_pandas, COUNTED)
    )
    right("apply in arrow", "orders.k", lambda o, u: _apply(o.drop("c")).applyInArrow(count_arrow, COUNTED))
    right("cogroup", K, lambda o, u: _apply(o.drop("c")).cogroup(_apply(u)).applyInArrow(count_both, COUNTED))
    right("list inside", "", lambda o, u: o.join(_listed(o), "k"))
    right("frame inside", "", lambda o, u: o.join(o.sparkSession.createDataFrame(pa.table({"n": [1]})), "n"))

    wrong("union", lambda o, u: o.select("k").union(u.select("k")))
    wrong("no cut table", lambda o, u: u, "users")
    wrong("cast key", lambda o, u: o.groupBy(F.col("k").cast("bigint")).count())
    wrong("computed key", lambda o, u: o.withColumn("v", F.upper("v")).groupBy("v").count())
    wrong("collated", lambda o, u: o.groupBy("c").count())
    wrong("collated here", lambda o, u: o.groupBy(F.collate("v", "UTF8_LCASE")).count())
    wrong("array key", lambda o, u: o.groupBy("tags").count())
    wrong("coerced", lambda o, u: o.join(u, o.n == u.k))
    wrong("other keys", lambda o, u: by_rank(o, "k").groupBy("v").count())
    wrong("global aggregate", lambda o, u: o.agg(F.sum("n")))
    wrong("whole window", lambda o, u: by_rank(o))
    wrong("rollup", lambda o, u: o.rollup("k").count())
    wrong("cube", lambda o, u: o.cube("k", "v").count())
    wrong("limit", lambda o, u: o.limit(3))
    wrong("offset", lambda o, u: o.offset(3))
    wrong("sample", lambda o, u: o.sample(0.5))
    wrong("sort", lambda o, u: o.orderBy("k"))
    wrong("numbered", lambda o, u: o.withColumn("i", F.monotonically_increasing_id()))
    wrong("zipWithIndex", lambda o, u: o.zipWithIndex())
    wrong("place", lambda o, u: o.where(F.spark_partition_id() == 0))
    wrong("file", lambda o, u: o.withColumn("f", F.input_file_name()))
    wrong("cross", lambda o, u: o.crossJoin(u))
    wrong("unequal", lambda o, u: o.join(u, o.k > u.k))
    wrong("either", lambda o, u: o.join(u, (o.k == u.k) | (o.v == u.w)))
    wrong("self-join by other", lambda o, u: o.alias("a").join(o.alias("b"), F.expr("a.k = b.id")))
    wrong("right side, grouped", lambda o, u: o.join(u, o.k == u.k, "left").groupBy(u.k).count())
    wrong("full side, grouped", lambda o, u: o.join(u, o.k == u.k, "full").groupBy(o.k).count())
    wrong("whole full", lambda o, u: o.join(u, "k", "full"), "users")
    wrong("whole kept", lambda o, u: o.join(u, "k", "right"), "users")
    wrong("whole kept on the left", lambda o, u: u.join(o, "k", "left"), "users")
    wrong("whole filtered", lambda o, u: u.join(o, "k", "anti"), "users")
    wrong("whole union", lambda o, u: o.select("k").union(u.select("k")), "users")
    wrong(
        "whole cogroup", lambda o, u: _apply(o).cogroup(_apply(u)).applyInArrow(count_both, COUNTED), "users"
    )
    wrong(
        "cogroup of types", lambda o, u: o.groupBy("n").cogroup(_apply(u)).applyInArrow(count_both, COUNTED)
    )
    wrong("scalar", sql("select * from {orders} where n > (select min(j) from {users})"))
    wrong("own scalar", lambda o, u: o.where(F.col("n") == o.select(F.max("n")).scalar()))
    wrong("exists", sql("select * from {orders} o where exists (select 1 from {users} u where u.k = o.k)"))
    wrong("in", sql("select * from {orders} where k in (select k from {users})"))
    wrong("not in", sql("select * from {orders} where k not in (select k from {users})"))
    wrong("subquery of a constant", sql("select * from range(3) where id in (select k from {users})"))
    wrong("lateral", sql("select * from {orders} o, lateral (select j from {users} u where u.k = o.k)"))
    wrong("rdd", lambda o, u: o.sparkSession.createDataFrame(u.rdd, u.schema).join(o, "k"))
    wrong("mapped rdd", lambda o, u: o.rdd.map(lambda row: row).toDF(o.schema))
    wrong("lazy checkpoint", lambda o, u: o.localCheckpoint(eager=False))
    wrong("rdd in a subquery", lambda o, u: o.where(F.col("n").isin(1) & o.localCheckpoint(False).exists()))
    wrong("barrier", lambda o, u: o.mapInArrow(keep_all, o.schema, barrier=True))


COUNTED = "k int, rows bigint"


def _apply(frame: DataFrame) -> Any:
    return frame.groupBy("k")


def _listed(frame: DataFrame) -> DataFrame:
    return frame.sparkSession.createDataFrame([(1, "one"), (2, "two")], "k int, name string")


cases()


def slots_of(text: str) -> frozenset[Slot]:
    return frozenset(
        frozenset(cast("tuple[str, str]", tuple(f.split("."))) for f in slot.split("="))
        for slot in text.split()
    )


@pytest.mark.parametrize("name", RIGHT)
def test_the_cut_is_found(spark: SparkSession, name: str) -> None:
    expected, whole, transform = RIGHT[name]
    need = need_of(spark, transform, *whole)
    assert need == (Keyed(slots_of(expected)) if expected else Narrow("orders"))


@pytest.mark.parametrize("name", RIGHT)
def test_a_cut_that_is_found_gives_the_rows_of_everything(spark: SparkSession, name: str) -> None:
    _, whole, transform = RIGHT[name]
    need = need_of(spark, transform, *whole)
    cuts: list[frozenset[Slot]] = [frozenset()]
    if isinstance(need, Keyed):
        cuts = list({need.slots, *(frozenset({slot}) for slot in need.slots)})
    rows = [ROWS, *(cut(whole, slots, part) for slots in cuts for part in range(2))]
    assert all(part["orders"] for part in rows)
    everything, *others = shown(transform, [given(spark, part) for part in rows])
    assert everything
    for one, other in zip(others[::2], others[1::2], strict=True):
        assert one + other == everything


def cut(whole: Sequence[str], slots: frozenset[Slot], part: int) -> dict[str, list[tuple[Any, ...]]]:
    """The rows that one of two parts gets."""
    names = {"orders": [f.name for f in schema(ORDERS)], "users": [f.name for f in schema(USERS)]}

    def place(table: str, row: tuple[Any, ...], number: int) -> int:
        fields = [names[table].index(f) for slot in sorted(map(sorted, slots)) for t, f in slot if t == table]
        value = repr([row[i] for i in fields]) if fields else str(number)
        return zlib.crc32(value.encode()) // 7 % 2

    return {
        table: [row for n, row in enumerate(rows) if table in whole or place(table, row, n) == part]
        for table, rows in ROWS.items()
    }


def shown(transform: Transform, parts: Sequence[Frames]) -> list[Counter[str]]:
    """The rows that a transform makes of each part, in one job."""
    from pyspark.sql import functions as F

    results = [
        transform(frames["orders"], frames["users"]).select("*", F.lit(number))
        for number, frames in enumerate(parts)
    ]
    counts = [Counter[str]() for _ in parts]
    for row in reduce(lambda one, other: one.union(other), results).collect():
        counts[row[-1]][str(tuple(row)[:-1])] += 1
    return counts


@pytest.mark.parametrize("name", WRONG)
def test_what_may_look_at_all_rows_is_not_cut(spark: SparkSession, name: str) -> None:
    whole, transform = WRONG[name]
    need = need_of(spark, transform, *whole)
    assert isinstance(need, Everything)
    assert need.why
    assert "could not be read" not in need.why


@pytest.mark.parametrize(
    "action",
    [
        lambda f: f.count(),
        lambda f: f.first(),
        lambda f: f.collect(),
        lambda f: f.isEmpty(),
        lambda f: f.toArrow(),
        lambda f: f.rdd.take(1),
        lambda f: f.groupBy("k").pivot("v").count(),
        lambda f: list(f.toLocalIterator()),
    ],
    ids=["count", "first", "collect", "isEmpty", "toArrow", "rdd", "pivot", "toLocalIterator"],
)
def test_an_action_on_what_stands_for_a_table_is_recognised(spark: SparkSession, action: Any) -> None:
    with pytest.raises(Exception, match="needs-rows") as raised:
        action(stands_for(spark)["orders"])
    assert needs_rows(raised.value)
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = raised.value
    assert needs_rows(wrapped)
    assert not needs_rows(RuntimeError("other"))


def test_what_stands_for_a_table_has_its_schema(spark: SparkSession) -> None:
    wanted = schema(ORDERS)
    wanted["k"].metadata = {"unit": "none"}
    have = leaf(spark, wanted, "orders").schema
    assert [(f.name, f.dataType, f.nullable) for f in have] == [
        (f.name, f.dataType, f.nullable) for f in wanted
    ]
    assert have["k"].metadata == {"unit": "none", "penstock.table": "orders", "penstock.field": "k"}


def test_a_resource_may_be_an_rdd(spark: SparkSession) -> None:
    made = spark.createDataFrame([(1, "one")], "k int, name string")
    resource = spark.createDataFrame(made.rdd.map(lambda row: row), made.schema)

    def join(orders: DataFrame, users: DataFrame) -> DataFrame:
        return orders.join(resource, "k").join(resource.select("name"), "name")

    assert isinstance(need_of(spark, join), Everything)
    assert need_of(spark, join, known=[resource, object()]) == Narrow("orders")


def test_tables_are_leaves_with_fields_and_types(spark: SparkSession) -> None:
    frames = stands_for(spark)
    node = read(frames["orders"].join(frames["users"], "k"))
    found = {n.table: n for n in node.walk() if n.kind == "table"}
    assert node.tables == found.keys() == {"orders", "users"}
    assert list(found["users"].fields.values()) == ["k", "j", "w"]
    assert found["orders"].types[found["orders"].output[4]] == "string collate UTF8_LCASE"


def test_the_line_is_known_where_a_function_was_called(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    orders = stands_for(spark)["orders"]
    need = needs([read(orders.agg(F.sum(F.col("n") + 1)))])
    assert isinstance(need, Everything)
    assert need.line.startswith("test_plans.py:")


def test_a_users_map_with_a_tables_schema_is_not_the_table(spark: SparkSession) -> None:
    orders = stands_for(spark)["orders"]
    assert needs([read(orders.mapInArrow(keep_all, orders.schema))]) == Narrow("orders")
    need = needs([read(orders.mapInArrow(keep_all, orders.schema).groupBy("k").count())])
    assert isinstance(need, Everything)


def test_a_plan_that_is_not_as_expected_is_unreadable(spark: SparkSession) -> None:
    with pytest.raises(PlanUnreadable, match="Connect"):
        read(cast("Any", SimpleNamespace()))
    plan = SimpleNamespace(toJSON=lambda: '[{"class": "x.Y", "num-children": 3}]')
    execution = SimpleNamespace(analyzed=lambda: plan)
    frame = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: execution))
    with pytest.raises(PlanUnreadable, match="lacks children"):
        plans.read(cast("Any", frame))


def test_a_subquery_that_is_hidden_may_look_at_any_table() -> None:
    def hidden(*more: dict[str, Any]) -> Need:
        logical = "org.apache.spark.sql.catalyst.plans.logical."
        expression = {"class": "org.apache.spark.sql.catalyst.expressions.Exists", "num-children": 0}
        flat = [
            {"class": f"{logical}Filter", "num-children": 1, "condition": [expression | m for m in more]},
            {"class": f"{logical}Range", "num-children": 0, "output": []},
        ]
        constant = PlanReader(frozenset()).read(grow(flat), NO_DETAILS)
        table = PlanNode("table", "table", output=(1,), table="a", fields={1: "k"}, types={1: "int"})
        return needs([PlanNode("join", "join", (table, constant), output=(1,), same={1: 1}, join="inner")])

    assert hidden() == Narrow("a")
    for odd in ({"plan": None}, {"plan": [{"class": "x", "num-children": 2}]}, {"class": "x.Y", "plan": []}):
        need = hidden(odd)
        assert isinstance(need, Everything)
        assert "could not be read" in need.why


def test_what_may_differ_the_next_time_is_marked(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    known = plans.leaf(spark, schema("a long"), "t")

    def same(a: int) -> int:
        return a

    varying = (
        known.orderBy(F.rand()).limit(2),
        known.limit(2),
        known.sample(0.5),
        known.withColumn("r", F.rand()),
        known.select(F.uuid()),
        known.select(F.udf(same, "long", useArrow=False).asNondeterministic()("a")),
    )
    fixed = (
        known.groupBy("a").count(),
        known.select(F.udf(same, "long", useArrow=False)("a")),
        known.orderBy("a"),
    )
    assert all(any(node.varies for node in plans.read(frame).walk()) for frame in varying)
    assert not any(node.varies for frame in fixed for node in plans.read(frame).walk())


def test_types_by_which_rows_stay_together() -> None:
    assert all(map(is_key_type, ["int", "string", "decimal(10,2)", "double", "timestamp_ntz", "binary"]))
    assert not any(
        map(is_key_type, ["string collate UNICODE", "array<int>", "map<int,int>", "struct<a:int>", "variant"])
    )


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda f: f.where("id <> 1").select("id"), id="filter and project"),
        pytest.param(lambda f: f.selectExpr("explode(array(id, id)) AS id"), id="generate"),
        pytest.param(lambda f: f.mapInArrow(lambda batches: batches, "id long"), id="mapInArrow"),
        pytest.param(lambda f: f.mapInPandas(lambda frames: frames, "id long"), id="mapInPandas"),
        pytest.param(lambda f: f.alias("x").withColumn("more", f["id"] + 1), id="alias"),
        pytest.param(lambda f: f.where("false"), id="nothing"),
    ],
)
def test_rows_that_stay_in_the_task_of_their_number(
    spark: SparkSession, make: Callable[[DataFrame], DataFrame]
) -> None:
    made = make(spark.range(0, 4, 1, 4))
    assert plans.stays_in_place(made)
    assert all(r.id == r.task for r in made.selectExpr("id", "spark_partition_id() AS task").collect())


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda f: f.repartition(4), id="repartition"),
        pytest.param(lambda f: f.coalesce(2), id="coalesce"),
        pytest.param(lambda f: f.union(f), id="union"),
        pytest.param(lambda f: f.join(f.withColumnRenamed("id", "other"), on=f["id"] == 1), id="join"),
        pytest.param(lambda f: f.distinct(), id="distinct"),
        pytest.param(lambda f: f.sortWithinPartitions("id"), id="sort"),
        pytest.param(lambda f: f.limit(2), id="limit"),
        pytest.param(lambda f: f.groupBy("id").count(), id="groupBy"),
        pytest.param(lambda f: f.localCheckpoint(), id="checkpoint"),
    ],
)
def test_rows_that_may_go_to_other_tasks(spark: SparkSession, make: Callable[[DataFrame], DataFrame]) -> None:
    assert not plans.stays_in_place(make(spark.range(0, 4, 1, 4)))
