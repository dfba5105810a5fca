"""Outputs with an order: files whose rows are sorted from the first to the last, as Spark would sort them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from penstock.batch.runs import exchanges
from penstock.errors import DefinitionError, PenstockError, UnknownField

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, PARTITION = 6_000, 1_500
BIG: dict[str, Any] = {"small_bytes": 0, "whole_bytes": 0, "range_bytes": 20_000}
"""Settings with which a few rows are cut as many would be."""


class Trades(ps.Table):
    id: int
    symbol: str | None
    price: float | None
    double: float | None = ps.derived()


class Positions(ps.Table):
    symbol: str | None
    trades: int
    highest: float | None


@ps.arrow_transform(reads=Trades.price, writes=Trades.double)
def double(trades: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pc.multiply(trades["price"], 2.0)], names=["double"])


@ps.transform(reads=[Trades.symbol, Trades.price], writes=Positions)
def positions(trades: DataFrame) -> DataFrame:
    return trades.groupBy("symbol").agg(F.count("*").alias("trades"), F.max("price").alias("highest"))


def make(**more: Any) -> ps.Pipeline:
    outputs = more.pop("outputs", [Trades, Positions])
    return ps.Pipeline("sorted", inputs=Trades, outputs=outputs, transforms=[double, positions], **more)


# A type checker takes a field for a value of its annotation.
trade: Any = Trades
position: Any = Positions
BY_PRICE = [trade.price.desc(), trade.symbol]
BY_TRADES = [position.trades, position.symbol.desc()]


def rows(count: int = ROWS) -> pa.Table:
    """Prices with NULL, NaN, both zeros and many ties; every third row has one symbol."""
    random = Random(7)
    special = [None, math.nan, -0.0, 0.0, math.inf, -math.inf]
    prices = [
        random.choice(special) if random.random() < 0.2 else random.randrange(500) / 4 for _ in range(count)
    ]
    symbols = [
        None if n % 11 == 0 else "hot" if n % 3 == 0 else f"S{random.randrange(900)}" for n in range(count)
    ]
    schema = Trades.input_schema()
    return pa.table({"id": range(count), "symbol": symbols, "price": prices}, schema=schema)


class SortedPlace:
    """A store, a storage and an input of trades."""

    def __init__(self, path: Path, spark: SparkSession) -> None:
        self.path, self.spark = path, spark
        self.store = ps.open_store(f"sqlite:///{path}/store.db")
        self.storage = ps.Storage(path / "storage")

    def register(self, table: pa.Table) -> None:
        pq.write_table(table, self.path / "trades.parquet", row_group_size=1000)
        source = str(self.path / "trades.parquet")
        ps.register(None, self.store, self.storage, "trades", source, partition_rows=PARTITION)

    def run(self, pipeline: ps.Pipeline, **options: Any) -> ps.Output:
        config = ps.RunnerConfig(instance="here", **options)
        runner = ps.Runner(
            pipeline, self.store, self.storage, config, spark=self.spark, listener=lambda _: None
        )
        report = runner.run()
        assert report.ending == "complete", report
        proof = ps.verify(self.store, pipeline.name)
        assert proof.ok, proof
        assert [each.name for each in proof.checks].count("sorted outputs") == 1
        return ps.Output(self.store, pipeline.name)

    def assert_sorted(self, output: ps.Output, table: str, columns: list[Any], names: list[str]) -> None:
        """All rows once, and their keys as Spark has them when it sorts everything."""
        source = self.spark.read.schema(Trades.spark_schema(["id", "symbol", "price"])).parquet(
            str(self.path / "trades.parquet")
        )
        plain = make().run_on(ps.Dataset({"trades": source}), spark=self.spark).tables[table]
        assert isinstance(plain, DataFrame)
        wanted = [tuple(row) for row in plain.orderBy(*columns).select(*names).collect()]
        found = output.arrow(table)
        assert texts(zip(*(found[name].to_pylist() for name in names), strict=True)) == texts(wanted)
        everything = [tuple(row) for row in plain.collect()]
        assert sorted(texts(tuple(r.values()) for r in found.to_pylist())) == sorted(texts(everything))


def texts(found: Any) -> list[str]:
    """Rows that can be compared: NaN is NaN, and -0.0 is 0.0."""
    return [str(tuple(v + 0.0 if isinstance(v, float) else v for v in row)) for row in found]


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Iterator[SortedPlace]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    place = SortedPlace(tmp_path, spark)
    yield place
    place.store.close()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_outputs_of_row_ranges_and_of_key_ranges(place: SortedPlace, form: str) -> None:
    place.register(rows())
    pipeline = make(order_by={Trades: BY_PRICE, Positions: BY_TRADES})
    output = place.run(pipeline, output_format=form, **BIG)
    place.assert_sorted(output, "trades", [F.desc("price"), F.asc("symbol")], ["price", "symbol"])
    place.assert_sorted(output, "positions", [F.asc("trades"), F.desc("symbol")], ["trades", "symbol"])
    cuts = [phase.cut for phase in output.run.phases]
    assert cuts[2:] == ["order of positions by trades, symbol desc", "order of trades by price desc, symbol"]
    assert [phase.outputs for phase in output.run.phases] == [(), (), ("positions",), ("trades",)]
    plan = exchanges.find_plan(place.store, output.run, 3)
    assert plan is not None and len(plan.ranges) >= 4
    assert len(output.files("trades")) == len(plan.ranges)
    assert sum(each.rows for each in plan.ranges) == ROWS
    left = place.storage.list(f"runs/{output.run.place(0)}/exchange")
    assert left == []  # swept when all had read them


def test_one_claim_that_has_all_rows_lets_spark_sort(place: SortedPlace) -> None:
    place.register(rows(500))
    output = place.run(make(order_by={Trades: BY_PRICE, Positions: BY_TRADES}))
    assert [phase.cut for phase in output.run.phases] == ["everything"]
    assert output.run.fingerprint.phases[0].endswith(
        "sorts positions by trades, symbol desc; sorts trades by price desc, symbol"
    )
    place.assert_sorted(output, "trades", [F.desc("price"), F.asc("symbol")], ["price", "symbol"])
    place.assert_sorted(output, "positions", [F.asc("trades"), F.desc("symbol")], ["trades", "symbol"])


def test_one_key_with_all_rows_is_in_several_ranges(place: SortedPlace) -> None:
    table = rows()
    same = pa.array(["same"] * ROWS, pa.string())
    place.register(table.set_column(1, table.schema.field("symbol"), same))
    output = place.run(make(outputs=[Trades], order_by=Trades.symbol), **BIG)
    assert len(output.files("trades")) == ROWS // PARTITION
    # Equal rows stay in the order of their partitions.
    assert output.arrow("trades")["id"].to_pylist() == list(range(ROWS))


def test_an_input_without_rows(place: SortedPlace) -> None:
    place.register(rows(0))
    output = place.run(make(order_by={Trades: BY_PRICE}), **BIG)
    assert output.arrow("trades").num_rows == 0
    assert output.schema("trades").equals(Trades.arrow_schema())


def test_another_order_does_not_join_a_run_that_was_begun(place: SortedPlace) -> None:
    place.register(rows(2_000))
    place.run(make(outputs=[Trades], order_by=[Trades.id]), **BIG)
    with pytest.raises(PenstockError, match="sorted by id"):
        place.run(make(outputs=[Trades], order_by=[trade.id.desc()]), **BIG)


def test_verify_finds_files_that_are_not_sorted(place: SortedPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.register(rows(2_000))
    output = place.run(make(outputs=[Trades], order_by=[Trades.id]), **BIG)
    assert len(output.files("trades")) > 1
    turned = list(reversed(output.files("trades")))
    monkeypatch.setattr(ps.Output, "files", lambda *_: turned)
    proof = ps.verify(place.store, "sorted")
    assert [check.name for check in proof.checks if not check.ok] == ["sorted outputs"]


def test_a_pipeline_on_a_dataset_is_sorted_too(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(1, "b", 1.0), (2, None, 2.0), (3, "a", None)], "id bigint, symbol string, price double"
    )
    pipeline = make(outputs=[Trades], order_by=trade.symbol.desc())
    made = pipeline.run_on(ps.Dataset({"trades": frame}), spark=spark).tables["trades"]
    assert isinstance(made, DataFrame)
    assert [row["id"] for row in made.collect()] == [1, 3, 2]


class Listed(ps.Table):
    words: list[str]
    id: int


WRONG: list[tuple[Callable[[], Any], type[DefinitionError], str]] = [
    (lambda: make(order_by=[Trades.id]), DefinitionError, "has 2 outputs and one order_by"),
    (lambda: make(order_by={Listed: [Listed.id]}), DefinitionError, "listed>, which is none of its outputs"),
    (
        lambda: make(outputs=Positions, order_by=Trades.id),
        UnknownField,
        "trades.id in the order_by of positions",
    ),
    (lambda: make(outputs=Trades, order_by=[]), DefinitionError, r"has order_by=\[\]"),
    (lambda: make(outputs=Trades, order_by="id"), DefinitionError, "has 'i' in order_by"),
    (lambda: make(outputs=Trades, order_by=[trade.id, trade.id.desc()]), DefinitionError, "trades.id twice"),
    (
        lambda: ps.Pipeline("listed", inputs=Listed, outputs=Listed, transforms=[], order_by=Listed.words),
        DefinitionError,
        "listed.words in order_by, which is list",
    ),
]


@pytest.mark.parametrize(("build", "kind", "what"), WRONG)
def test_what_cannot_be_sorted_is_an_error_with_a_line(
    build: Callable[[], Any], kind: type[DefinitionError], what: str
) -> None:
    with pytest.raises(kind, match=what) as raised:
        build()
    assert "test_order_by.py:" in raised.value.what
