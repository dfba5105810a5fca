"""Makes orders, products and customers to try the example with: the same ones for the same number.

python examples/fulfilment/generate.py DIRECTORY --orders 100000
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PRODUCTS = 500
CUSTOMERS = 2_000
_OPENING = datetime(2026, 3, 2, 8, tzinfo=UTC)
_COUPONS = [None, None, None, None, "SPRING", "WELCOME", "STAFF", "EXPIRED"]


def orders(count: int) -> pa.Table:
    """Orders of up to six items; among them some without any, of unknown customers and products."""
    number = pa.array(range(count), pa.int64())
    sizes = _below(7, count, 1)
    # An empty cumulative sum would have no last element.
    ends = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), sizes]))
    items = ends[-1].as_py()
    item = pa.StructArray.from_arrays(
        [_sku(_below(PRODUCTS + 5, items, 2)), pc.add(_below(12, items, 3), _mostly_one(items, 4))],
        fields=[pa.field("sku", pa.string(), False), pa.field("quantity", pa.int64(), False)],
    )
    opening = pa.scalar(_OPENING, pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "order_id": number,
            "customer_id": _below(CUSTOMERS + 10, count, 5),
            "placed": pc.add(opening, pc.cast(pc.multiply(number, 750_000), pa.duration("us"))),
            "coupon": _pick(_COUPONS, count, 6),
            "items": pa.ListArray.from_arrays(ends.cast(pa.int32()), item),
        }
    )


def products() -> pa.Table:
    """Some of which no order may have any."""
    return pa.table(
        {
            "sku": _sku(pa.array(range(PRODUCTS), pa.int64())),
            "price": _hundredths(pc.add(_below(20_000, PRODUCTS, 7), 99)),
            "grams": pc.add(_below(4_000, PRODUCTS, 8), 20),
            "warehouse": _pick(["Graz", "Lyon", "Ulm"], PRODUCTS, 9),
            "limit": _below(12, PRODUCTS, 10),
        }
    )


def customers() -> pa.Table:
    return pa.table(
        {
            "customer_id": pa.array(range(CUSTOMERS), pa.int64()),
            "country": _pick(["AT", "CH", "DE", "DE", "FR", "NO"], CUSTOMERS, 11),
            "blocked": pc.equal(_below(50, CUSTOMERS, 12), 0),
        }
    )


def write(directory: str | Path, count: int) -> None:
    """``orders.parquet``, ``products.parquet`` and ``customers.parquet``."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in {"orders": orders(count), "products": products(), "customers": customers()}.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=20_000)


def _below(limit: int, rows: int, seed: int) -> pa.Array:
    """Random whole numbers from 0 to ``limit`` - 1."""
    return pc.cast(pc.floor(pc.multiply(pc.random(rows, initializer=seed), limit)), pa.int64())


def _mostly_one(rows: int, seed: int) -> pa.Array:
    return pc.cast(pc.not_equal(_below(200, rows, seed), 0), pa.int64())


def _pick(values: Sequence[str | None], rows: int, seed: int) -> pa.Array:
    return pa.array(values, pa.string()).take(_below(len(values), rows, seed))


def _sku(numbers: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("SKU", pc.utf8_lpad(pc.cast(numbers, pa.string()), 5, "0"), "-")


def _hundredths(cents: pa.Array) -> pa.Array:
    return pc.cast(pc.divide(pc.cast(cents, pa.float64()), 100.0), pa.decimal128(14, 2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make orders, products and customers.")
    parser.add_argument("directory")
    parser.add_argument("--orders", type=int, default=100_000)
    arguments = parser.parse_args()
    write(arguments.directory, arguments.orders)
