"""A process whose Spark is at work, for what it says when that ends: ``python -m tests.spark.noise HOW``.

``fail``: the batch of a streaming query raises an error, which is asked for. ``kill``: this process is killed
in the middle of a batch, and its JVM ends by itself.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from penstock.errors import StreamError
from penstock.spark import session
from penstock.spark.faults import WorkerFault, decode, encode
from penstock.streams.operators.query import spark_settings
from tests.conftest import SPARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import time

    for batch in batches:
        time.sleep(0.2)
        yield batch


def main(how: str) -> None:
    spark = session.start(SPARK, app_name="noise")
    for key, value in spark_settings(local_disk=True).items():
        spark.conf.set(key, value)
    begun = threading.Event()

    def take(frame: DataFrame, number: int) -> None:
        frame.count()
        if how == "fail":
            raise WorkerFault(encode(StreamError("the table is gone")))
        if number > 0:
            begun.set()

    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    counts = rows.mapInArrow(slowly, rows.schema).groupBy("value").count()
    query = counts.writeStream.outputMode("update").foreachBatch(take).start()
    if how == "fail":
        try:
            query.awaitTermination()
        except Exception as error:
            sys.stdout.write(decode(error).what)
        spark.stop()
        return
    begun.wait()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
