"""The rows that are sent: trades of six columns, as Parquet files and as a table of PostgreSQL."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench import data
from bench.lab import Lab
from bench.measuring import say

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "trades"
QUERY = f"SELECT * FROM {TABLE}"
BATCH = 65_536
_DDL = "id bigint, symbol text, price double precision, quantity bigint, at timestamptz, fee numeric(12,2)"


def count(lab: Lab) -> int:
    """A million, unless other rows are asked for."""
    return max(lab.rows // 10, 1)


def files(lab: Lab) -> Path:
    """The folder with the Parquet files, made when it is not there yet."""
    import pyarrow.parquet as pq

    made = lab.folder / "data" / f"gateway-{count(lab)}"
    if not made.exists():
        unfinished = made.with_suffix(".tmp")
        unfinished.mkdir(parents=True, exist_ok=True)
        table = _made(count(lab))
        size = -(-table.num_rows // data.FILES)
        for number in range(data.FILES):
            pq.write_table(table.slice(number * size, size), unfinished / f"part-{number}.parquet")
        unfinished.rename(made)
    return made


def _made(rows: int) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = data.some_trades(0, rows, seed=7)
    fee = pc.round(pc.multiply(table["price"], 0.37), 2).cast(pa.decimal128(12, 2), safe=False)
    return table.append_column("fee", fee)


def batches(folder: Path) -> Sequence[pa.RecordBatch]:
    import pyarrow.parquet as pq

    found: Sequence[pa.RecordBatch] = pq.read_table(folder).combine_chunks().to_batches(BATCH)
    return found


def load(url: str, folder: Path) -> None:
    """Make the table in PostgreSQL, as fast to read as it gets."""
    import psycopg
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    say("loading PostgreSQL")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {TABLE} ({_DDL})")
        with connection.cursor().copy(f"COPY {TABLE} FROM STDIN (FORMAT csv)") as copy:
            for batch in pq.read_table(folder).to_batches(BATCH):
                text = io.BytesIO()
                pc.write_csv(batch, text, pc.WriteOptions(include_header=False))
                copy.write(text.getvalue())
        connection.execute(f"VACUUM (FREEZE, ANALYZE) {TABLE}")
        connection.execute("CHECKPOINT")
