"""Processes that are killed at every durable step of a sink: the next one goes on, and no row is twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from deltalake import DeltaTable

from penstock.sinks.parquet.table import StreamTable
from penstock.storage import Storage
from penstock.store import open_store
from tests.sinks.support import Rows, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = {
    "parquet": ["files", "manifest", "folded", "committed"],
    "delta": ["files", "committed"],
    "postgres": ["stage", "rows", "moved", "committed"],
}
FILES = 20


def start(kind: str, place: Path, address: str, token: int, failpoints: str) -> int:
    command = [sys.executable, "-m", "tests.sinks.child", kind, str(place), address, str(token)]
    environment = {**os.environ, "PENSTOCK_FAILPOINTS": failpoints}
    with (place / "log").open("ab") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=300)
    return done.returncode


def found(kind: str, place: Path, address: str, spark: SparkSession) -> Rows:
    if kind == "postgres":
        with psycopg.connect(address) as connection:
            return plain(connection.execute("SELECT id, city, amount FROM sale").fetchall())
    if kind == "delta":
        table = DeltaTable(place / "delta").to_pyarrow_table().select(["id", "city", "amount"])
        return plain(row.values() for row in table.to_pylist())
    with open_store(f"sqlite:///{place}/store.db") as store:
        table_of = StreamTable(store, Storage(place / "storage"), "sales", "s1", "out")
        return plain(table_of.frame(spark).collect())


@pytest.mark.soak
@pytest.mark.parametrize("kind", list(POINTS))
def test_every_row_is_there_once(kind: str, tmp_path: Path, postgres: str, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    rows = [(n, f"city {n % 7}", n) for n in range(FILES * 5)]
    for number in range(FILES):
        names = ("id", "city", "amount")
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows[number * 5 : number * 5 + 5]]
        (tmp_path / "in" / f"{number:03}.json").write_text("\n".join(lines))
    points = POINTS[kind]
    for token, point in enumerate(points, 1):
        ended = start(kind, tmp_path, postgres, token, f"sink.{kind}.{point}=kill@{1 + token % 3}")
        assert ended == -signal.SIGKILL, (tmp_path / "log").read_text()[-2000:]
    assert start(kind, tmp_path, postgres, len(points) + 1, "") == 0, (tmp_path / "log").read_text()[-2000:]
    assert found(kind, tmp_path, postgres, spark) == rows
