"""Joins orders with their payments at every epoch, and says at which the books do not balance."""

from __future__ import annotations

import argparse
import sys

import penstock as ps
from penstock import StreamHandle


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="sqlite:///.penstock/store.db")
    parser.add_argument("--storage", default=".penstock/storage")
    given = parser.parse_args()
    spark = ps.start_spark(ps.SparkConfig(master="local[2]"), app_name="ledger")
    wrong = 0
    with StreamHandle("ledger", given.store, given.storage) as ledger:
        for epoch in ledger.epochs():
            with (
                ledger.rows(spark, "orders", epoch=epoch) as orders,
                ledger.rows(spark, "payments", epoch=epoch) as payments,
            ):
                orders.createOrReplaceTempView("orders")
                payments.createOrReplaceTempView("payments")
                found = spark.sql(
                    "WITH paid AS (SELECT order, sum(amount) AS amount FROM payments GROUP BY order) "
                    "SELECT count(*) AS orders, count_if(total IS DISTINCT FROM amount) AS wrong "
                    "FROM orders FULL JOIN paid USING (order)"
                ).collect()[0]
            print(f"epoch {epoch}: {found['orders']} orders, {found['wrong']} out of balance", flush=True)
            wrong += found["wrong"]
    spark.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
