"""What the customer pays."""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fulfilment.tables import Customers, Invoices, Lines, Orders, Shipments
from penstock import Resource, transform


def current_rates() -> dict[str, Decimal]:
    """Tax by country."""
    return {"AT": Decimal("0.20"), "CH": Decimal("0.081"), "DE": Decimal("0.19"), "FR": Decimal("0.20")}


tax_rates = Resource("tax_rates", load=current_rates)


@transform(
    reads=[
        *(Orders.order_id, Orders.customer_id, Customers.customer_id, Customers.country),
        *(Lines.order_id, Lines.amount, Shipments.order_id, Shipments.fee),
    ],
    writes=Invoices,
)
def invoice(orders: DataFrame, customers: DataFrame, lines: DataFrame, shipments: DataFrame) -> DataFrame:
    """One for each order of which at least one line is left."""
    goods = lines.groupBy("order_id").agg(F.sum("amount").cast("decimal(14,2)").alias("goods"))
    fees = shipments.groupBy("order_id").agg(F.sum("fee").cast("decimal(14,2)").alias("shipping"))
    return (
        orders.join(goods, "order_id")
        .join(fees, "order_id", "left")
        .join(F.broadcast(customers), "customer_id")
        .fillna({"shipping": 0})
    )


@transform(
    reads=[Invoices.country, Invoices.goods, Invoices.shipping, tax_rates],
    writes=[Invoices.tax, Invoices.total],
)
def tax(invoices: DataFrame, tax_rates: dict[str, Decimal]) -> DataFrame:
    net = F.col("goods") + F.col("shipping")
    due = F.round(net * _rate(tax_rates), 2)
    return invoices.withColumns(
        {"tax": due.cast("decimal(14,2)"), "total": (net + due).cast("decimal(14,2)")}
    )


def _rate(rates: dict[str, Decimal]) -> Column:
    """The rate of the row's country; abroad no tax is due."""
    rate = F.lit(Decimal("0.0000"))
    for country, share in rates.items():
        rate = F.when(F.col("country") == country, F.lit(share)).otherwise(rate)
    return rate.cast("decimal(5,4)")
