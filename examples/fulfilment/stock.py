"""Where the goods come from."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fulfilment.tables import Allocations, Lines, Products
from penstock import transform


@transform(
    reads=[
        *(Lines.order_id, Lines.line, Lines.sku, Lines.quantity),
        *(Products.sku, Products.warehouse, Products.limit, Products.grams),
    ],
    writes=Allocations,
)
def allocate(lines: DataFrame, products: DataFrame) -> DataFrame:
    """At once as many as one order may have; the rest waits for the next delivery."""
    shipped = F.least("quantity", "limit")
    return lines.join(F.broadcast(products), "sku").select(
        "order_id",
        "line",
        "sku",
        "warehouse",
        shipped.alias("shipped"),
        (F.col("quantity") - shipped).alias("waiting"),
        (F.col("grams") * shipped).alias("grams"),
    )
