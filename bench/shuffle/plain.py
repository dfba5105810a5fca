"""The peer: plain Spark over the same bytes, without any sequencing."""

from __future__ import annotations

import os
import time

from bench.lab import Lab
from bench.shuffle.data import Made, Payments
from bench.shuffle.ours import QUEUES


def cost(lab: Lab, made: Made) -> float:
    """Microseconds for a document: `from_json`, then Parquet partitioned by the hash of the key."""
    from pyspark.sql import functions as f

    spark = lab.spark
    with lab.place("plain") as place:
        os.sync()
        began = time.perf_counter()
        lines = spark.read.option("recursiveFileLookup", "true").text(str(made.root))
        parsed = lines.select(f.from_json("value", Payments.spark_schema()).alias("d")).select("d.*")
        kept = parsed.where("id is not null").withColumn("queue", f.pmod(f.hash("customer"), f.lit(QUEUES)))
        kept.write.partitionBy("queue").parquet(str(place.path / "out"))
        seconds = time.perf_counter() - began
        found = spark.read.parquet(str(place.path / "out")).agg(f.count("*"), f.sum("id")).first()
        if found is None or tuple(found) != (made.spec.documents, made.checksum):
            raise RuntimeError(f"plain Spark has {found}")
    return seconds * 1e6 / made.spec.documents
