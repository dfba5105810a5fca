"""The pipeline of the runner's tests: validate → enrich (Arrow) → aggregate.

It looks into a folder of *hooks* while it runs, so that a test can hold it at a partition, or make a
partition fail, from another process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps

ROWS = 4_000
PARTITION = 1_000


class Trades(ps.Table):
    id: int
    symbol: str
    price: float
    quantity: int
    notional: float = ps.derived()


class Positions(ps.Table):
    symbol: str
    trades: int
    notional: float


hooks = ps.Resource("hooks", lambda: os.environ.get("PENSTOCK_TEST_HOOKS", ""))


@ps.transform(reads=Trades.quantity, drops=Trades)
def validate(trades: DataFrame) -> DataFrame:
    return trades.where(F.col("quantity") > 0)


@ps.arrow_transform(reads=[Trades.id, Trades.price, Trades.quantity, hooks], writes=Trades.notional)
def enrich(trades: pa.RecordBatch, hooks: str) -> pa.RecordBatch:
    if hooks:
        visit(Path(hooks), pc.min(trades["id"]).as_py() // PARTITION)
    notional = pc.multiply(trades["price"], pc.cast(trades["quantity"], pa.float64()))
    return pa.RecordBatch.from_arrays([notional], names=["notional"])


@ps.transform(reads=[Trades.symbol, Trades.notional], writes=Positions, by=ps.partition)
def aggregate(trades: DataFrame) -> DataFrame:
    return trades.groupBy("symbol").agg(F.count("*").alias("trades"), F.sum("notional").alias("notional"))


pipeline = ps.Pipeline(
    "runner-trades", inputs=Trades, outputs=[Trades, Positions], transforms=[validate, enrich, aggregate]
)

row_by_row = ps.Pipeline("runner-rows", inputs=Trades, outputs=Trades, transforms=[validate, enrich])
"""Without an aggregation, so that small partitions are computed together."""


def visit(folder: Path, partition: int) -> None:
    """Wait while ``block-N`` exists, after saying so in ``reached-N``; fail if ``fail-N`` exists."""
    (folder / f"visits-{partition}").open("a").write("x")
    if (folder / f"fail-{partition}").exists():
        raise ValueError(f"partition {partition} is bad")
    while (folder / f"block-{partition}").exists():
        (folder / f"reached-{partition}").touch()
        time.sleep(0.02)


def make_input(path: Path, rows: int = ROWS) -> pa.Table:
    """Trades with whole-numbered prices, so that sums are exact in any order."""
    import pyarrow.parquet as pq

    ids = list(range(rows))
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "symbol": [f"S{i % 7}" for i in ids],
            "price": pa.array([float(i % 50 + 1) for i in ids]),
            "quantity": pa.array([i % 11 - 1 for i in ids], pa.int64()),
        }
    )
    pq.write_table(table, path, row_group_size=500)
    return table


def expected(table: pa.Table) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What the pipeline must make of the input, computed without Spark and without Penstock."""
    rows = [r | {"notional": r["price"] * r["quantity"]} for r in table.to_pylist() if r["quantity"] > 0]
    totals: dict[str, dict[str, Any]] = {}
    for row in rows:
        total = totals.setdefault(row["symbol"], {"symbol": row["symbol"], "trades": 0, "notional": 0.0})
        total["trades"] += 1
        total["notional"] += row["notional"]
    return rows, sorted(totals.values(), key=lambda t: str(t["symbol"]))
