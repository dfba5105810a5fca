"""Makes trades to try the example with: the same ones for the same number of rows.

python examples/trades/generate.py trades.parquet --rows 2000000
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROWS_PER_GROUP = 100_000
_OPENING = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
_SYMBOLS = ["AAPL", "AZN", "HSBA", "MSFT", "NESN", "NVDA", "SAP", "SIE", "SONY", "TM", "UBSG", "VOD"]
# One trade in eleven is in a currency that we hold no rate for, and will not be valid.
_CURRENCIES = ["USD", "USD", "USD", "USD", "EUR", "EUR", "EUR", "GBP", "CHF", "JPY", "XTS"]
_ACCOUNTS = [f"ACC-{number:03d}" for number in range(200)]


def trades(rows: int, first: int = 0) -> pa.Table:
    """``rows`` trades, numbered from ``first``; some of them are not valid."""
    number = pa.array(range(first, first + rows), pa.int64())
    priced = pc.not_equal(_below(100, rows, first), 0)
    cents = pc.if_else(priced, pc.add(_below(50_000, rows, first + 2), 1), 0)
    opening = pa.scalar(_OPENING, pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "trade_id": number,
            "at": pc.add(opening, pc.cast(pc.multiply(number, 11_700), pa.duration("us"))),
            "account": _pick(_ACCOUNTS, rows, first + 3),
            "symbol": _pick(_SYMBOLS, rows, first + 4),
            "currency": _pick(_CURRENCIES, rows, first + 5),
            "quantity": pc.subtract(_below(2_001, rows, first + 1), 1_000),
            "price": _hundredths(cents),
        }
    )


def write(path: str | Path, rows: int) -> None:
    """A Parquet file of ``rows`` trades."""
    schema = trades(0).schema
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(0, rows, ROWS_PER_GROUP):
            writer.write_table(trades(min(ROWS_PER_GROUP, rows - first), first))


def _below(limit: int, rows: int, seed: int) -> pa.Array:
    """Random whole numbers from 0 to ``limit`` - 1."""
    return pc.cast(pc.floor(pc.multiply(pc.random(rows, initializer=seed), limit)), pa.int64())


def _pick(values: Sequence[str], rows: int, seed: int) -> pa.Array:
    return pa.array(values).take(_below(len(values), rows, seed))


def _hundredths(cents: pa.Array) -> pa.Array:
    return pc.cast(pc.divide(pc.cast(cents, pa.float64()), 100.0), pa.decimal128(12, 2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make trades.")
    parser.add_argument("path")
    parser.add_argument("--rows", type=int, default=2_000_000)
    arguments = parser.parse_args()
    write(arguments.path, arguments.rows)
