"""The inputs: trades of accounts, with or without a hot one, and the orders of TPC-H."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import data
from bench.data import FILES

if TYPE_CHECKING:
    import pyarrow as pa

TRADES_OF_AN_ACCOUNT = 10
HOT = 0.3
SCALE_ROWS = 10_000_000
"""Rows for which TPC-H has a scale factor of 1."""


def trades(folder: Path, rows: int, *, hot: bool = False) -> Path:
    """Trades of ``rows`` / 10 accounts; one of these may have 30 % of them."""
    name = f"account-trades-{rows}{'-hot' if hot else ''}"
    some = partial(_trades, accounts=_accounts(rows), hot=hot)
    return data.made(folder / name, lambda to: data.written(to, rows, FILES, some))


def accounts(folder: Path, rows: int) -> Path:
    """The accounts of so many trades."""
    count = _accounts(rows)
    return data.made(folder / f"accounts-{count}", lambda to: data.written(to, count, FILES, _some_accounts))


def tpch(folder: Path, rows: int) -> Path:
    """A folder with the folders ``orders`` and ``lineitem``; 10 M rows are scale factor 1."""
    scale = rows / SCALE_ROWS
    return data.made(folder / f"tpch-{scale:g}", lambda to: _generate(to, scale))


def _generate(folder: Path, scale: float) -> None:
    program = str(Path(sys.executable).with_name("tpchgen-cli"))
    command = [program, "parquet", "-s", f"{scale:g}", "-T", "orders,lineitem", f"--parts={FILES}"]
    subprocess.run([*command, "-o", str(folder)], check=True, stdout=subprocess.DEVNULL)


def _accounts(rows: int) -> int:
    return max(1, rows // TRADES_OF_AN_ACCOUNT)


def _trades(begin: int, rows: int, seed: int, *, accounts: int, hot: bool) -> pa.Table:
    """All amounts are whole numbers, so that sums are the same in any order."""
    import numpy as np
    import pyarrow as pa

    made = np.random.default_rng(seed)
    owners = made.integers(0, accounts, rows)
    if hot:
        owners[made.random(rows) < HOT] = accounts // 2
    names = np.array([f"S{i:03d}" for i in range(500)])
    ids = np.arange(begin, begin + rows)
    return pa.table(
        {
            "id": ids,
            "account": owners,
            "symbol": names[made.integers(0, 500, rows)],
            "cents": made.integers(1, 1_000_000, rows),
            "quantity": made.integers(0, 1_000, rows),
            "at": pa.array(ids * 200, pa.timestamp("us", "UTC")),
        }
    )


def _some_accounts(begin: int, rows: int, seed: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    ids = np.arange(begin, begin + rows)
    regions = np.random.default_rng(seed).integers(0, 50, rows)
    return pa.table({"id": ids, "region": regions, "name": [f"account {i}" for i in ids]})
