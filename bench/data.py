"""The input: trades, the same on every machine and in every run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measuring import say

if TYPE_CHECKING:
    import pyarrow as pa

FILES = 4
ROW_GROUP = 250_000


def trades(folder: Path, rows: int) -> Path:
    """A folder of Parquet files with ``rows`` trades, in ``folder``."""
    import pyarrow.parquet as pq

    made = folder / f"trades-{rows}"
    if made.exists():
        return made
    say(f"making {rows:,} trades")
    unfinished = folder / f"trades-{rows}.tmp"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    size = -(-rows // FILES)
    for number, begin in enumerate(range(0, rows, size)):
        table = some_trades(begin, min(size, rows - begin), seed=number)
        pq.write_table(table, unfinished / f"part-{number}.parquet", row_group_size=ROW_GROUP)
    return unfinished.rename(made)


def some_trades(begin: int, rows: int, seed: int) -> pa.Table:
    """Trades with ids from ``begin``, one every 200 µs, of 500 symbols; one in twenty is too small."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    def uniform(stream: int, below: float) -> pa.Array:
        return pc.multiply(pc.random(rows, initializer=seed * 10 + stream), below)

    ids = pa.array(np.arange(begin, begin + rows, dtype=np.int64))
    names = pa.array([f"S{i:03d}" for i in range(500)])
    cents = pc.floor(uniform(1, 10_000.0))
    return pa.table(
        {
            "id": ids,
            "symbol": names.take(pc.cast(pc.floor(uniform(2, 500.0)), pa.int64())),
            "price": pc.divide(pc.add(cents, 1.0), 100.0),
            "quantity": pc.cast(pc.floor(uniform(3, 1_000.0)), pa.int64()),
            "at": pc.cast(pc.multiply(ids, 200), pa.timestamp("us", "UTC")),
        }
    )
