"""Files to read, and parts that are read to the end."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from penstock.sources.base import Part
from penstock.sources.state import State, decode, encode
from penstock.tables import Table


class Orders(Table):
    id: int
    price: float
    note: str | None
    at: datetime


def orders(rows: int, first: int = 0) -> pa.Table:
    """Rows with quotes, line breaks, commas and nulls in them."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    made = [
        {
            "id": n,
            "price": n + 0.5,
            "note": None if n % 7 == 3 else f'n°{n}\n"x", ü',
            "at": begin + timedelta(seconds=n),
        }
        for n in range(first, first + rows)
    ]
    return pa.Table.from_pylist(made, schema=Orders.input_schema())


def save(table: pa.Table, path: Path, chunk: int = 25) -> Path:
    """Write a file as its ending says, as a writer should: beside its place, and renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.tmp")
    match path.suffix:
        case ".parquet":
            pq.write_table(table, beside, row_group_size=chunk)
        case ".arrow":
            with pa.OSFile(str(beside), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=chunk)
        case ".csv":
            csv.write_csv(table, beside)
        case _:
            beside.write_text(json_lines(table), encoding="utf-8")
    return beside.rename(path)


def json_lines(table: pa.Table) -> str:
    rows = [{**row, "at": f"{row['at']:%Y-%m-%dT%H:%M:%SZ}"} for row in table.to_pylist()]
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def read(part: Part, limit: int = 1000, most: int | None = None) -> list[dict[str, Any]]:
    """What a part brings until it has nothing now, or until there are ``most`` rows."""
    rows: list[dict[str, Any]] = []
    while most is None or len(rows) < most:
        brought = part.poll(limit if most is None else min(limit, most - len(rows)))
        if brought is None:
            break
        assert isinstance(brought, pa.RecordBatch)
        assert 0 < brought.num_rows <= limit
        rows += brought.to_pylist()
        if part.is_finished():
            break
    return rows


def stored(state: State) -> State:
    """The state as it comes back after it was committed."""
    return decode("p", encode("p", state))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made
