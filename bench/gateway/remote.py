"""A process that is a client of Spark Connect."""

from __future__ import annotations

import sys

from bench.gateway import trades


def main(remote: str, folder: str) -> None:
    """Read the files for every line that is given."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(remote).getOrCreate()
    spark.read.parquet(folder).createOrReplaceTempView(trades.TABLE)
    for _ in sys.stdin:
        table = spark.sql(trades.QUERY).toArrow()
        print(f'{{"rows": {table.num_rows}}}', flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
