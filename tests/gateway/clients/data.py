"""What the server of the client tests serves: TPC-H, and a table with a column of each type."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TPCH = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
SCALE = "0.1"

_UTC = dt.UTC
_MOMENT = dt.datetime(2024, 2, 29, 12, 34, 56, 789012)

KINDS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "flag": pa.array([True, False, None], pa.bool_()),
        "tiny": pa.array([-128, 127, None], pa.int8()),
        "small": pa.array([-32768, 32767, None], pa.int16()),
        "big": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
        "single": pa.array([1.5, -0.1, None], pa.float32()),
        "double": pa.array([0.1, float("inf"), None], pa.float64()),
        "money": pa.array([Decimal("12.34"), Decimal("-99999999.99"), None], pa.decimal128(12, 2)),
        "wide": pa.array([Decimal(10**37), Decimal(-1), None], pa.decimal128(38, 0)),
        "words": pa.array(['it\'s "ünï" \\ tab\t', "", None], pa.string()),
        "raw": pa.array([b"\x00\xff\\", b"", None], pa.binary()),
        "day": pa.array([dt.date(2024, 2, 29), dt.date(1, 1, 1), None], pa.date32()),
        "moment": pa.array([_MOMENT, dt.datetime(1970, 1, 1), None], pa.timestamp("us")),
        "instant": pa.array(
            [_MOMENT.replace(tzinfo=_UTC), dt.datetime(1970, 1, 1, tzinfo=_UTC), None],
            pa.timestamp("us", "UTC"),
        ),
        "numbers": pa.array([[1, None, 3], [], None], pa.list_(pa.int32())),
        "names": pa.array([["a,b", 'c"d', None], ["NULL"], None], pa.list_(pa.string())),
        "pair": pa.array(
            [{"x": 1, "y": "one"}, {"x": None, "y": "none"}, None],
            pa.struct([("x", pa.int32()), ("y", pa.string())]),
        ),
    }
)
"""A row of ordinary values, one of extremes, and one of nulls."""


SAMPLES = {name: value for name, value in KINDS.to_pylist()[0].items() if name not in ("id", "pair")}
"""Values that find the first row, each by its column."""


def write(folder: Path) -> None:
    """The files and the ``penstock.toml`` of a project."""
    (folder / "data").mkdir()
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [program, "parquet", "-s", SCALE, "--output-dir", folder / "data"], check=True, capture_output=True
    )
    pq.write_table(KINDS, folder / "data" / "kinds.parquet")
    (folder / "data" / "rates.csv").write_text("currency,rate\nEUR,1.0\nUSD,1.08\n")
    (folder / "penstock.toml").write_text(_settings())


def _settings() -> str:
    tables = "".join(
        f'[[tables]]\nname = "{name}"\npath = "data/{name}.parquet"\n' for name in (*TPCH, "kinds")
    )
    return f'[spark]\nmaster = "local[2]"\nfast_start = true\n\n{tables}'
