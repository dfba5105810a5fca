"""Queries 13 to 17 of TPC-H."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from penstock import Pipeline, Precision, Table, transform
from tpch.columns import revenue
from tpch.tables import Customer, Lineitem, Money, Orders, Part, Partsupp, Supplier, Total

# Query 13: customer distribution.


class OrderCounts(Table):
    """How many orders each customer has placed; many have none."""

    c_custkey: int
    c_count: int


class CustomerCounts(Table):
    """How many customers have placed so many orders."""

    c_count: int
    custdist: int


class CustomerDistribution(CustomerCounts):
    """The same in order."""


@transform(
    reads=[Customer.c_custkey, Orders.o_orderkey, Orders.o_custkey, Orders.o_comment], writes=OrderCounts
)
def order_counts(customer: DataFrame, orders: DataFrame) -> DataFrame:
    ordinary = orders.where(~F.col("o_comment").like("%special%requests%"))
    joined = customer.join(ordinary, F.col("c_custkey") == F.col("o_custkey"), "left")
    return joined.groupBy("c_custkey").agg(F.count("o_orderkey").alias("c_count"))


@transform(reads=OrderCounts.c_count, writes=CustomerCounts)
def customer_counts(order_counts: DataFrame) -> DataFrame:
    return order_counts.groupBy("c_count").agg(F.count("*").alias("custdist"))


@transform(reads=CustomerCounts, writes=CustomerDistribution)
def customer_distribution(customer_counts: DataFrame) -> DataFrame:
    return customer_counts.orderBy(F.desc("custdist"), F.desc("c_count"))


q13 = Pipeline(
    "q13",
    inputs=[Customer, Orders],
    outputs=CustomerDistribution,
    transforms=[order_counts, customer_counts, customer_distribution],
)


# Query 14: promotion effect.


class MonthlySales(Table):
    """Line items of a month."""

    p_type: str
    revenue: Total


class PromotionEffect(Table):
    promo_revenue: Annotated[Decimal | None, Precision(38, 6)]


@transform(
    reads=[
        *(Lineitem.l_partkey, Lineitem.l_shipdate, Lineitem.l_extendedprice, Lineitem.l_discount),
        *(Part.p_partkey, Part.p_type),
    ],
    writes=MonthlySales,
)
def monthly_sales(lineitem: DataFrame, part: DataFrame) -> DataFrame:
    month = lineitem.where(F.col("l_shipdate").between(date(1995, 9, 1), date(1995, 9, 30)))
    return month.join(part, F.col("l_partkey") == F.col("p_partkey")).select(
        "p_type", revenue().alias("revenue")
    )


@transform(reads=MonthlySales, writes=PromotionEffect)
def promotion_effect(monthly_sales: DataFrame) -> DataFrame:
    promoted = F.when(F.col("p_type").startswith("PROMO"), F.col("revenue")).otherwise(0)
    share = 100 * F.sum(promoted) / F.sum("revenue")
    return monthly_sales.agg(share.cast("decimal(38,6)").alias("promo_revenue"))


q14 = Pipeline(
    "q14",
    inputs=[Lineitem, Part],
    outputs=PromotionEffect,
    transforms=[monthly_sales, promotion_effect],
)


# Query 15: top supplier.


class SupplierRevenues(Table):
    """What each supplier sold in a quarter."""

    supplier_no: int
    total_revenue: Total


class TopSupplier(Table):
    s_suppkey: int
    s_name: str
    s_address: str
    s_phone: str
    total_revenue: Total


@transform(
    reads=[Lineitem.l_suppkey, Lineitem.l_shipdate, Lineitem.l_extendedprice, Lineitem.l_discount],
    writes=SupplierRevenues,
)
def supplier_revenues(lineitem: DataFrame) -> DataFrame:
    quarter = lineitem.where(F.col("l_shipdate").between(date(1996, 1, 1), date(1996, 3, 31)))
    return quarter.groupBy(F.col("l_suppkey").alias("supplier_no")).agg(
        F.sum(revenue()).alias("total_revenue")
    )


@transform(
    reads=[SupplierRevenues, Supplier.s_suppkey, Supplier.s_name, Supplier.s_address, Supplier.s_phone],
    writes=TopSupplier,
)
def top_supplier(supplier_revenues: DataFrame, supplier: DataFrame) -> DataFrame:
    most = supplier_revenues.agg(F.max("total_revenue").alias("most"))
    top = supplier_revenues.crossJoin(most).where(F.col("total_revenue") == F.col("most"))
    found = supplier.join(top, F.col("s_suppkey") == F.col("supplier_no"))
    return found.select(*TopSupplier.arrow_schema().names).orderBy("s_suppkey")


q15 = Pipeline(
    "q15",
    inputs=[Lineitem, Supplier],
    outputs=TopSupplier,
    transforms=[supplier_revenues, top_supplier],
)


# Query 16: parts and suppliers.


class PartOffers(Table):
    """Offers of some kinds of parts, by suppliers about whom nobody complained."""

    p_brand: str
    p_type: str
    p_size: int
    ps_suppkey: int


class SupplierCounts(Table):
    p_brand: str
    p_type: str
    p_size: int
    supplier_cnt: int


class PartSuppliers(SupplierCounts):
    """The same in order."""


@transform(
    reads=[
        *(Partsupp.ps_partkey, Partsupp.ps_suppkey),
        *(Part.p_partkey, Part.p_brand, Part.p_type, Part.p_size),
        *(Supplier.s_suppkey, Supplier.s_comment),
    ],
    writes=PartOffers,
)
def part_offers(partsupp: DataFrame, part: DataFrame, supplier: DataFrame) -> DataFrame:
    chosen = part.where(
        (F.col("p_brand") != "Brand#45")
        & ~F.col("p_type").startswith("MEDIUM POLISHED")
        & F.col("p_size").isin(49, 14, 23, 45, 19, 3, 36, 9)
    )
    complaints = supplier.where(F.col("s_comment").like("%Customer%Complaints%"))
    return (
        partsupp.join(chosen, F.col("ps_partkey") == F.col("p_partkey"))
        .join(complaints, F.col("ps_suppkey") == F.col("s_suppkey"), "left_anti")
        .select("p_brand", "p_type", "p_size", "ps_suppkey")
    )


@transform(reads=PartOffers, writes=SupplierCounts)
def supplier_counts(part_offers: DataFrame) -> DataFrame:
    counted = F.count_distinct("ps_suppkey").alias("supplier_cnt")
    return part_offers.groupBy("p_brand", "p_type", "p_size").agg(counted)


@transform(reads=SupplierCounts, writes=PartSuppliers)
def part_suppliers(supplier_counts: DataFrame) -> DataFrame:
    return supplier_counts.orderBy(F.desc("supplier_cnt"), "p_brand", "p_type", "p_size")


q16 = Pipeline(
    "q16",
    inputs=[Partsupp, Part, Supplier],
    outputs=PartSuppliers,
    transforms=[part_offers, supplier_counts, part_suppliers],
)


# Query 17: small-quantity-order revenue.


class SmallLines(Table):
    """Line items with far fewer of a kind of part than is usual for the part."""

    l_extendedprice: Money


class SmallOrderRevenue(Table):
    avg_yearly: Annotated[Decimal | None, Precision(38, 6)]


@transform(
    reads=[
        *(Lineitem.l_partkey, Lineitem.l_quantity, Lineitem.l_extendedprice),
        *(Part.p_partkey, Part.p_brand, Part.p_container),
    ],
    writes=SmallLines,
)
def small_lines(lineitem: DataFrame, part: DataFrame) -> DataFrame:
    boxes = part.where((F.col("p_brand") == "Brand#23") & (F.col("p_container") == "MED BOX"))
    usual = F.avg("l_quantity").over(Window.partitionBy("l_partkey"))
    return (
        lineitem.join(boxes, F.col("l_partkey") == F.col("p_partkey"))
        .withColumn("usual", usual)
        .where(F.col("l_quantity") < F.lit(Decimal("0.2")) * F.col("usual"))
        .select("l_extendedprice")
    )


@transform(reads=SmallLines, writes=SmallOrderRevenue)
def small_order_revenue(small_lines: DataFrame) -> DataFrame:
    yearly = (F.sum("l_extendedprice") / 7).cast("decimal(38,6)")
    return small_lines.agg(yearly.alias("avg_yearly"))


q17 = Pipeline(
    "q17",
    inputs=[Lineitem, Part],
    outputs=SmallOrderRevenue,
    transforms=[small_lines, small_order_revenue],
)
