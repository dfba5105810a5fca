"""Short ways to make files, register them and read them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from penstock.batch import inputs
from penstock.core.ranges import Range

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.storage import Storage
    from penstock.store import Store


@dataclass(frozen=True)
class Place:
    store: Store
    storage: Storage
    data: Path

    def register(
        self, source: Any, name: str = "trades", *, rows: int | None = 10, **more: Any
    ) -> inputs.Input:
        return inputs.register(None, self.store, self.storage, name, source, partition_rows=rows, **more)

    def read(
        self, registered: inputs.Input, rows: Range | None = None, tasks: int = 1, **more: Any
    ) -> pa.Table:
        """The rows of a range, all of them by default."""
        rows = rows or Range(0, registered.total_rows)
        made = inputs.splits(registered, self.storage, rows, tasks, **more)
        assert sum(split.rows for split in made) == rows.rows
        batches = [batch for split in made for batch in split.batches()]
        table = pa.Table.from_batches(batches)
        assert table.num_rows == rows.rows
        return table

    def partitions(self, registered: inputs.Input) -> pa.Table:
        """All rows, read partition by partition."""
        ranges = [registered.partition(i) for i in range(registered.partitions)]
        return pa.concat_tables([self.read(registered, rows) for rows in ranges])


def sample(rows: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "price": pa.array([n + 0.5 for n in numbers], pa.float64()),
            "note": pa.array([None if n % 7 == 3 else f'n°{n}\n"x", ü' for n in numbers], pa.string()),
        }
    )


def save(table: pa.Table, path: Path, chunk: int = 25) -> Path:
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path, row_group_size=chunk)
        case ".arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=chunk)
        case ".csv":
            csv.write_csv(table, path)
        case _:
            lines = (json.dumps(row, ensure_ascii=False) for row in table.to_pylist())
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
