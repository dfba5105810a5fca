"""Which orders are fulfilled, and what is in them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fulfilment.tables import Customers, Lines, Orders, Products
from penstock import transform


@transform(reads=Orders.items, drops=Orders)
def with_items(orders: DataFrame) -> DataFrame:
    """An order without items, or with a quantity that is none, is a mistake of the shop."""
    return orders.where((F.size("items") > 0) & F.forall("items", lambda item: item.quantity > 0))


@transform(reads=[Orders.customer_id, Customers.customer_id, Customers.blocked], drops=Orders)
def of_good_standing(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Only orders of customers that we know and have not blocked."""
    return orders.join(customers.where("NOT blocked"), "customer_id", "left_semi")


@transform(reads=[Orders.order_id, Orders.coupon, Orders.items], writes=Lines)
def lines(orders: DataFrame) -> DataFrame:
    items = orders.select("order_id", "coupon", F.posexplode("items").alias("line", "item"))
    return items.select("order_id", "line", "item.sku", "item.quantity", "coupon")


@transform(reads=[Lines.sku, Products.sku], drops=Lines)
def in_catalogue(lines: DataFrame, products: DataFrame) -> DataFrame:
    """A line of a product that is no longer sold is left out; the rest of the order goes on."""
    return lines.join(products, "sku", "left_semi")
