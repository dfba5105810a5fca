"""The pipelines that are measured, and the functions that they share with the plain scripts.

Each has a step that looks at every row by itself, and then one that brings rows together by a key.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import penstock as ps

LEAST = 50
Money = Annotated[Decimal, ps.Precision(15, 2)]


class Trades(ps.Table):
    id: int
    account: int
    symbol: str
    cents: int
    quantity: int
    at: datetime
    notional: int = ps.derived()


class Accounts(ps.Table):
    id: int
    region: int
    name: str


class Positions(ps.Table):
    account: int
    trades: int
    notional: int
    largest: int
    last: datetime


class Balances(ps.Table):
    id: int
    account: int
    number: int
    balance: int


class Owned(ps.Table):
    id: int
    account: int
    region: int
    name: str
    notional: int


class Orders(ps.Table):
    o_orderkey: int
    o_custkey: int
    o_orderdate: date
    o_orderpriority: str


class Lineitem(ps.Table):
    l_orderkey: int
    l_linenumber: int
    l_partkey: int
    l_extendedprice: Money
    l_discount: Money
    l_shipdate: date
    revenue: Annotated[Decimal, ps.Precision(32, 4)] = ps.derived()


class Lines(ps.Table):
    l_orderkey: int
    l_linenumber: int
    l_partkey: int
    l_shipdate: date
    o_custkey: int
    o_orderdate: date
    o_orderpriority: str
    revenue: Annotated[Decimal, ps.Precision(32, 4)]


def valued(trades: DataFrame) -> DataFrame:
    large = trades.where(F.col("quantity") >= LEAST)
    return large.withColumn("notional", F.col("cents") * F.col("quantity"))


def positions(trades: DataFrame) -> DataFrame:
    return trades.groupBy("account").agg(
        F.count("*").alias("trades"),
        F.sum("notional").alias("notional"),
        F.max("notional").alias("largest"),
        F.max("at").alias("last"),
    )


def balances(trades: DataFrame) -> DataFrame:
    of_account = Window.partitionBy("account").orderBy("at", "id")
    return trades.select(
        "id",
        "account",
        F.row_number().over(of_account).cast("long").alias("number"),
        F.sum("notional").over(of_account).alias("balance"),
    )


def owned(trades: DataFrame, accounts: DataFrame) -> DataFrame:
    found = trades.join(accounts.withColumnRenamed("id", "account"), "account")
    return found.select("id", "account", "region", "name", "notional")


def priced(lineitem: DataFrame) -> DataFrame:
    return lineitem.withColumn("revenue", F.col("l_extendedprice") * (1 - F.col("l_discount")))


def lines(lineitem: DataFrame, orders: DataFrame) -> DataFrame:
    found = lineitem.join(orders, F.col("l_orderkey") == F.col("o_orderkey"))
    return found.select(*Lines.__fields__)


_valued = ps.transform(reads=[Trades.quantity, Trades.cents], writes=Trades.notional, drops=Trades)(valued)
_used = [Trades.account, Trades.notional, Trades.at]

grouped = ps.Pipeline(
    "bench-grouped",
    inputs=Trades,
    outputs=Positions,
    transforms=[_valued, ps.transform(reads=_used, writes=Positions)(positions)],
)

windowed = ps.Pipeline(
    "bench-windowed",
    inputs=Trades,
    outputs=Balances,
    transforms=[_valued, ps.transform(reads=[Trades.id, *_used], writes=Balances)(balances)],
)

joined = ps.Pipeline(
    "bench-joined",
    inputs=[Trades, Accounts],
    outputs=Owned,
    transforms=[
        _valued,
        ps.transform(
            reads=[Trades.id, Trades.account, Trades.notional, *Accounts.__fields__.values()], writes=Owned
        )(owned),
    ],
)

tpch = ps.Pipeline(
    "bench-tpch",
    inputs=[Lineitem, Orders],
    outputs=Lines,
    transforms=[
        ps.transform(reads=[Lineitem.l_extendedprice, Lineitem.l_discount], writes=Lineitem.revenue)(priced),
        ps.transform(
            reads=[
                Lineitem.l_orderkey,
                Lineitem.l_linenumber,
                Lineitem.l_partkey,
                Lineitem.l_shipdate,
                Lineitem.revenue,
                *Orders.__fields__.values(),
            ],
            writes=Lines,
        )(lines),
    ],
)
