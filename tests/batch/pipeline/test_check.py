"""What Spark's analyser shows about a transform, before there is any data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.batch.pipeline import Pipeline, Resource, Transform, transform
from penstock.batch.pipeline.check import Unchecked, check_pipeline
from penstock.errors import DefinitionError, TypeMismatch, UndeclaredRead, UndeclaredWrite, UnknownField
from penstock.types.tables import Precision, Table, derived

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Place(Table):
    city: str
    zip_code: str


class Trades(Table):
    trade_id: int
    symbol: str
    price: Annotated[Decimal, Precision(18, 4)]
    size: int
    at: datetime
    place: Place
    notional: Annotated[Decimal, Precision(38, 4)] | None = derived()
    total: int | None = derived()


class Quotes(Table):
    symbol: str
    bid: float
    currency: str


class Totals(Table):
    symbol: str
    total: float


class Out(Table, name="trades"):
    trade_id: int


def check(spark: SparkSession, made: Transform) -> list[Unchecked]:
    outputs = [Out, Totals] if Totals in made.writes else Out
    return Pipeline("checked", inputs=[Trades, Quotes], outputs=outputs, transforms=[made]).check(spark)


Body = Callable[..., Any]


def one(body: Body, **declared: Any) -> Transform:
    """A transform of `trades` that reads `price` and `size` and writes `notional`, unless said otherwise."""
    made: Transform = transform(
        **({"reads": [Trades.price, Trades.size], "writes": Trades.notional} | declared), name="made"
    )(body)
    return made


def good(trades: DataFrame) -> DataFrame:
    return trades.withColumn("notional", F.col("price"))


def test_the_line_of_the_transform_is_named(spark: SparkSession) -> None:
    @transform(reads=Trades.price, writes=Trades.notional)
    def undeclared(trades: DataFrame) -> DataFrame:
        return trades.withColumn("notional", F.col("price") * F.col("size"))

    _, line = inspect.getsourcelines(undeclared.function)
    with pytest.raises(UndeclaredRead) as caught:
        check(spark, undeclared)
    assert str(caught.value) == (
        f"{__file__}:{line}: transform undeclared reads trades.size, which it does not declare\n"
        "next: add Trades.size to reads"
    )


@pytest.mark.parametrize(
    "body",
    [
        lambda trades: trades.withColumn("notional", F.col("symbol")),
        lambda trades: trades.withColumn("notional", trades.symbol),
        lambda trades: trades.withColumn("notional", trades["symbol"]),
        lambda trades: trades.withColumn("notional", F.expr("upper(symbol)")),
        lambda trades: trades.selectExpr("*", "upper(symbol) AS notional"),
        lambda trades: trades.alias("t").withColumn("notional", F.col("t.symbol")),
        lambda trades: trades.where("symbol = 'A'"),
        lambda trades: trades.orderBy("symbol"),
        lambda trades: trades.groupBy("symbol").count(),
        lambda trades: trades.withColumn("notional", F.sum("price").over(Window.partitionBy("symbol"))),
    ],
)
def test_undeclared_reads(spark: SparkSession, body: Body) -> None:
    with pytest.raises(UndeclaredRead, match=r"reads trades\.symbol, which it does not declare"):
        check(spark, one(body))


def test_an_undeclared_part_of_a_field(spark: SparkSession) -> None:
    with pytest.raises(UndeclaredRead, match=r"reads trades\.place, which"):
        check(spark, one(lambda trades: trades.withColumn("notional", F.col("place.city"))))


def test_an_undeclared_field_of_a_second_table(spark: SparkSession) -> None:
    def joined(trades: DataFrame, quotes: DataFrame) -> DataFrame:
        return trades.join(quotes.select("symbol", "bid"), "symbol", "left").drop("bid")

    with pytest.raises(UndeclaredRead, match=r"reads quotes\.bid.*\nnext: add Quotes\.bid to reads"):
        check(spark, one(joined, reads=[Trades.symbol, Quotes.symbol]))


@pytest.mark.parametrize(
    "body",
    [
        lambda trades: trades.withColumn("notional", F.col("pricee")),
        lambda trades: trades.withColumn("notional", trades.pricee),
    ],
)
def test_names_that_nobody_has(spark: SparkSession, body: Body) -> None:
    with pytest.raises(
        UnknownField, match=r"uses 'pricee', which no table has\nnext: it reads: trades.price"
    ):
        check(spark, one(body))


def swapped(trades: DataFrame) -> DataFrame:
    swap = {"price": "size", "size": "price"}
    return good(trades).toDF(*(swap.get(c, c) for c in good(trades).columns))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            lambda trades: good(trades).withColumn("extra", F.lit(1)),
            "returns trades with extra, which it does not",
        ),
        (lambda trades: good(trades).withColumn("total", F.lit(1)), r"next: add Trades\.total to writes"),
        (lambda trades: good(trades).withColumn("price", F.col("price") + 1), r"changes trades\.price"),
        (lambda trades: good(trades).withColumn("size", F.lit(1)), r"changes trades\.size"),
        (lambda trades: good(trades).fillna(0, ["size"]), r"changes trades\.size"),
        (swapped, r"changes trades\.(price|size), which it only declares to read"),
        (lambda trades: good(trades).drop("price"), r"removes trades\.price"),
        (
            lambda trades: trades.select("price", "size", F.lit(None).alias("notional")),
            "removes the fields of trades",
        ),
        (
            lambda trades: trades.select(F.lit(None).alias("notional")),
            "removes the fields of trades that it does not",
        ),
        (
            lambda trades: trades.groupBy("price", "size").agg(F.lit(1).alias("notional")),
            "removes the fields",
        ),
    ],
)
def test_undeclared_writes(spark: SparkSession, body: Body, said: str) -> None:
    with pytest.raises(UndeclaredWrite, match=said):
        check(spark, one(body))


@pytest.mark.parametrize(
    "body",
    [
        good,
        lambda trades: trades.withColumns({"notional": F.lit(None)}),
        lambda trades: trades.select("*", F.col("price").alias("notional")),
        lambda trades: trades.select(F.lit(1).cast("decimal(10,2)").alias("notional"), "*"),
        lambda trades: good(trades.repartition(2)).alias("x"),
        lambda trades: (
            trades.withColumnRenamed("price", "p")
            .selectExpr("*", "p AS notional")
            .withColumnRenamed("p", "price")
        ),
        lambda trades: trades.withColumn("notional", F.sum("price").over(Window.partitionBy("size"))),
    ],
)
def test_what_is_allowed(spark: SparkSession, body: Body) -> None:
    assert check(spark, one(body)) == []


def test_a_lookup_by_join_is_allowed(spark: SparkSession) -> None:
    def joined(trades: DataFrame, quotes: DataFrame) -> DataFrame:
        best = quotes.groupBy("symbol").agg(F.max("bid").cast("decimal(18,4)").alias("notional"))
        return trades.join(F.broadcast(best), "symbol", "left")

    assert check(spark, one(joined, reads=[Trades.symbol, Quotes.symbol, Quotes.bid])) == []


def test_a_filter_is_allowed(spark: SparkSession) -> None:
    kept = one(lambda trades: trades.where("price > 0"), reads=Trades.price, writes=(), drops=Trades)
    assert check(spark, kept) == []


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (F.col, "makes trades.total a string, but it is declared as bigint"),
        (lambda _: F.col("price"), r"makes trades.total a decimal\(18,4\), but it is declared as bigint"),
        (lambda _: F.lit(1.5), r'a double, but it is declared as bigint\nnext: cast it: .cast\("bigint"\)'),
        (lambda _: F.lit(True), "a boolean, but it is declared as bigint"),
        (lambda _: F.array(F.lit(1)), "a array<int>, but it is declared as bigint"),
    ],
)
def test_types_that_do_not_fit(spark: SparkSession, column: Callable[[str], Any], said: str) -> None:
    made = one(
        lambda trades: trades.withColumn("total", column("symbol")),
        reads=[Trades.price, Trades.symbol],
        writes=Trades.total,
    )
    with pytest.raises(TypeMismatch, match=said):
        check(spark, made)


def test_a_declared_write_that_does_not_happen(spark: SparkSession) -> None:
    with pytest.raises(UnknownField, match=r"declares to write trades\.notional, but does not"):
        check(spark, one(lambda trades: trades))


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "returned NoneType, not a DataFrame"),
        ({}, "returned a mapping of , not a DataFrame"),
        ({"totals": 1}, "returned a mapping of totals, not a DataFrame"),
        ([1], "returned list, not a DataFrame"),
    ],
)
def test_results_that_are_no_dataframe(spark: SparkSession, returned: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        check(spark, one(lambda trades: returned))


def test_several_tables_come_back_by_name(spark: SparkSession) -> None:
    both = {"reads": [Trades.price, Quotes.bid], "writes": [Trades.notional, Quotes.bid]}
    check(
        spark,
        one(
            lambda trades, quotes: {
                "trades": good(trades),
                "quotes": quotes.withColumn("bid", -F.col("bid")),
            },
            **both,
        ),
    )
    for wrong in (lambda trades, quotes: good(trades), lambda trades, quotes: {"trades": good(trades)}):
        with pytest.raises(DefinitionError, match="not a dictionary of DataFrames for quotes, trades"):
            check(spark, one(wrong, **both))


def test_two_columns_of_one_name(spark: SparkSession) -> None:
    def joined(trades: DataFrame, quotes: DataFrame) -> DataFrame:
        return good(trades).join(
            quotes.withColumnRenamed("bid", "price"), trades.symbol == quotes.symbol, "left"
        )

    with pytest.raises(DefinitionError, match="returns trades with two columns price"):
        check(spark, one(joined, reads=[Trades.symbol, Trades.price, Quotes.symbol, Quotes.bid]))


@pytest.mark.parametrize(
    ("columns", "kind", "said"),
    [
        (["symbol", "sum(size) / 2.0 AS total"], TypeMismatch, "makes totals.total a decimal"),
        (["symbol"], UnknownField, r"declares to write totals\.total, but does not"),
        (["symbol", "1D AS total", "2 AS more"], UnknownField, "returns totals with more, which it does not"),
        (["symbol", "count(*) AS total", "max(trade_id) AS m"], UndeclaredRead, r"reads trades\.trade_id"),
        (["max(size) AS symbol", "1D AS total"], TypeMismatch, "makes totals.symbol a bigint"),
        (["symbol", "sum(cast(size AS double)) AS total"], None, ""),
    ],
)
def test_created_tables(
    spark: SparkSession, columns: list[str], kind: type[Exception] | None, said: str
) -> None:
    def total(trades: DataFrame) -> DataFrame:
        return (
            trades.groupBy("symbol").agg(*(F.expr(c) for c in columns if c != "symbol"))
            if len(columns) > 1
            else trades.select(*columns)
        )

    if columns[0] != "symbol":
        total = lambda trades: trades.groupBy().agg(*map(F.expr, columns))  # noqa: E731
    made = one(total, reads=[Trades.symbol, Trades.size], writes=Totals)
    if kind is None:
        check(spark, made)
        return
    with pytest.raises(kind, match=said):
        check(spark, made)


def test_other_mistakes_are_explained(spark: SparkSession) -> None:
    with pytest.raises(DefinitionError, match=r"transform made cannot be analysed: \[DATATYPE_MISMATCH"):
        check(spark, one(lambda trades: trades.withColumn("notional", F.col("price") + F.array())))


def test_resources_are_there_if_they_can_be_loaded(spark: SparkSession) -> None:
    factor = Resource("factor", load=lambda: 3)
    unknown = Resource("unknown")

    def wrong(trades: DataFrame, **resource: Any) -> DataFrame:
        assert resource in ({"factor": 3}, {})
        return trades

    with_factor = one(lambda trades, factor: wrong(trades, factor=factor), reads=[Trades.price, factor])
    with pytest.raises(UnknownField, match="declares to write"):
        check(spark, with_factor)
    check(spark, one(lambda trades, unknown: wrong(trades), reads=[Trades.price, unknown]))


def test_a_function_that_needs_rows_is_left_for_its_first_run(spark: SparkSession) -> None:
    (left,) = check(spark, one(lambda trades: trades.withColumn("notional", F.lit(trades.first()["price"]))))
    assert left.reason == "it looks at rows while it is planned"


def test_errors_of_the_function_come_with_the_first_run(spark: SparkSession) -> None:
    def body(trades: DataFrame) -> DataFrame:
        raise ConnectionError("not now")

    (left,) = check(spark, one(body))
    assert left.reason == "without rows it raised ConnectionError: not now"


def test_no_job_runs(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("check-runs-nothing", "")
    try:
        check(spark, one(good))
        assert list(tracker.getJobIdsForGroup("check-runs-nothing")) == []
    finally:
        spark.sparkContext.setJobGroup("", "")


def misspelt(trades: DataFrame) -> DataFrame:
    return trades.withColumn("notional", F.col("price") * rate)  # type: ignore[name-defined]  # noqa: F821


def imports(trades: DataFrame) -> DataFrame:
    import no_such_module  # type: ignore[import-not-found]

    return no_such_module.of(trades)  # type: ignore[no-any-return]


def too_few(trades: DataFrame) -> DataFrame:
    return trades.withColumn("notional")  # type: ignore[call-arg]


def no_attribute(trades: DataFrame) -> DataFrame:
    return trades.withColumn("notional", F.no_such_function("price"))  # type: ignore[attr-defined]


def wrong_argument(trades: DataFrame) -> DataFrame:
    return trades.withColumn("notional", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (misspelt, "NameError: name 'rate' is not defined"),
        (imports, "ModuleNotFoundError: No module named 'no_such_module'"),
        (too_few, "TypeError: .*missing 1 required positional argument"),
        (no_attribute, "AttributeError: .*no_such_function"),
        (wrong_argument, "PySparkTypeError: "),
    ],
)
def test_mistakes_that_no_rows_can_mend(spark: SparkSession, body: Body, said: str) -> None:
    with pytest.raises(
        DefinitionError, match=rf"test_check\.py:\d+: transform made cannot be planned: line \d+: {said}"
    ):
        check(spark, one(body))


def first_row(trades: DataFrame) -> DataFrame:
    return trades.withColumn("notional", F.lit(trades.first()["price"]))  # type: ignore[index]


def offline(trades: DataFrame) -> DataFrame:
    raise ConnectionError("nobody there\nat all")


def test_what_may_work_with_rows_is_named(spark: SparkSession) -> None:
    given = Resource("given")

    def needs(trades: DataFrame, given: int) -> DataFrame:
        return trades.withColumn("notional", F.lit(given))

    for made, reason in (
        (one(first_row), "it looks at rows while it is planned"),
        (one(offline), "without rows it raised ConnectionError: nobody there"),
        (
            one(needs, reads=[Trades.price, given]),
            "it needs resource given, which only a dataset factory provides",
        ),
    ):
        pipeline = Pipeline("unchecked", inputs=Trades, outputs=Out, transforms=[made])
        assert check_pipeline(spark, pipeline, [{}]).unchecked == [Unchecked("made", reason)]
