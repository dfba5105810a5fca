"""Queries 1 to 4 of TPC-H."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

import penstock
from penstock import Pipeline, Precision, Table, transform
from tpch.columns import revenue
from tpch.tables import Customer, Lineitem, Money, Nation, Orders, Part, Partsupp, Region, Supplier, Total

Charge = Annotated[Decimal, Precision(38, 6)]
Mean = Annotated[Decimal, Precision(19, 6)]


# Query 1: pricing summary.


class PricingSums(Table):
    """Sums over one partition of the line items."""

    l_returnflag: str
    l_linestatus: str
    quantity: Annotated[Decimal, Precision(25, 2)]
    price: Annotated[Decimal, Precision(25, 2)]
    discounted: Total
    charged: Charge
    discount: Annotated[Decimal, Precision(25, 2)]
    lines: int


class PricingSummary(Table):
    l_returnflag: str
    l_linestatus: str
    sum_qty: Annotated[Decimal, Precision(35, 2)]
    sum_base_price: Annotated[Decimal, Precision(35, 2)]
    sum_disc_price: Total
    sum_charge: Charge
    avg_qty: Mean
    avg_price: Mean
    avg_disc: Mean
    count_order: int


@transform(
    reads=[
        *(Lineitem.l_returnflag, Lineitem.l_linestatus, Lineitem.l_shipdate, Lineitem.l_quantity),
        *(Lineitem.l_extendedprice, Lineitem.l_discount, Lineitem.l_tax),
    ],
    writes=PricingSums,
    by=penstock.partition,
)
def pricing_sums(lineitem: DataFrame) -> DataFrame:
    """Four groups of very many rows: each partition adds up its own, and no row has to move."""
    return (
        lineitem.where(F.col("l_shipdate") <= date(1998, 9, 2))
        .groupBy("l_returnflag", "l_linestatus")
        .agg(
            F.sum("l_quantity").alias("quantity"),
            F.sum("l_extendedprice").alias("price"),
            F.sum(revenue()).alias("discounted"),
            F.sum(revenue() * (1 + F.col("l_tax"))).alias("charged"),
            F.sum("l_discount").alias("discount"),
            F.count("*").alias("lines"),
        )
    )


@transform(reads=PricingSums, writes=PricingSummary)
def pricing_summary(pricing_sums: DataFrame) -> DataFrame:
    def mean(column: str) -> Column:
        return (F.sum(column) / F.sum("lines")).cast("decimal(19,6)")

    return (
        pricing_sums.groupBy("l_returnflag", "l_linestatus")
        .agg(
            F.sum("quantity").alias("sum_qty"),
            F.sum("price").alias("sum_base_price"),
            F.sum("discounted").alias("sum_disc_price"),
            F.sum("charged").alias("sum_charge"),
            mean("quantity").alias("avg_qty"),
            mean("price").alias("avg_price"),
            mean("discount").alias("avg_disc"),
            F.sum("lines").alias("count_order"),
        )
        .orderBy("l_returnflag", "l_linestatus")
    )


q1 = Pipeline(
    "q1",
    inputs=Lineitem,
    outputs=PricingSummary,
    transforms=[pricing_sums, pricing_summary],
)


# Query 2: minimum cost supplier.


class MinimumCostSupplier(Table):
    s_acctbal: Money
    s_name: str
    n_name: str
    p_partkey: int
    p_mfgr: str
    s_address: str
    s_phone: str
    s_comment: str


class CheapestOffers(MinimumCostSupplier):
    """For each part, what the cheapest suppliers of the region are."""


@transform(
    reads=[
        *(Part.p_partkey, Part.p_mfgr, Part.p_size, Part.p_type),
        *(Partsupp.ps_partkey, Partsupp.ps_suppkey, Partsupp.ps_supplycost),
        *(Supplier, Nation, Region),
    ],
    writes=CheapestOffers,
)
def cheapest_offers(
    part: DataFrame, partsupp: DataFrame, supplier: DataFrame, nation: DataFrame, region: DataFrame
) -> DataFrame:
    european = (
        supplier.join(nation, F.col("s_nationkey") == F.col("n_nationkey"))
        .join(region, F.col("n_regionkey") == F.col("r_regionkey"))
        .where(F.col("r_name") == "EUROPE")
    )
    wanted = part.where((F.col("p_size") == 15) & F.col("p_type").endswith("BRASS"))
    lowest = F.min("ps_supplycost").over(Window.partitionBy("p_partkey"))
    return (
        wanted.join(partsupp, F.col("p_partkey") == F.col("ps_partkey"))
        .join(european, F.col("ps_suppkey") == F.col("s_suppkey"))
        .withColumn("lowest", lowest)
        .where(F.col("ps_supplycost") == F.col("lowest"))
        .select(*CheapestOffers.arrow_schema().names)
    )


@transform(reads=CheapestOffers, writes=MinimumCostSupplier)
def minimum_cost_supplier(cheapest_offers: DataFrame) -> DataFrame:
    return cheapest_offers.orderBy(F.desc("s_acctbal"), "n_name", "s_name", "p_partkey").limit(100)


q2 = Pipeline(
    "q2",
    inputs=[Part, Partsupp, Supplier, Nation, Region],
    outputs=MinimumCostSupplier,
    transforms=[cheapest_offers, minimum_cost_supplier],
)


# Query 3: shipping priority.


class BuildingOrders(Table):
    """Orders of the building industry before a day."""

    o_orderkey: int
    o_orderdate: date
    o_shippriority: int


class ShippingPriority(Table):
    l_orderkey: int
    revenue: Total
    o_orderdate: date
    o_shippriority: int


class UnshippedOrders(ShippingPriority):
    """What such orders are worth that were not shipped by then."""


@transform(
    reads=[
        *(Customer.c_custkey, Customer.c_mktsegment),
        *(Orders.o_orderkey, Orders.o_custkey, Orders.o_orderdate, Orders.o_shippriority),
    ],
    writes=BuildingOrders,
)
def building_orders(customer: DataFrame, orders: DataFrame) -> DataFrame:
    building = customer.where(F.col("c_mktsegment") == "BUILDING")
    early = orders.where(F.col("o_orderdate") < date(1995, 3, 15))
    return early.join(building, F.col("o_custkey") == F.col("c_custkey")).select(
        "o_orderkey", "o_orderdate", "o_shippriority"
    )


@transform(
    reads=[
        BuildingOrders,
        *(Lineitem.l_orderkey, Lineitem.l_extendedprice, Lineitem.l_discount, Lineitem.l_shipdate),
    ],
    writes=UnshippedOrders,
)
def unshipped_orders(building_orders: DataFrame, lineitem: DataFrame) -> DataFrame:
    late = lineitem.where(F.col("l_shipdate") > date(1995, 3, 15))
    return (
        building_orders.join(late, F.col("o_orderkey") == F.col("l_orderkey"))
        .groupBy("l_orderkey", "o_orderdate", "o_shippriority")
        .agg(F.sum(revenue()).alias("revenue"))
    )


@transform(reads=UnshippedOrders, writes=ShippingPriority)
def shipping_priority(unshipped_orders: DataFrame) -> DataFrame:
    return unshipped_orders.orderBy(F.desc("revenue"), "o_orderdate", "l_orderkey").limit(10)


q3 = Pipeline(
    "q3",
    inputs=[Customer, Orders, Lineitem],
    outputs=ShippingPriority,
    transforms=[building_orders, unshipped_orders, shipping_priority],
)


# Query 4: order priority checking.


class LateOrders(Table):
    """Orders of a quarter of which something arrived late."""

    o_orderkey: int
    o_orderpriority: str


class OrderPriorityChecking(Table):
    o_orderpriority: str
    order_count: int


@transform(
    reads=[
        *(Orders.o_orderkey, Orders.o_orderdate, Orders.o_orderpriority),
        *(Lineitem.l_orderkey, Lineitem.l_commitdate, Lineitem.l_receiptdate),
    ],
    writes=LateOrders,
)
def late_orders(orders: DataFrame, lineitem: DataFrame) -> DataFrame:
    quarter = orders.where(F.col("o_orderdate").between(date(1993, 7, 1), date(1993, 9, 30)))
    late = lineitem.where(F.col("l_commitdate") < F.col("l_receiptdate"))
    found = quarter.join(late, F.col("o_orderkey") == F.col("l_orderkey"), "left_semi")
    return found.select("o_orderkey", "o_orderpriority")


@transform(reads=LateOrders.o_orderpriority, writes=OrderPriorityChecking)
def order_priority_checking(late_orders: DataFrame) -> DataFrame:
    counted = late_orders.groupBy("o_orderpriority").agg(F.count("*").alias("order_count"))
    return counted.orderBy("o_orderpriority")


q4 = Pipeline(
    "q4",
    inputs=[Orders, Lineitem],
    outputs=OrderPriorityChecking,
    transforms=[late_orders, order_priority_checking],
)
