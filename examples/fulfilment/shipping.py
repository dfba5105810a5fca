"""What is sent from where, and what that costs."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fulfilment.carrier import CarrierBusy, rate_card
from fulfilment.tables import Allocations, Shipments
from penstock import Resource, Retry, arrow_transform, transform

tariff = Resource("tariff")


@transform(writes=tariff, retry=Retry(times=5, first=0.05, on=(CarrierBusy,)))
def fetch_tariff() -> dict[int, Decimal]:
    """The carrier's service is busy at times, which is no reason to fail."""
    return rate_card()


@transform(
    reads=[Allocations.order_id, Allocations.warehouse, Allocations.shipped, Allocations.grams],
    writes=Shipments,
)
def pack(allocations: DataFrame) -> DataFrame:
    sent = allocations.where("shipped > 0").groupBy("order_id", "warehouse")
    return sent.agg(F.sum("shipped").alias("pieces"), F.sum("grams").alias("grams"))


@arrow_transform(reads=[Shipments.grams, tariff], writes=Shipments.fee)
def fee(shipments: pa.RecordBatch, tariff: dict[int, Decimal]) -> pa.RecordBatch:
    """The fee of the first weight class that a shipment fits into, or of the heaviest one."""
    heaviest = max(tariff)
    fees = pa.nulls(shipments.num_rows, pa.decimal128(14, 2))
    for limit in sorted(tariff, reverse=True):
        fits = pc.less_equal(shipments["grams"], limit) if limit != heaviest else pa.scalar(True)
        fees = pc.if_else(fits, pa.scalar(tariff[limit], pa.decimal128(14, 2)), fees)
    return pa.record_batch({"fee": fees})
