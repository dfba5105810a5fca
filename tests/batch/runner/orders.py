"""A pipeline with exchanges: rows of orders and of accounts → by account → everything.

| phase | cut | what happens |
|---|---|---|
| 0 | rows of orders | validate drops rows, price (Arrow) looks into the folder of hooks |
| 1 | rows of accounts | nothing: they are only exchanged |
| 2 | keys: account | positions by account and symbol, their share, and sales with the region of the account |
| 3 | everything | the three largest positions |
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import penstock as ps
from penstock.batch.exchange.run_files import ExchangeWriter
from tests.batch.runner.trades import visit

ROWS, PARTITION = 3_000, 1_000
ACCOUNTS = 40
RUN_FILE = 99
"""What the writing of run files is called in the folder of hooks."""


class Orders(ps.Table):
    id: int
    account: int
    symbol: str
    quantity: int
    value: int = ps.derived()


class Accounts(ps.Table):
    account: int
    region: str


class Positions(ps.Table):
    account: int
    symbol: str
    orders: int
    value: int
    largest: bool = ps.derived()


class Sales(ps.Table):
    account: int
    region: str
    value: int


class Top(ps.Table):
    account: int
    symbol: str
    value: int


hooks = ps.Resource("hooks", lambda: os.environ.get("PENSTOCK_TEST_HOOKS", ""))


@ps.transform(reads=Orders.quantity, drops=Orders)
def validate(orders: DataFrame) -> DataFrame:
    return orders.where(F.col("quantity") > 0)


@ps.arrow_transform(reads=[Orders.id, Orders.quantity, hooks], writes=Orders.value)
def price(orders: pa.RecordBatch, hooks: str) -> pa.RecordBatch:
    if hooks and orders.num_rows:
        visit(Path(hooks), pc.min(orders["id"]).as_py() // PARTITION)
    value = pc.multiply(orders["quantity"], pc.add(pc.bit_wise_and(orders["id"], 63), 1))
    return pa.RecordBatch.from_arrays([value], names=["value"])


@ps.transform(reads=[Orders.account, Orders.symbol, Orders.value], writes=Positions, by=Orders.account)
def positions(orders: DataFrame) -> DataFrame:
    return orders.groupBy("account", "symbol").agg(
        F.count("*").alias("orders"), F.sum("value").alias("value")
    )


@ps.transform(reads=[Positions.account, Positions.value], writes=Positions.largest)
def share(positions: DataFrame) -> DataFrame:
    most = F.max("value").over(Window.partitionBy("account"))
    return positions.withColumn("largest", F.col("value") == most)


@ps.transform(reads=[Orders.account, Orders.value, Accounts.account, Accounts.region], writes=Sales)
def sales(orders: DataFrame, accounts: DataFrame) -> DataFrame:
    joined = orders.join(accounts, "account")
    return joined.groupBy("account", "region").agg(F.sum("value").alias("value"))


@ps.transform(reads=[Positions.account, Positions.symbol, Positions.value], writes=Top)
def top(positions: DataFrame) -> DataFrame:
    ordered = positions.select("account", "symbol", "value").orderBy(F.desc("value"), "account", "symbol")
    return ordered.limit(3)


pipeline = ps.Pipeline(
    "orders",
    inputs=[Orders, Accounts],
    outputs=[Orders, Positions, Sales, Top],
    transforms=[validate, price, positions, share, sales, top],
)


class HeldWriter(ExchangeWriter):
    """A writer of run files that can be held in the middle of one."""

    def _write_chunk(self, *given: Any) -> Any:
        counts = ExchangeWriter._write_chunk(self, *given)
        visit(Path(os.environ["PENSTOCK_TEST_HOOKS"]), RUN_FILE)
        return counts


def make_inputs(folder: Path) -> tuple[pa.Table, pa.Table]:
    """Orders with some accounts far busier than others, and one without an order; in whole numbers."""
    import pyarrow.parquet as pq

    ids = range(ROWS)
    orders = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "account": pa.array([i % 3 if i % 4 == 0 else i % (ACCOUNTS - 1) for i in ids], pa.int64()),
            "symbol": [f"S{i % 7}" for i in ids],
            "quantity": pa.array([i % 11 - 1 for i in ids], pa.int64()),
        }
    )
    accounts = pa.table(
        {
            "account": pa.array(range(ACCOUNTS), pa.int64()),
            "region": [f"R{i % 3}" for i in range(ACCOUNTS)],
        }
    )
    pq.write_table(orders, folder / "orders.parquet", row_group_size=500)
    pq.write_table(accounts, folder / "accounts.parquet")
    return orders, accounts


def expected(orders: pa.Table, accounts: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """What the pipeline must make of the inputs, computed without Spark and without Penstock."""
    rows = [
        r | {"value": r["quantity"] * (r["id"] % 64 + 1)} for r in orders.to_pylist() if r["quantity"] > 0
    ]
    totals: dict[tuple[int, str], dict[str, Any]] = {}
    sold: dict[int, int] = {}
    for row in rows:
        key = row["account"], row["symbol"]
        total = totals.setdefault(key, {"account": key[0], "symbol": key[1], "orders": 0, "value": 0})
        total["orders"] += 1
        total["value"] += row["value"]
        sold[row["account"]] = sold.get(row["account"], 0) + row["value"]
    most = {a: max(t["value"] for t in totals.values() if t["account"] == a) for a in sold}
    ranked = sorted(totals.values(), key=lambda t: (-t["value"], t["account"], t["symbol"]))
    regions = {r["account"]: r["region"] for r in accounts.to_pylist()}
    return {
        "orders": rows,
        "positions": [totals[k] | {"largest": totals[k]["value"] == most[k[0]]} for k in sorted(totals)],
        "sales": [{"account": a, "region": regions[a], "value": sold[a]} for a in sorted(sold)],
        "top": [{"account": t["account"], "symbol": t["symbol"], "value": t["value"]} for t in ranked[:3]],
    }
