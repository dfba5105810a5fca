"""A process that runs one output until everything is in its sink, unless it is killed on the way.

``python -m tests.sinks.child KIND PLACE ADDRESS TOKEN``: rows come from JSON files below PLACE/in.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.sinks import DeltaSink, ParquetSink, PostgresSink
from penstock.sinks.base import Batch, Sink
from penstock.spark import session
from penstock.storage import Storage
from penstock.store import open_store
from tests.conftest import SPARK
from tests.sinks.support import Sale, bench

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sink_of(kind: str, place: Path, address: str) -> Sink:
    if kind == "delta":
        return DeltaSink(str(place / "delta"))
    return PostgresSink(address, "sale", create=True) if kind == "postgres" else ParquetSink()


def main(kind: str, folder: str, address: str, token: str) -> None:
    place = Path(folder)
    spark = session.start(SPARK, app_name="child")
    with open_store(f"sqlite:///{place}/store.db") as store:
        output = bench(store, Storage(place / "storage"), spark)
        writer = output.open(sink_of(kind, place, address), int(token))

        def take(frame: DataFrame, number: int) -> None:
            writer.write(frame, Batch(number, number + 1))

        rows = spark.readStream.schema(Sale.spark_schema()).option("maxFilesPerTrigger", 1)
        query = rows.json(str(place / "in")).writeStream.foreachBatch(take).trigger(availableNow=True)
        query.option("checkpointLocation", str(place / "checkpoint")).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
