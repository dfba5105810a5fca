"""A trade processor: validate → enrich → aggregate."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock import Pipeline, Precision, Resource, Table, arrow_transform, derived, transform


class Trades(Table):
    """What the venues report, and what we add to it."""

    trade_id: int
    at: datetime
    account: str
    symbol: str
    currency: str
    quantity: int
    price: Annotated[Decimal, Precision(12, 2)]
    notional: Annotated[Decimal, Precision(22, 2)] = derived()
    rate: Annotated[Decimal, Precision(8, 4)] = derived()


class Positions(Table):
    """What an account holds of a symbol."""

    account: str
    symbol: str
    trades: int
    quantity: int
    usd: Annotated[Decimal, Precision(38, 6)]


def rates() -> pa.Table:
    """Dollars for one unit of a currency."""
    dollars = {"USD": "1.0000", "EUR": "1.0842", "GBP": "1.2671", "JPY": "0.0067", "CHF": "1.1320"}
    values = pa.array([Decimal(rate) for rate in dollars.values()], pa.decimal128(8, 4))
    return pa.table({"currency": list(dollars), "rate": values})


fx = Resource("fx", load=rates)


@transform(reads=[Trades.quantity, Trades.price, Trades.currency, fx], drops=Trades)
def validate(trades: DataFrame, fx: pa.Table) -> DataFrame:
    known = F.col("currency").isin(fx["currency"].to_pylist())
    return trades.where((F.col("quantity") != 0) & (F.col("price") > 0) & known)


@transform(reads=[Trades.quantity, Trades.price], writes=Trades.notional)
def notional(trades: DataFrame) -> DataFrame:
    return trades.withColumn("notional", (F.col("price") * F.col("quantity")).cast("decimal(22,2)"))


@arrow_transform(reads=[Trades.currency, fx], writes=Trades.rate)
def rate(trades: pa.RecordBatch, fx: pa.Table) -> pa.RecordBatch:
    found = pc.index_in(trades["currency"], fx["currency"])
    return pa.record_batch({"rate": fx["rate"].combine_chunks().take(found)})


@transform(
    reads=[Trades.account, Trades.symbol, Trades.quantity, Trades.notional, Trades.rate], writes=Positions
)
def positions(trades: DataFrame) -> DataFrame:
    return trades.groupBy("account", "symbol").agg(
        F.count("*").alias("trades"),
        F.sum("quantity").alias("quantity"),
        F.sum(F.col("notional") * F.col("rate")).alias("usd"),
    )


pipeline = Pipeline(
    "positions",
    inputs=Trades,
    outputs=[Trades, Positions],
    transforms=[validate, notional, rate, positions],
)
