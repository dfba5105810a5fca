"""The input: trades, the same on every machine and in every run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measuring import say

if TYPE_CHECKING:
    import pyarrow as pa

FILES = 4
ROW_GROUP = 250_000


def trades(folder: Path, rows: int, files: int = FILES) -> Path:
    """A folder of Parquet files with ``rows`` trades, in ``folder``."""
    name = f"trades-{rows}" if files == FILES else f"trades-{rows}-in-{files}"
    return made(folder / name, lambda to: written(to, rows, files, some_trades))


def made(path: Path, make: Callable[[Path], object]) -> Path:
    """A folder of data: the one that is there, or else what ``make`` puts into an empty one."""
    if path.exists():
        return path
    say(f"making {path.name}")
    unfinished = path.with_name(f"{path.name}.tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    make(unfinished)
    return unfinished.rename(path)


def written(folder: Path, rows: int, files: int, some: Callable[[int, int, int], pa.Table]) -> None:
    """Write so many Parquet files; ``some`` makes rows of the first one's number, how many, and a seed."""
    import pyarrow.parquet as pq

    size = -(-rows // files)
    for number, begin in enumerate(range(0, rows, size)):
        table = some(begin, min(size, rows - begin), number)
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=ROW_GROUP)


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
