"""The pipelines that are measured, and the functions that they share with the plain scripts.

Four stages, each of which needs the one before: drop small trades, notional, fee, net. In `frames`
every stage is a DataFrame transform; in `mixed` the two in the middle are Arrow transforms that
compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps

LEAST, LARGE = 50, 20_000.0
FEE, LARGE_FEE = 0.001, 0.0005


class Trades(ps.Table):
    id: int
    symbol: str
    price: float
    quantity: int
    at: datetime
    notional: float = ps.derived()
    fee: float = ps.derived()
    net: float = ps.derived()


def validate(trades: DataFrame) -> DataFrame:
    return trades.where((F.col("quantity") >= LEAST) & (F.col("price") > 0))


def notional(trades: DataFrame) -> DataFrame:
    return trades.withColumn("notional", F.col("price") * F.col("quantity"))


def fee(trades: DataFrame) -> DataFrame:
    rate = F.when(F.col("notional") >= LARGE, LARGE_FEE).otherwise(FEE)
    return trades.withColumn("fee", F.col("notional") * rate)


def net(trades: DataFrame) -> DataFrame:
    return trades.withColumn("net", F.col("notional") - F.col("fee"))


def arrow_notional(trades: pa.RecordBatch) -> pa.RecordBatch:
    made = pc.multiply(trades["price"], pc.cast(trades["quantity"], pa.float64()))
    return pa.RecordBatch.from_arrays([made], names=["notional"])


def arrow_fee(trades: pa.RecordBatch) -> pa.RecordBatch:
    rate = pc.if_else(pc.greater_equal(trades["notional"], LARGE), LARGE_FEE, FEE)
    return pa.RecordBatch.from_arrays([pc.multiply(trades["notional"], rate)], names=["fee"])


def with_arrow(trades: DataFrame) -> DataFrame:
    """The two Arrow functions as a plain script runs them: in one `mapInArrow`."""

    def both(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            more = batch.append_column("notional", arrow_notional(batch)["notional"])
            yield more.append_column("fee", arrow_fee(more)["fee"])

    made = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in trades.schema)
    return trades.mapInArrow(both, f"{made}, notional double, fee double")


PLAIN = (validate, notional, fee, net)
"""The stages for a plain script."""

_validate = ps.transform(reads=[Trades.quantity, Trades.price], drops=Trades)(validate)
_net = ps.transform(reads=[Trades.notional, Trades.fee], writes=Trades.net)(net)

frames = ps.Pipeline(
    "bench-frames",
    inputs=Trades,
    outputs=Trades,
    transforms=[
        _validate,
        ps.transform(reads=[Trades.price, Trades.quantity], writes=Trades.notional)(notional),
        ps.transform(reads=Trades.notional, writes=Trades.fee)(fee),
        _net,
    ],
)

mixed = ps.Pipeline(
    "bench-mixed",
    inputs=Trades,
    outputs=Trades,
    transforms=[
        _validate,
        ps.arrow_transform(reads=[Trades.price, Trades.quantity], writes=Trades.notional)(arrow_notional),
        ps.arrow_transform(reads=Trades.notional, writes=Trades.fee)(arrow_fee),
        _net,
    ],
)
