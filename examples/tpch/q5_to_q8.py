"""Queries 5 to 8 of TPC-H."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock
from penstock import Pipeline, Precision, Table, transform
from tpch.columns import revenue
from tpch.tables import Customer, Lineitem, Nation, Orders, Part, Region, Supplier, Total

# Query 5: local supplier volume.


class AsianOrders(Table):
    """Orders of a year by customers in Asia, with their nation."""

    o_orderkey: int
    c_nationkey: int
    n_name: str


class LocalSales(Table):
    """What suppliers of the customer's own nation sold of these orders."""

    n_name: str
    revenue: Total


class LocalSupplierVolume(Table):
    n_name: str
    revenue: Total


@transform(
    reads=[
        *(Customer.c_custkey, Customer.c_nationkey),
        *(Orders.o_orderkey, Orders.o_custkey, Orders.o_orderdate),
        *(Nation.n_nationkey, Nation.n_regionkey, Nation.n_name, Region.r_regionkey, Region.r_name),
    ],
    writes=AsianOrders,
)
def asian_orders(customer: DataFrame, orders: DataFrame, nation: DataFrame, region: DataFrame) -> DataFrame:
    asia = nation.join(region, F.col("n_regionkey") == F.col("r_regionkey")).where(F.col("r_name") == "ASIA")
    year = orders.where(F.year("o_orderdate") == 1994)
    return (
        year.join(customer, F.col("o_custkey") == F.col("c_custkey"))
        .join(asia, F.col("c_nationkey") == F.col("n_nationkey"))
        .select("o_orderkey", "c_nationkey", "n_name")
    )


@transform(
    reads=[
        AsianOrders,
        *(Lineitem.l_orderkey, Lineitem.l_suppkey, Lineitem.l_extendedprice, Lineitem.l_discount),
        *(Supplier.s_suppkey, Supplier.s_nationkey),
    ],
    writes=LocalSales,
)
def local_sales(asian_orders: DataFrame, lineitem: DataFrame, supplier: DataFrame) -> DataFrame:
    local = (F.col("l_suppkey") == F.col("s_suppkey")) & (F.col("c_nationkey") == F.col("s_nationkey"))
    sold = asian_orders.join(lineitem, F.col("o_orderkey") == F.col("l_orderkey")).join(supplier, local)
    return sold.select("n_name", revenue().alias("revenue"))


@transform(reads=LocalSales, writes=LocalSupplierVolume)
def local_supplier_volume(local_sales: DataFrame) -> DataFrame:
    return local_sales.groupBy("n_name").agg(F.sum("revenue").alias("revenue")).orderBy(F.desc("revenue"))


q5 = Pipeline(
    "q5",
    inputs=[Customer, Orders, Lineitem, Supplier, Nation, Region],
    outputs=LocalSupplierVolume,
    transforms=[asian_orders, local_sales, local_supplier_volume],
)


# Query 6: forecasting revenue change.


class LostRevenue(Table):
    """What discounts cost, in one partition of the line items; nothing where no line counts."""

    revenue: Annotated[Decimal | None, Precision(38, 4)]


class RevenueChange(Table):
    revenue: Annotated[Decimal | None, Precision(38, 4)]


@transform(
    reads=[Lineitem.l_shipdate, Lineitem.l_discount, Lineitem.l_quantity, Lineitem.l_extendedprice],
    writes=LostRevenue,
    by=penstock.partition,
)
def lost_revenue(lineitem: DataFrame) -> DataFrame:
    chosen = lineitem.where(
        (F.year("l_shipdate") == 1994)
        & F.col("l_discount").between(Decimal("0.05"), Decimal("0.07"))
        & (F.col("l_quantity") < 24)
    )
    return chosen.agg(F.sum(F.col("l_extendedprice") * F.col("l_discount")).alias("revenue"))


@transform(reads=LostRevenue, writes=RevenueChange)
def revenue_change(lost_revenue: DataFrame) -> DataFrame:
    return lost_revenue.agg(F.sum("revenue").alias("revenue"))


q6 = Pipeline(
    "q6",
    inputs=Lineitem,
    outputs=RevenueChange,
    transforms=[lost_revenue, revenue_change],
)


# Query 7: volume shipping.

PARTNERS = ("FRANCE", "GERMANY")


class PartnerOrders(Table):
    """Orders by customers of the two nations."""

    o_orderkey: int
    cust_nation: str


class PartnerShipments(Table):
    """What suppliers of the one nation shipped to customers of the other."""

    supp_nation: str
    cust_nation: str
    l_year: int
    volume: Total


class VolumeShipping(Table):
    supp_nation: str
    cust_nation: str
    l_year: int
    revenue: Total


@transform(
    reads=[
        *(Customer.c_custkey, Customer.c_nationkey, Orders.o_orderkey, Orders.o_custkey),
        *(Nation.n_nationkey, Nation.n_name),
    ],
    writes=PartnerOrders,
)
def partner_orders(customer: DataFrame, orders: DataFrame, nation: DataFrame) -> DataFrame:
    partners = nation.where(F.col("n_name").isin(*PARTNERS))
    return (
        orders.join(customer, F.col("o_custkey") == F.col("c_custkey"))
        .join(partners, F.col("c_nationkey") == F.col("n_nationkey"))
        .select("o_orderkey", F.col("n_name").alias("cust_nation"))
    )


@transform(
    reads=[
        PartnerOrders,
        *(Lineitem.l_orderkey, Lineitem.l_suppkey, Lineitem.l_shipdate),
        *(Lineitem.l_extendedprice, Lineitem.l_discount),
        *(Supplier.s_suppkey, Supplier.s_nationkey, Nation.n_nationkey, Nation.n_name),
    ],
    writes=PartnerShipments,
)
def partner_shipments(
    partner_orders: DataFrame, lineitem: DataFrame, supplier: DataFrame, nation: DataFrame
) -> DataFrame:
    partners = nation.where(F.col("n_name").isin(*PARTNERS))
    shipped = lineitem.where(F.col("l_shipdate").between(date(1995, 1, 1), date(1996, 12, 31)))
    return (
        partner_orders.join(shipped, F.col("o_orderkey") == F.col("l_orderkey"))
        .join(supplier, F.col("l_suppkey") == F.col("s_suppkey"))
        .join(partners, F.col("s_nationkey") == F.col("n_nationkey"))
        .where(F.col("n_name") != F.col("cust_nation"))
        .select(
            F.col("n_name").alias("supp_nation"),
            "cust_nation",
            F.year("l_shipdate").alias("l_year"),
            revenue().alias("volume"),
        )
    )


@transform(reads=PartnerShipments, writes=VolumeShipping)
def volume_shipping(partner_shipments: DataFrame) -> DataFrame:
    keys = ("supp_nation", "cust_nation", "l_year")
    return partner_shipments.groupBy(*keys).agg(F.sum("volume").alias("revenue")).orderBy(*keys)


q7 = Pipeline(
    "q7",
    inputs=[Customer, Orders, Lineitem, Supplier, Nation],
    outputs=VolumeShipping,
    transforms=[partner_orders, partner_shipments, volume_shipping],
)


# Query 8: national market share.


class AmericanOrders(Table):
    """Orders of two years by customers in America."""

    o_orderkey: int
    o_year: int


class SteelLines(Table):
    """Line items of a kind of part."""

    l_orderkey: int
    l_suppkey: int
    volume: Total


class SteelSales(Table):
    """Such line items in orders from America, with the supplier's nation."""

    o_year: int
    nation: str
    volume: Total


class NationalMarketShare(Table):
    o_year: int
    mkt_share: Annotated[Decimal, Precision(38, 6)]


@transform(
    reads=[
        *(Customer.c_custkey, Customer.c_nationkey),
        *(Orders.o_orderkey, Orders.o_custkey, Orders.o_orderdate),
        *(Nation.n_nationkey, Nation.n_regionkey, Region.r_regionkey, Region.r_name),
    ],
    writes=AmericanOrders,
)
def american_orders(
    customer: DataFrame, orders: DataFrame, nation: DataFrame, region: DataFrame
) -> DataFrame:
    america = nation.join(region, F.col("n_regionkey") == F.col("r_regionkey")).where(
        F.col("r_name") == "AMERICA"
    )
    return (
        orders.where(F.year("o_orderdate").isin(1995, 1996))
        .join(customer, F.col("o_custkey") == F.col("c_custkey"))
        .join(america, F.col("c_nationkey") == F.col("n_nationkey"))
        .select("o_orderkey", F.year("o_orderdate").alias("o_year"))
    )


@transform(
    reads=[
        *(Lineitem.l_orderkey, Lineitem.l_partkey, Lineitem.l_suppkey),
        *(Lineitem.l_extendedprice, Lineitem.l_discount, Part.p_partkey, Part.p_type),
    ],
    writes=SteelLines,
)
def steel_lines(lineitem: DataFrame, part: DataFrame) -> DataFrame:
    steel = part.where(F.col("p_type") == "ECONOMY ANODIZED STEEL")
    lines = lineitem.join(steel, F.col("l_partkey") == F.col("p_partkey"))
    return lines.select("l_orderkey", "l_suppkey", revenue().alias("volume"))


@transform(
    reads=[
        *(AmericanOrders, SteelLines),
        *(Supplier.s_suppkey, Supplier.s_nationkey, Nation.n_nationkey, Nation.n_name),
    ],
    writes=SteelSales,
)
def steel_sales(
    american_orders: DataFrame, steel_lines: DataFrame, supplier: DataFrame, nation: DataFrame
) -> DataFrame:
    return (
        american_orders.join(steel_lines, F.col("o_orderkey") == F.col("l_orderkey"))
        .join(supplier, F.col("l_suppkey") == F.col("s_suppkey"))
        .join(nation, F.col("s_nationkey") == F.col("n_nationkey"))
        .select("o_year", F.col("n_name").alias("nation"), "volume")
    )


@transform(reads=SteelSales, writes=NationalMarketShare)
def national_market_share(steel_sales: DataFrame) -> DataFrame:
    brazil = F.when(F.col("nation") == "BRAZIL", F.col("volume")).otherwise(0)
    share = (F.sum(brazil) / F.sum("volume")).cast("decimal(38,6)")
    return steel_sales.groupBy("o_year").agg(share.alias("mkt_share")).orderBy("o_year")


q8 = Pipeline(
    "q8",
    inputs=[Customer, Orders, Lineitem, Part, Supplier, Nation, Region],
    outputs=NationalMarketShare,
    transforms=[
        american_orders,
        steel_lines,
        steel_sales,
        national_market_share,
    ],
)
