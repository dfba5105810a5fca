"""Queries 18 to 22 of TPC-H."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock import Pipeline, Precision, Table, transform
from tpch.columns import revenue
from tpch.tables import Customer, Lineitem, Money, Nation, Orders, Part, Partsupp, Supplier, Total

Quantity = Annotated[Decimal, Precision(25, 2)]


# Query 18: large volume customers.


class LargeOrders(Table):
    """Orders of more than 300 things."""

    o_orderkey: int
    o_custkey: int
    o_orderdate: date
    o_totalprice: Money
    quantity: Quantity


class LargeVolumeCustomers(Table):
    c_name: str
    c_custkey: int
    o_orderkey: int
    o_orderdate: date
    o_totalprice: Money
    quantity: Quantity


class NamedOrders(LargeVolumeCustomers):
    """All of them."""


@transform(
    reads=[
        *(Orders.o_orderkey, Orders.o_custkey, Orders.o_orderdate, Orders.o_totalprice),
        *(Lineitem.l_orderkey, Lineitem.l_quantity),
    ],
    writes=LargeOrders,
)
def large_orders(orders: DataFrame, lineitem: DataFrame) -> DataFrame:
    large = lineitem.groupBy("l_orderkey").agg(F.sum("l_quantity").alias("quantity")).where("quantity > 300")
    return orders.join(large, F.col("o_orderkey") == F.col("l_orderkey")).drop("l_orderkey")


@transform(reads=[LargeOrders, Customer.c_custkey, Customer.c_name], writes=NamedOrders)
def named_orders(large_orders: DataFrame, customer: DataFrame) -> DataFrame:
    joined = large_orders.join(customer, F.col("o_custkey") == F.col("c_custkey"))
    return joined.select(*NamedOrders.arrow_schema().names)


@transform(reads=NamedOrders, writes=LargeVolumeCustomers)
def large_volume_customers(named_orders: DataFrame) -> DataFrame:
    return named_orders.orderBy(F.desc("o_totalprice"), "o_orderdate", "o_orderkey").limit(100)


q18 = Pipeline(
    "q18",
    inputs=[Customer, Orders, Lineitem],
    outputs=LargeVolumeCustomers,
    transforms=[large_orders, named_orders, large_volume_customers],
)


# Query 19: discounted revenue.


class DiscountedLines(Table):
    """Line items that were carried to the door in packages of three kinds."""

    revenue: Total


class DiscountedRevenue(Table):
    revenue: Annotated[Decimal | None, Precision(38, 4)]


def _packed(brand: str, sizes: str, kinds: list[str], least: int, largest: int) -> Column:
    return (
        (F.col("p_brand") == brand)
        & F.col("p_container").isin([f"{sizes} {kind}" for kind in kinds])
        & F.col("l_quantity").between(least, least + 10)
        & F.col("p_size").between(1, largest)
    )


@transform(
    reads=[
        *(Lineitem.l_partkey, Lineitem.l_quantity, Lineitem.l_extendedprice, Lineitem.l_discount),
        *(Lineitem.l_shipmode, Lineitem.l_shipinstruct),
        *(Part.p_partkey, Part.p_brand, Part.p_container, Part.p_size),
    ],
    writes=DiscountedLines,
)
def discounted_lines(lineitem: DataFrame, part: DataFrame) -> DataFrame:
    carried = lineitem.where(
        F.col("l_shipmode").isin("AIR", "AIR REG") & (F.col("l_shipinstruct") == "DELIVER IN PERSON")
    )
    packed = (
        _packed("Brand#12", "SM", ["CASE", "BOX", "PACK", "PKG"], 1, 5)
        | _packed("Brand#23", "MED", ["BAG", "BOX", "PKG", "PACK"], 10, 10)
        | _packed("Brand#34", "LG", ["CASE", "BOX", "PACK", "PKG"], 20, 15)
    )
    lines = carried.join(part, (F.col("l_partkey") == F.col("p_partkey")) & packed)
    return lines.select(revenue().alias("revenue"))


@transform(reads=DiscountedLines, writes=DiscountedRevenue)
def discounted_revenue(discounted_lines: DataFrame) -> DataFrame:
    return discounted_lines.agg(F.sum("revenue").alias("revenue"))


q19 = Pipeline(
    "q19",
    inputs=[Lineitem, Part],
    outputs=DiscountedRevenue,
    transforms=[discounted_lines, discounted_revenue],
)


# Query 20: potential part promotion.


class ExcessStock(Table):
    """Offers of forest parts with more in stock than half of what was sold in a year."""

    ps_suppkey: int


class PartPromotion(Table):
    s_name: str
    s_address: str


@transform(
    reads=[
        *(Part.p_partkey, Part.p_name, Partsupp.ps_partkey, Partsupp.ps_suppkey, Partsupp.ps_availqty),
        *(Lineitem.l_partkey, Lineitem.l_suppkey, Lineitem.l_quantity, Lineitem.l_shipdate),
    ],
    writes=ExcessStock,
)
def excess_stock(part: DataFrame, partsupp: DataFrame, lineitem: DataFrame) -> DataFrame:
    forest = part.where(F.col("p_name").startswith("forest"))
    sold = (
        lineitem.where(F.year("l_shipdate") == 1994)
        .groupBy("l_partkey", "l_suppkey")
        .agg(F.sum("l_quantity").alias("sold"))
    )
    return (
        partsupp.join(forest, F.col("ps_partkey") == F.col("p_partkey"), "left_semi")
        .join(sold, (F.col("ps_partkey") == F.col("l_partkey")) & (F.col("ps_suppkey") == F.col("l_suppkey")))
        .where(2 * F.col("ps_availqty") > F.col("sold"))
        .select("ps_suppkey")
    )


@transform(
    reads=[
        *(ExcessStock, Supplier.s_suppkey, Supplier.s_name, Supplier.s_address, Supplier.s_nationkey),
        *(Nation.n_nationkey, Nation.n_name),
    ],
    writes=PartPromotion,
)
def part_promotion(excess_stock: DataFrame, supplier: DataFrame, nation: DataFrame) -> DataFrame:
    canadian = supplier.join(nation, F.col("s_nationkey") == F.col("n_nationkey")).where(
        F.col("n_name") == "CANADA"
    )
    found = canadian.join(excess_stock, F.col("s_suppkey") == F.col("ps_suppkey"), "left_semi")
    return found.select("s_name", "s_address").orderBy("s_name")


q20 = Pipeline(
    "q20",
    inputs=[Part, Partsupp, Lineitem, Supplier, Nation],
    outputs=PartPromotion,
    transforms=[excess_stock, part_promotion],
)


# Query 21: suppliers who kept orders waiting.


class WaitingLines(Table):
    """Late line items of orders that nobody else was late with."""

    s_name: str


class WaitingSuppliers(Table):
    s_name: str
    numwait: int


@transform(
    reads=[
        *(Orders.o_orderkey, Orders.o_orderstatus, Lineitem.l_orderkey, Lineitem.l_suppkey),
        *(Lineitem.l_commitdate, Lineitem.l_receiptdate),
        *(Supplier.s_suppkey, Supplier.s_name, Supplier.s_nationkey, Nation.n_nationkey, Nation.n_name),
    ],
    writes=WaitingLines,
)
def waiting_lines(
    orders: DataFrame, lineitem: DataFrame, supplier: DataFrame, nation: DataFrame
) -> DataFrame:
    arabian = supplier.join(nation, F.col("s_nationkey") == F.col("n_nationkey")).where(
        F.col("n_name") == "SAUDI ARABIA"
    )
    others = lineitem.select(F.col("l_orderkey").alias("order"), F.col("l_suppkey").alias("other"))
    late = lineitem.where(F.col("l_receiptdate") > F.col("l_commitdate"))
    late_others = late.select(F.col("l_orderkey").alias("order"), F.col("l_suppkey").alias("other"))
    by_another = (F.col("l_orderkey") == F.col("order")) & (F.col("l_suppkey") != F.col("other"))
    return (
        late.join(orders.where(F.col("o_orderstatus") == "F"), F.col("l_orderkey") == F.col("o_orderkey"))
        .join(others, by_another, "left_semi")
        .join(late_others, by_another, "left_anti")
        .join(arabian, F.col("l_suppkey") == F.col("s_suppkey"))
        .select("s_name")
    )


@transform(reads=WaitingLines, writes=WaitingSuppliers)
def waiting_suppliers(waiting_lines: DataFrame) -> DataFrame:
    counted = waiting_lines.groupBy("s_name").agg(F.count("*").alias("numwait"))
    return counted.orderBy(F.desc("numwait"), "s_name").limit(100)


q21 = Pipeline(
    "q21",
    inputs=[Orders, Lineitem, Supplier, Nation],
    outputs=WaitingSuppliers,
    transforms=[waiting_lines, waiting_suppliers],
)


# Query 22: global sales opportunity.


class CodedCustomers(Table):
    """Customers of some countries, and whether they have ever ordered."""

    cntrycode: str
    c_acctbal: Money
    ordered: bool


class SalesOpportunity(Table):
    cntrycode: str
    numcust: int
    totacctbal: Annotated[Decimal, Precision(25, 2)]


@transform(
    reads=[Customer.c_custkey, Customer.c_phone, Customer.c_acctbal, Orders.o_custkey], writes=CodedCustomers
)
def coded_customers(customer: DataFrame, orders: DataFrame) -> DataFrame:
    code = F.substring("c_phone", 1, 2)
    chosen = customer.where(code.isin("13", "31", "23", "29", "30", "18", "17"))
    joined = chosen.join(orders.distinct(), F.col("c_custkey") == F.col("o_custkey"), "left")
    return joined.select(
        code.alias("cntrycode"), "c_acctbal", F.col("o_custkey").isNotNull().alias("ordered")
    )


@transform(reads=CodedCustomers, writes=SalesOpportunity)
def sales_opportunity(coded_customers: DataFrame) -> DataFrame:
    usual = coded_customers.where("c_acctbal > 0").agg(F.avg("c_acctbal").alias("usual"))
    rich = coded_customers.where("NOT ordered").crossJoin(usual).where("c_acctbal > usual")
    counted = rich.groupBy("cntrycode").agg(
        F.count("*").alias("numcust"), F.sum("c_acctbal").alias("totacctbal")
    )
    return counted.orderBy("cntrycode")


q22 = Pipeline(
    "q22",
    inputs=[Customer, Orders],
    outputs=SalesOpportunity,
    transforms=[coded_customers, sales_opportunity],
)
