"""Proving that sorted outputs are sorted: within each file, and from one file to the next."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.batch.exchange.ordering import in_order
from penstock.batch.runs.exchange_proofs import Proof
from penstock.batch.runs.output import Output
from penstock.batch.runs.runs import Run
from penstock.spark.files import Format
from penstock.storage import Storage
from penstock.store import Store
from penstock.types.order import Order, order_text


def prove(store: Store, run: Run) -> list[Proof]:
    """What can be said of the order of a run's outputs; nothing if none is sorted."""
    orders = {table: order for each in run.phases for table, order in each.ordered.items()}
    if not orders:
        return []
    proof = Proof("sorted outputs")
    proof.found = "; ".join(f"{table} by {order_text(order)}" for table, order in sorted(orders.items()))
    output = Output(store, run.name)
    for table, order in sorted(orders.items()):
        paths = [each.path for each in output.files(table)]
        if (found := _misplaced(run.output_storage, run.output_format, paths, order)) is not None:
            proof.problems.append(found)
    return [proof]


def _misplaced(storage: Storage, form: Format, paths: list[str], order: Order) -> str | None:
    """The first thing that is wrong with the order of files that follow each other."""
    columns = [each.name for each in order]
    last: pa.RecordBatch | None = None
    for path in paths:
        try:
            for rows in _keys(storage, form, path, columns):
                together = rows if last is None else pa.concat_batches([last, rows])
                if not in_order(together, order):
                    return f"{path} has a row that belongs before the one that it follows"
                last = rows.slice(rows.num_rows - 1)
        except (OSError, pa.ArrowException, KeyError) as error:
            return f"{path}: {error}"
    return None


def _keys(storage: Storage, form: Format, path: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The columns that decide about the order, in batches with rows."""
    import pyarrow.parquet as pq

    with storage.open(path) as file:
        if form == "parquet":
            batches = pq.ParquetFile(file).iter_batches(columns=columns)
        else:
            reader = pa.ipc.open_file(file)
            batches = (reader.get_batch(n) for n in range(reader.num_record_batches))
        for batch in batches:
            if batch.num_rows:
                yield batch.select(columns)
