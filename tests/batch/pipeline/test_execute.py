"""Running stages on Spark: what comes out is what plain Spark would have made."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from penstock.batch.pipeline import Dataset, Pipeline, Resource, Retry, Transform, arrow_transform, transform
from penstock.batch.pipeline.check import check_pipeline
from penstock.batch.pipeline.execute import resources_by_stage
from penstock.batch.pipeline.resources import Handles, own_values
from penstock.errors import (
    DefinitionError,
    NullInField,
    TransformFailed,
    TransientError,
    TypeMismatch,
    UndeclaredRead,
    UsageError,
)
from penstock.spark.faults import decode
from penstock.types.tables import Precision, Table, derived

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Money = Annotated[Decimal, Precision(18, 2)]
ROWS = 2000


class Trades(Table):
    trade_id: int
    symbol: str
    price: Money
    size: int
    unused: str
    notional: Annotated[Decimal, Precision(38, 2)] = derived()
    big: bool = derived()
    region: str | None = derived()
    score: float = derived()


class Symbols(Table):
    symbol: str
    region: str


class Totals(Table):
    region: str | None
    trades: int
    notional: Annotated[Decimal, Precision(38, 2)]


class Legs(Table):
    trade_id: int
    side: str


limit = Resource("limit", load=lambda: {"least": 40})
factor = Resource("factor")


@transform(reads=[Trades.price, Trades.size], writes=Trades.notional)
def add_notional(trades: DataFrame) -> DataFrame:
    return trades.withColumn("notional", F.col("price") * F.col("size"))


@transform(reads=[Trades.price, limit], writes=Trades.big)
def flag_big(trades: DataFrame, limit: dict[str, int]) -> DataFrame:
    return trades.withColumn("big", F.col("price") > limit["least"])


@transform(reads=[Trades.symbol, Symbols], writes=Trades.region)
def add_region(trades: DataFrame, symbols: DataFrame) -> DataFrame:
    return trades.join(F.broadcast(symbols), "symbol", "left")


@arrow_transform(reads=[Trades.size, factor], writes=Trades.score)
def add_score(trades: pa.RecordBatch, factor: float) -> pa.RecordBatch:
    return trades.append_column("score", pc.multiply(pc.cast(trades["size"], "double"), factor))


@arrow_transform(reads=Trades.big, drops=Trades)
def drop_small(trades: pa.RecordBatch) -> pa.RecordBatch:
    return trades.filter(trades["big"])


@transform(reads=[Trades.region, Trades.notional], writes=Totals)
def total(trades: DataFrame) -> DataFrame:
    return trades.groupBy("region").agg(
        F.count("*").alias("trades"), F.sum("notional").cast("decimal(38,2)").alias("notional")
    )


@arrow_transform(reads=Trades.trade_id, writes=Legs)
def split_legs(trades: pa.RecordBatch) -> pa.RecordBatch:
    ids = pa.concat_arrays([trades["trade_id"]] * 2)
    half = trades.num_rows
    return pa.record_batch({"trade_id": ids, "side": pa.array(["buy"] * half + ["sell"] * half)})


MIXED = [add_notional, flag_big, add_region, add_score, drop_small, total, split_legs]


@pytest.fixture(scope="module")
def trades(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 3).selectExpr(
        "id AS trade_id",
        "concat('S', id % 7) AS symbol",
        "cast(id % 100 AS decimal(18,2)) AS price",
        "cast(id % 13 AS int) AS size",
        "'x' AS unused",
    )


@pytest.fixture(scope="module")
def symbols(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(f"S{n}", f"R{n % 2}") for n in range(5)], "symbol string, region string")


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(r) for r in frame.select(*columns).collect()), key=repr)


def test_a_mixed_pipeline_equals_plain_spark(
    spark: SparkSession, trades: DataFrame, symbols: DataFrame
) -> None:
    pipeline = Pipeline("mixed", inputs=[Trades, Symbols], outputs=[Trades, Totals, Legs], transforms=MIXED)
    assert [set(s.names) for s in pipeline.stages] == [
        {"add_notional", "flag_big", "add_region", "add_score"},
        {"drop_small"},
        {"total", "split_legs"},
    ]
    done = pipeline.run_on(Dataset({"trades": trades, "symbols": symbols}, {"factor": 0.5}), spark=spark)
    plain = (
        trades.withColumn("notional", (F.col("price") * F.col("size")).cast("decimal(38,2)"))
        .withColumn("big", F.col("price") > 40)
        .join(symbols, "symbol", "left")
        .withColumn("score", F.col("size") * 0.5)
        .where("big")
    )
    columns = list(Trades.__fields__)
    assert rows(done["trades"], *columns) == rows(plain, *columns)
    assert {f.name: f.dataType for f in done["trades"].schema} == {
        f.name: f.dataType for f in Trades.spark_schema()
    }
    expected = plain.groupBy("region").agg(F.count("*"), F.sum("notional").cast("decimal(38,2)"))
    assert rows(done["totals"], "*") == rows(expected, "*")
    legs = plain.select("trade_id", F.explode(F.array(F.lit("buy"), F.lit("sell"))))
    assert rows(done["legs"], "*") == rows(legs, "*")
    assert set(done.tables) == {"trades", "totals", "legs"}


def test_the_checks_pass_too(spark: SparkSession) -> None:
    Pipeline("mixed2", inputs=[Trades, Symbols], outputs=[Trades, Totals, Legs], transforms=MIXED).check(
        spark
    )


def optimized(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    frame.explain(mode="extended")
    return capsys.readouterr().out.split("== Optimized Logical Plan ==")[1].split("== Physical")[0]


def test_columns_of_one_stage_become_one_projection(
    spark: SparkSession, trades: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    class Few(Table, name="trades"):
        trade_id: int
        notional: Annotated[Decimal, Precision(38, 2)]
        big: bool

    pipeline = Pipeline("projected", inputs=Trades, outputs=Few, transforms=[add_notional, flag_big])
    assert len(pipeline.stages) == 1
    source = trades.localCheckpoint()
    plan = optimized(pipeline.run_on(Dataset({"trades": source}), spark=spark)["trades"], capsys)
    assert len(re.findall(r"\bProject\b", plan)) == 1, plan
    assert "unused" not in plan.split("\n")[1]


def only(*transforms: Transform, outputs: Any = None) -> Pipeline:
    class Id(Table, name="trades"):
        trade_id: int

    return Pipeline("only", inputs=Trades, outputs=outputs or Id, transforms=transforms)


Body = Callable[..., Any]


def arrow(body: Body, **declared: Any) -> Transform:
    given: dict[str, Any] = {
        "reads": Trades.size,
        "writes": Trades.score,
        "retry": Retry(first=0.001),
    } | declared
    return arrow_transform(**given, name="made")(body)


class Scored(Table, name="trades"):
    trade_id: int
    score: float


def outcome(spark: SparkSession, trades: DataFrame, made: Transform, **resources: Any) -> list[Any]:
    """The scores, or the error as the driver sees it."""
    pipeline = only(made, outputs=Scored)
    try:
        done = pipeline.run_on(Dataset({"trades": trades}, resources), spark=spark)
        return done["trades"].orderBy("trade_id").collect()
    except Exception as error:
        raise decode(error) from error


def scored(trades: pa.RecordBatch) -> pa.RecordBatch:
    return trades.append_column("score", trades["size"].cast("double"))


def raising(error: Exception) -> Body:
    def body(trades: pa.RecordBatch) -> pa.RecordBatch:
        raise error

    return body


class RateLimited(TransientError):
    """A user's own transient error."""


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (
            lambda trades: trades["price"],
            UndeclaredRead,
            r"test_execute\.py:\d+: transform made reads trades\.price",
        ),
        (
            lambda trades: pa.record_batch({"score": pa.nulls(trades.num_rows, "double")}),
            NullInField,
            r"made: trades\.score is null in \d+ of",
        ),
        (raising(ValueError("bad luck")), TransformFailed, r"made raised ValueError: bad luck"),
        (raising(RateLimited("slow down")), TransformFailed, r"raised 4 times RateLimited: slow down"),
        (
            raising(DefinitionError("mine", left="this", hint="that")),
            DefinitionError,
            "^mine\nleft: this\nnext: that$",
        ),
    ],
)
def test_errors_of_workers_arrive_as_what_they_are(
    spark: SparkSession, trades: DataFrame, body: Body, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        outcome(spark, trades.limit(5), arrow(body))
    assert type(caught.value) is kind


def test_a_passing_fault_is_tried_again(spark: SparkSession, trades: DataFrame, tmp_path: Path) -> None:
    log = tmp_path / "calls"

    def flaky(trades: pa.RecordBatch) -> pa.RecordBatch:
        with log.open("a") as file:
            file.write("x")
        if log.stat().st_size <= 2:
            raise ConnectionError("not yet")
        return scored(trades)

    done = outcome(spark, trades.coalesce(1), arrow(flaky))
    assert len(done) == ROWS
    assert log.stat().st_size == 3


def test_a_final_fault_is_not(spark: SparkSession, trades: DataFrame, tmp_path: Path) -> None:
    log = tmp_path / "calls"

    def failing(trades: pa.RecordBatch) -> pa.RecordBatch:
        with log.open("a") as file:
            file.write("x")
        raise DefinitionError("no use")

    with pytest.raises(DefinitionError):
        outcome(spark, trades.limit(1).coalesce(1), arrow(failing))
    assert log.stat().st_size == 1


def test_resources_are_broadcast_once(spark: SparkSession, trades: DataFrame) -> None:
    handles = Handles(spark)
    value = {"a": 1}
    assert handles.get("factor", value) is handles.get("factor", value)
    assert handles.get("factor", {"a": 1}) is not handles.get("factor", value)
    with pytest.raises(
        UsageError, match="resource factor is a DataFrame, which an Arrow transform cannot use"
    ):
        handles.get("factor", trades)


def test_broadcasts_of_one_claim_end_with_the_last_that_holds_them(spark: SparkSession) -> None:
    handles = Handles(spark)
    shared, mine = {"a": 1}, {"a": 2}
    kept, dropped = handles.get("factor", shared), handles.get("factor", mine)
    for _ in range(2):
        handles.hold([("factor", mine)])
    handles.release([("factor", mine)])
    assert handles.get("factor", mine) is dropped
    handles.release([("factor", mine)])
    assert handles.get("factor", shared) is kept
    assert handles.get("factor", mine) is not dropped
    with pytest.raises(Exception, match="destroyed"):
        spark.sparkContext.parallelize([1], 1).map(lambda _: dropped.value).collect()


def test_own_values_are_those_that_are_not_shared() -> None:
    shared, mine = [1], [2]
    stages = [{"a": shared, "b": mine}, {"a": shared, "b": mine, "c": mine}]
    assert own_values(stages, [{"a": shared}, {"a": shared, "c": [2]}]) == [("b", mine), ("c", mine)]


def test_given_resources_load_and_make_nothing_twice() -> None:
    calls: list[str] = []

    def load(name: str, value: int) -> int:
        calls.append(name)
        return value

    base, given = Resource("base", lambda: load("base", 2)), Resource("given", lambda: load("given", 3))
    half, third = Resource("half"), Resource("third")

    @transform(reads=base, writes=half)
    def make_half(base: int) -> list[float]:
        calls.append("half")
        return [base / 2]

    @transform(reads=given, writes=third)
    def make_third(given: int) -> list[float]:
        calls.append("third")
        return [given / 3]

    @arrow_transform(reads=[Trades.size, half, third], writes=Trades.score)
    def use(trades: pa.RecordBatch, half: Any, third: Any) -> pa.RecordBatch: ...

    pipeline = only(make_half, make_third, use, outputs=Scored)
    shared = resources_by_stage(pipeline.stages, pipeline.resources, {})
    assert sorted(calls) == ["base", "given", "half", "third"]
    calls.clear()
    now = resources_by_stage(pipeline.stages, pipeline.resources, {"given": 6}, shared)
    assert calls == ["third"]
    assert now[-1] == {"base": 2, "given": 6, "half": [1.0], "third": [2.0]}
    assert now[-1]["half"] is shared[-1]["half"]


def test_a_lookup_dataframe_is_broadcast(
    spark: SparkSession, trades: DataFrame, symbols: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    lookup = Resource("lookup")

    @transform(reads=[Trades.symbol, lookup], writes=Trades.region)
    def look_up(trades: DataFrame, lookup: DataFrame) -> DataFrame:
        return trades.join(lookup, "symbol", "left")

    class Regions(Table, name="trades"):
        trade_id: int
        region: str | None

    pipeline = only(look_up, outputs=Regions)
    done = pipeline.run_on(Dataset({"trades": trades}, {"lookup": symbols}), spark=spark)
    assert "broadcast" in optimized(done["trades"], capsys)
    assert done["trades"].where("region IS NULL").count() == len([n for n in range(ROWS) if n % 7 > 4])


def test_resources_that_transforms_make(spark: SparkSession, trades: DataFrame) -> None:
    base = Resource("base", load=lambda: 2)
    half, third = Resource("half"), Resource("third")

    @transform(reads=base, writes=[half, third])
    def prepare(base: int) -> dict[str, float]:
        return {"half": base / 2, "third": base / 3}

    @arrow_transform(reads=[Trades.size, half], writes=Trades.score)
    def use(trades: pa.RecordBatch, half: float) -> pa.RecordBatch:
        return pa.record_batch({"score": pa.array([half] * trades.num_rows)})

    done = only(prepare, use, outputs=Scored).run_on(Dataset({"trades": trades}), spark=spark)
    assert {r["score"] for r in done["trades"].collect()} == {1.0}
    given = only(prepare, use, outputs=Scored).run_on(Dataset({"trades": trades}, {"base": 4}), spark=spark)
    assert {r["score"] for r in given["trades"].collect()} == {2.0}

    @transform(reads=base, writes=[half, third], name="prepare")
    def wrong(base: int) -> float:
        return base / 2

    with pytest.raises(DefinitionError, match="transform prepare must return a dictionary of half, third"):
        only(wrong, use, outputs=Scored).run_on(Dataset({"trades": trades}), spark=spark)


def test_several_tables_at_once(spark: SparkSession, trades: DataFrame, symbols: DataFrame) -> None:
    @transform(reads=[Trades.size, Symbols.region], writes=[Trades.score, Symbols.region])
    def both(trades: DataFrame, symbols: DataFrame) -> dict[str, DataFrame]:
        return {
            "symbols": symbols.withColumn("region", F.upper("region")),
            "trades": trades.withColumn("score", F.col("size").cast("double")),
        }

    pipeline = Pipeline("both", inputs=[Trades, Symbols], outputs=[Scored, Symbols], transforms=[both])
    done = pipeline.run_on(Dataset({"trades": trades, "symbols": symbols}), spark=spark)
    assert done["trades"].agg(F.sum("score")).first()[0] == sum(n % 13 for n in range(ROWS))  # type: ignore[index]
    assert done["symbols"].columns == ["symbol", "region"]


def test_what_is_missing_is_named(spark: SparkSession, trades: DataFrame) -> None:
    pipeline = Pipeline("mixed3", inputs=[Trades, Symbols], outputs=[Trades, Totals, Legs], transforms=MIXED)
    with pytest.raises(UsageError, match="the dataset has no table 'symbols', which pipeline mixed3 needs"):
        pipeline.run_on(Dataset({"trades": trades}, {"factor": 1.0}), spark=spark)
    with pytest.raises(UsageError, match="transform made needs resource factor, which nobody provides"):
        outcome(spark, trades, arrow(lambda trades, factor: scored(trades), reads=[Trades.size, factor]))
    with pytest.raises(UsageError, match="the DataFrame given for table trades has no column price, unused"):
        only(add_notional).run_on(Dataset({"trades": trades.drop("price", "unused")}), spark=spark)
    text = trades.withColumn("price", F.col("price").cast("string"))
    with pytest.raises(TypeMismatch, match=r"has price as string, declared as decimal\(18,2\)"):
        only(add_notional).run_on(Dataset({"trades": text}), spark=spark)
    with pytest.raises(UsageError, match="the dataset has no table 'quotes'\nnext: it has: trades"):
        _ = Dataset({"trades": trades})["quotes"]


def test_datasets_are_values(trades: DataFrame, symbols: DataFrame) -> None:
    one = Dataset({"trades": trades})
    two = one.with_tables(symbols=symbols).with_resources(factor=1)
    assert set(one.tables) == {"trades"} and one.resources == {}
    assert set(two.tables) == {"trades", "symbols"} and two.resources == {"factor": 1}


def test_empty_inputs_and_no_rows_left(spark: SparkSession, trades: DataFrame, symbols: DataFrame) -> None:
    pipeline = Pipeline("mixed4", inputs=[Trades, Symbols], outputs=[Trades, Totals, Legs], transforms=MIXED)
    for source, resources in ((trades.limit(0), {}), (trades, {"limit": {"least": 10_000}})):
        done = pipeline.run_on(
            Dataset({"trades": source, "symbols": symbols}, {"factor": 1.0, **resources}), spark=spark
        )
        assert [done[t].count() for t in ("trades", "totals", "legs")] == [0, 0, 0]
        assert done["trades"].columns == list(Trades.__fields__)


def test_errors_of_a_frame_function_name_its_line(spark: SparkSession, trades: DataFrame) -> None:
    def broken(trades: DataFrame) -> DataFrame:
        raise RuntimeError("no\nsuch luck")

    made = transform(reads=Trades.size, writes=Trades.score, name="broken")(broken)
    with pytest.raises(
        TransformFailed, match=r"test_execute\.py:\d+: transform broken raised RuntimeError: no$"
    ):
        outcome(spark, trades, made)
    calls = []

    def busy(trades: DataFrame) -> DataFrame:
        calls.append(1)
        if len(calls) < 5:
            raise TimeoutError("busy")
        return trades.withColumn("score", F.lit(1.0))

    retried = transform(reads=Trades.size, writes=Trades.score, retry=Retry(first=0.001))(busy)
    assert len(outcome(spark, trades, retried)) == ROWS
    assert len(calls) <= 7


def test_a_function_that_needs_rows_is_checked_with_them(spark: SparkSession, trades: DataFrame) -> None:
    def peeks(trades: DataFrame) -> DataFrame:
        first = trades.first()
        assert first is not None
        return trades.withColumn("score", F.lit(float(first["size"])) + F.col("price"))

    made = transform(reads=Trades.size, writes=Trades.score, name="peeks")(peeks)
    [unchecked] = check_pipeline(spark, only(made, outputs=Scored), [{}]).unchecked
    assert unchecked.transform == "peeks"
    assert unchecked.reason == "it looks at rows while it is planned"
    with pytest.raises(
        UndeclaredRead, match=r"transform peeks reads trades\.price, which it does not declare"
    ):
        outcome(spark, trades, made)


def test_an_upstream_error_inside_a_frame_function_keeps_its_type(
    spark: SparkSession, trades: DataFrame
) -> None:
    def counts(trades: DataFrame) -> DataFrame:
        return trades.withColumn("region", F.lit(str(trades.agg(F.sum("score")).first())))

    after = transform(reads=Trades.score, writes=Trades.region, name="counts")(counts)
    before = arrow(lambda trades: trades["price"])

    class Both(Table, name="trades"):
        score: float
        region: str | None

    with pytest.raises(UndeclaredRead, match=r"transform made reads trades\.price"):
        only(before, after, outputs=Both).run_on(Dataset({"trades": trades}), spark=spark)


def test_a_table_class_can_be_used_inside_a_worker(spark: SparkSession, trades: DataFrame) -> None:
    class Local(Table, name="trades"):
        score: float

    def with_schema(trades: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"score": [1.0] * trades.num_rows}, schema=Local.arrow_schema())

    assert len(outcome(spark, trades, arrow(with_schema))) == ROWS
