"""What the server of the client tests serves: TPC-H, and a table with a column of each type."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv, feather, orc

from servers.seaweed import Seaweed

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


REMOTE = {
    "remote_parquet": "remote/parquet",
    "remote_csv": "remote/trades.csv",
    "remote_json": "remote/trades.jsonl",
    "remote_arrow": "remote/trades.arrow",
    "remote_orc": "remote/trades.orc",
}
"""Tables in a bucket, one for each format, and where they are in it."""
TRADES = pa.table({"id": [1, 2, 3], "symbol": ["A", "B", None], "price": [1.5, 2.25, 3.0]})


def upload(s3: Seaweed) -> None:
    """The same rows in every format."""
    written: dict[str, Callable[[pa.BufferOutputStream], object]] = {
        "remote/parquet/day=1/part-0.parquet": lambda file: pq.write_table(TRADES, file),
        "remote/trades.csv": lambda file: csv.write_csv(TRADES, file),
        "remote/trades.jsonl": lambda file: file.write(
            "".join(f"{json.dumps(row)}\n" for row in TRADES.to_pylist()).encode()
        ),
        "remote/trades.arrow": lambda file: feather.write_feather(TRADES, file),
        "remote/trades.orc": lambda file: orc.write_table(TRADES, file),
    }
    for path, write_to in written.items():
        put(s3, path, write_to)


def put(s3: Seaweed, path: str, write_to: Callable[[pa.BufferOutputStream], object]) -> None:
    file = pa.BufferOutputStream()
    write_to(file)
    s3.store().put(path, file.getvalue().to_pybytes())


def write(folder: Path, bucket: str) -> None:
    """The files and the ``penstock.toml`` of a project."""
    (folder / "data").mkdir()
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [program, "parquet", "-s", SCALE, "--output-dir", folder / "data"], check=True, capture_output=True
    )
    pq.write_table(KINDS, folder / "data" / "kinds.parquet")
    (folder / "data" / "rates.csv").write_text("currency,rate\nEUR,1.0\nUSD,1.08\n")
    (folder / "penstock.toml").write_text(_settings(bucket))


def _settings(bucket: str) -> str:
    paths = {name: f"data/{name}.parquet" for name in (*TPCH, "kinds")}
    paths |= {name: f"s3://{bucket}/{path}" for name, path in REMOTE.items()}
    formats = {"remote_parquet": "parquet"}
    tables = "".join(
        f'[[tables]]\nname = "{name}"\npath = "{path}"\nformat = "{formats.get(name, "auto")}"\n'
        for name, path in paths.items()
    )
    return f'[spark]\nmaster = "local[2]"\nfast_start = true\n\n{tables}'
