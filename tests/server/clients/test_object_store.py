"""Tables in a bucket: read by a real server from a real S3 server, in every format."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servers.seaweed import Seaweed
from tests.server.clients import data
from tests.server.clients.conftest import Gateway
from tests.server.serve import wait_until


@pytest.mark.parametrize("table", data.REMOTE)
def test_every_format_is_read_from_a_bucket(gateway: Gateway, table: str) -> None:
    answer = gateway.asked(f"SELECT id, symbol, price FROM {table} ORDER BY id")
    assert answer.splitlines() == ["1|A|1.5", "2|B|2.25", "3||3"]


def test_tables_of_a_bucket_are_joined_with_others(gateway: Gateway) -> None:
    joined = "remote_parquet p JOIN region r ON r.r_regionkey = p.id"
    assert gateway.asked(f"SELECT p.day, r.r_name FROM {joined} WHERE p.price > 2.5") == "1|EUROPE"


def test_objects_that_come_and_go_are_seen(gateway: Gateway, s3: Seaweed) -> None:
    path = "remote/parquet/day=2/part-0.parquet"
    more = pa.table({"id": [4], "symbol": ["D"], "price": [4.0]})
    data.put(s3, path, lambda file: pq.write_table(more, file))
    count = "SELECT count(*) FROM remote_parquet"
    wait_until(lambda: gateway.asked(count) == "4")
    s3.store().delete(path)
    wait_until(lambda: gateway.asked(count) == "3")


def test_a_bucket_that_sql_was_not_given_is_refused(gateway: Gateway, s3: Seaweed) -> None:
    sql = f"CREATE TABLE t USING parquet LOCATION 's3://{s3.bucket}/remote/parquet'"
    refused = gateway.psql("-v", "ON_ERROR_STOP=1", "-c", sql)
    assert refused.returncode and "serve.paths" in refused.stderr
