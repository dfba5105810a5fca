"""Queries 9 to 12 of TPC-H."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock import Pipeline, Precision, Table, transform
from tpch.columns import revenue, scale
from tpch.tables import Customer, Lineitem, Money, Nation, Orders, Part, Partsupp, Supplier, Total

# Query 9: product type profit.


class GreenLines(Table):
    """Line items of green parts, with the supplier's nation and what was earned."""

    l_orderkey: int
    nation: str
    amount: Total


class GreenProfits(Table):
    nation: str
    o_year: int
    amount: Total


class YearlyProfits(Table):
    nation: str
    o_year: int
    sum_profit: Total


class ProductTypeProfit(YearlyProfits):
    """The same in order."""


@transform(
    reads=[
        *(Part.p_partkey, Part.p_name, Partsupp.ps_partkey, Partsupp.ps_suppkey, Partsupp.ps_supplycost),
        *(Lineitem.l_orderkey, Lineitem.l_partkey, Lineitem.l_suppkey),
        *(Lineitem.l_quantity, Lineitem.l_extendedprice, Lineitem.l_discount),
        *(Supplier.s_suppkey, Supplier.s_nationkey, Nation.n_nationkey, Nation.n_name),
    ],
    writes=GreenLines,
)
def green_lines(
    part: DataFrame, partsupp: DataFrame, lineitem: DataFrame, supplier: DataFrame, nation: DataFrame
) -> DataFrame:
    green = part.where(F.col("p_name").contains("green"))
    amount = revenue() - F.col("ps_supplycost") * F.col("l_quantity")
    return (
        lineitem.join(green, F.col("l_partkey") == F.col("p_partkey"))
        .join(
            partsupp,
            (F.col("l_partkey") == F.col("ps_partkey")) & (F.col("l_suppkey") == F.col("ps_suppkey")),
        )
        .join(supplier, F.col("l_suppkey") == F.col("s_suppkey"))
        .join(nation, F.col("s_nationkey") == F.col("n_nationkey"))
        .select("l_orderkey", F.col("n_name").alias("nation"), amount.alias("amount"))
    )


@transform(reads=[GreenLines, Orders.o_orderkey, Orders.o_orderdate], writes=GreenProfits)
def green_profits(green_lines: DataFrame, orders: DataFrame) -> DataFrame:
    joined = green_lines.join(orders, F.col("l_orderkey") == F.col("o_orderkey"))
    return joined.select("nation", F.year("o_orderdate").alias("o_year"), "amount")


@transform(reads=GreenProfits, writes=YearlyProfits)
def yearly_profits(green_profits: DataFrame) -> DataFrame:
    return green_profits.groupBy("nation", "o_year").agg(F.sum("amount").alias("sum_profit"))


@transform(reads=YearlyProfits, writes=ProductTypeProfit)
def product_type_profit(yearly_profits: DataFrame) -> DataFrame:
    return yearly_profits.orderBy("nation", F.desc("o_year"))


q9 = Pipeline(
    "q9",
    inputs=[Part, Partsupp, Lineitem, Orders, Supplier, Nation],
    outputs=ProductTypeProfit,
    transforms=[
        green_lines,
        green_profits,
        yearly_profits,
        product_type_profit,
    ],
)


# Query 10: returned items.


class ReturnedOrders(Table):
    """What was returned of the orders of a quarter."""

    o_custkey: int
    revenue: Total


class ReturnedItems(Table):
    c_custkey: int
    c_name: str
    revenue: Total
    c_acctbal: Money
    n_name: str
    c_address: str
    c_phone: str
    c_comment: str


class ReturningCustomers(ReturnedItems):
    """The same for all customers."""


@transform(
    reads=[
        *(Orders.o_orderkey, Orders.o_custkey, Orders.o_orderdate),
        *(Lineitem.l_orderkey, Lineitem.l_returnflag, Lineitem.l_extendedprice, Lineitem.l_discount),
    ],
    writes=ReturnedOrders,
)
def returned_orders(orders: DataFrame, lineitem: DataFrame) -> DataFrame:
    quarter = orders.where(F.col("o_orderdate").between(date(1993, 10, 1), date(1993, 12, 31)))
    returned = lineitem.where(F.col("l_returnflag") == "R")
    joined = quarter.join(returned, F.col("o_orderkey") == F.col("l_orderkey"))
    summed = joined.groupBy("o_orderkey", "o_custkey").agg(F.sum(revenue()).alias("revenue"))
    return summed.drop("o_orderkey")


@transform(reads=[ReturnedOrders, Customer, Nation.n_nationkey, Nation.n_name], writes=ReturningCustomers)
def returning_customers(returned_orders: DataFrame, customer: DataFrame, nation: DataFrame) -> DataFrame:
    by_customer = returned_orders.groupBy("o_custkey").agg(F.sum("revenue").alias("revenue"))
    return (
        customer.join(by_customer, F.col("c_custkey") == F.col("o_custkey"))
        .join(nation, F.col("c_nationkey") == F.col("n_nationkey"))
        .select(*ReturningCustomers.arrow_schema().names)
    )


@transform(reads=ReturningCustomers, writes=ReturnedItems)
def returned_items(returning_customers: DataFrame) -> DataFrame:
    return returning_customers.orderBy(F.desc("revenue"), "c_custkey").limit(20)


q10 = Pipeline(
    "q10",
    inputs=[Customer, Orders, Lineitem, Nation],
    outputs=ReturnedItems,
    transforms=[returned_orders, returning_customers, returned_items],
)


# Query 11: important stock.

Value = Annotated[Decimal, Precision(38, 2)]


class StockValues(Table):
    """What the German suppliers have of each part."""

    ps_partkey: int
    value: Value


class ImportantStock(StockValues):
    """The parts with a large share in it."""


@transform(
    reads=[
        *(Partsupp.ps_partkey, Partsupp.ps_suppkey, Partsupp.ps_supplycost, Partsupp.ps_availqty),
        *(Supplier.s_suppkey, Supplier.s_nationkey, Nation.n_nationkey, Nation.n_name),
    ],
    writes=StockValues,
)
def stock_values(partsupp: DataFrame, supplier: DataFrame, nation: DataFrame) -> DataFrame:
    german = supplier.join(nation, F.col("s_nationkey") == F.col("n_nationkey")).where(
        F.col("n_name") == "GERMANY"
    )
    value = F.sum(F.col("ps_supplycost") * F.col("ps_availqty"))
    offers = partsupp.join(german, F.col("ps_suppkey") == F.col("s_suppkey"))
    return offers.groupBy("ps_partkey").agg(value.alias("value"))


@transform(reads=[StockValues, scale], writes=ImportantStock)
def important_stock(stock_values: DataFrame, scale: Decimal) -> DataFrame:
    least = stock_values.agg((F.sum("value") * F.lit(Decimal("0.0001") / scale)).alias("least"))
    large = stock_values.crossJoin(least).where(F.col("value") > F.col("least"))
    return large.drop("least").orderBy(F.desc("value"), "ps_partkey")


q11 = Pipeline(
    "q11",
    inputs=[Partsupp, Supplier, Nation],
    outputs=ImportantStock,
    transforms=[stock_values, important_stock],
)


# Query 12: shipping modes and order priority.


class LateLines(Table):
    """Line items of a year that came late although they were shipped in time."""

    l_shipmode: str
    o_orderpriority: str


class ShippingModes(Table):
    l_shipmode: str
    high_line_count: int
    low_line_count: int


@transform(
    reads=[
        *(Orders.o_orderkey, Orders.o_orderpriority, Lineitem.l_orderkey, Lineitem.l_shipmode),
        *(Lineitem.l_shipdate, Lineitem.l_commitdate, Lineitem.l_receiptdate),
    ],
    writes=LateLines,
)
def late_lines(orders: DataFrame, lineitem: DataFrame) -> DataFrame:
    late = lineitem.where(
        F.col("l_shipmode").isin("MAIL", "SHIP")
        & (F.col("l_commitdate") < F.col("l_receiptdate"))
        & (F.col("l_shipdate") < F.col("l_commitdate"))
        & (F.year("l_receiptdate") == 1994)
    )
    return orders.join(late, F.col("o_orderkey") == F.col("l_orderkey")).select(
        "l_shipmode", "o_orderpriority"
    )


@transform(reads=LateLines, writes=ShippingModes)
def shipping_modes(late_lines: DataFrame) -> DataFrame:
    high = F.col("o_orderpriority").isin("1-URGENT", "2-HIGH")
    counted = late_lines.groupBy("l_shipmode").agg(
        F.count_if(high).alias("high_line_count"), F.count_if(~high).alias("low_line_count")
    )
    return counted.orderBy("l_shipmode")


q12 = Pipeline(
    "q12",
    inputs=[Orders, Lineitem],
    outputs=ShippingModes,
    transforms=[late_lines, shipping_modes],
)
