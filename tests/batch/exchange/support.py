"""Rows that are written to run files and read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.batch.exchange.run_files import ExchangeFile, ExchangeWriter, collected
from penstock.storage import Storage

SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64()), ("words", pa.list_(pa.string()))])
BUCKETS = 64


def rows(count: int, first: int = 0, keys: int = 500) -> list[dict[str, Any]]:
    return [
        {"key": f"k{n % keys}" if n % 17 else None, "number": n, "words": [str(n)] * (n % 3)}
        for n in range(first, first + count)
    ]


def batches(found: Sequence[dict[str, Any]], size: int = 1000) -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_pylist(list(found[at : at + size]), schema=SCHEMA)
        for at in range(0, len(found), size)
    ]


def write(
    storage: Storage, folder: str, given: Sequence[pa.RecordBatch], **options: Any
) -> tuple[ExchangeFile, ...]:
    """What an `ExchangeWriter` makes of batches, outside of Spark."""
    settings = {"schema": SCHEMA, "keys": ("key",), "buckets": BUCKETS, **options}
    made = ExchangeWriter(storage, folder, **settings)(iter(given))
    return collected(row for batch in made for row in batch.to_pylist())
