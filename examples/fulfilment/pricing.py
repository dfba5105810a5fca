"""What the lines of an order cost."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fulfilment.tables import Lines, Products
from penstock import Resource, arrow_transform, transform


def current_coupons() -> dict[str, Decimal]:
    """The share of the price that each coupon takes off."""
    return {"SPRING": Decimal("0.1000"), "STAFF": Decimal("0.2500"), "WELCOME": Decimal("0.0500")}


coupons = Resource("coupons", load=current_coupons)


@transform(reads=[Lines.sku, Products.sku, Products.price], writes=Lines.price)
def price(lines: DataFrame, products: DataFrame) -> DataFrame:
    return lines.join(F.broadcast(products), "sku")


@arrow_transform(reads=[Lines.coupon, coupons], writes=Lines.discount)
def discount(lines: pa.RecordBatch, coupons: dict[str, Decimal]) -> pa.RecordBatch:
    """An unknown coupon takes nothing off."""
    shares = pa.array(coupons.values(), pa.decimal128(5, 4))
    found = pc.index_in(lines["coupon"], pa.array(coupons, pa.string()))
    return pa.record_batch({"discount": pc.fill_null(shares.take(found), Decimal(0))})


@transform(reads=[Lines.price, Lines.quantity, Lines.discount], writes=Lines.amount)
def amount(lines: DataFrame) -> DataFrame:
    full = F.col("price") * F.col("quantity").cast("decimal(9,0)")
    return lines.withColumn("amount", F.round(full * (1 - F.col("discount")), 2).cast("decimal(14,2)"))
