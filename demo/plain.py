"""The same computation in plain Spark, without Penstock, and an exact comparison of the results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps

_KEY = [("account", "ascending"), ("symbol", "ascending")]


def compute(spark: SparkSession, source: Path, folder: Path) -> None:
    """Read, transform and write everything in one go."""
    rates = spark.createDataFrame(
        [("USD", "1.0000"), ("EUR", "1.0842"), ("GBP", "1.2671"), ("JPY", "0.0067"), ("CHF", "1.1320")],
        "currency string, rate string",
    ).select("currency", F.col("rate").cast("decimal(8,4)"))
    trades = (
        spark.read.parquet(str(source))
        .where("quantity <> 0 AND price > 0")
        .join(F.broadcast(rates), "currency")
        .withColumn("notional", F.expr("CAST(price * quantity AS decimal(22,2))"))
    )
    positions = trades.groupBy("account", "symbol").agg(
        F.expr("count(1) AS trades"),
        F.expr("sum(quantity) AS quantity"),
        F.expr("CAST(sum(notional * rate) AS decimal(38,6)) AS usd"),
    )
    trades.write.parquet(str(folder / "trades"))
    positions.write.parquet(str(folder / "positions"))


@dataclass(frozen=True, slots=True)
class Comparison:
    table: str
    rows: int
    plain_rows: int
    equal: bool


def compare(output: ps.Output, folder: Path) -> list[Comparison]:
    """Row by row, without Spark: what the run published against what plain Spark wrote."""
    trades = output.arrow("trades").sort_by("trade_id")
    sums = output.arrow("positions").group_by(["account", "symbol"])
    totals = sums.aggregate([("trades", "sum"), ("quantity", "sum"), ("usd", "sum")])
    positions = totals.rename_columns(["account", "symbol", "trades", "quantity", "usd"]).sort_by(_KEY)
    return [
        _compared("trades", trades, pq.read_table(folder / "trades").sort_by("trade_id")),
        _compared("positions", positions, pq.read_table(folder / "positions").sort_by(_KEY)),
    ]


def _compared(name: str, ours: pa.Table, plain: pa.Table) -> Comparison:
    same = set(ours.column_names) == set(plain.column_names)
    equal = same and ours.equals(plain.select(ours.column_names).cast(ours.schema))
    return Comparison(name, ours.num_rows, plain.num_rows, equal)
