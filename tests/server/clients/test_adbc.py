"""ADBC over both protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adbc_driver_flightsql.dbapi
import adbc_driver_postgresql.dbapi
import pytest

from tests.server.clients.conftest import PASSWORDS, Gateway
from tests.server.clients.data import KINDS, TPCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


@pytest.fixture(params=["postgresql", "flightsql"])
def connection(gateway: Gateway, request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "postgresql":
        opened = adbc_driver_postgresql.dbapi.connect(gateway.url(), autocommit=True)
    else:
        login = {"username": "ann", "password": PASSWORDS["ann"]}
        opened = adbc_driver_flightsql.dbapi.connect(gateway.flight, db_kwargs=login, autocommit=True)
    with opened as connection:
        yield connection


def _asked(connection: Any, sql: str, values: Any = None) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetch_arrow_table()


def test_values(connection: Any) -> None:
    table = _asked(connection, "SELECT * FROM kinds ORDER BY id")
    assert table.column_names == KINDS.column_names
    # PostgreSQL's driver has no decimals, and JSON is text for both.
    text = ("money", "wide")
    for ours, theirs in zip(KINDS.to_pylist(), table.to_pylist(), strict=True):
        for name in KINDS.column_names[:-1]:
            wanted, got = ours[name], theirs[name]
            assert got == (str(wanted) if name in text and isinstance(got, str) else wanted), name
    assert [row["pair"] for row in table.to_pylist()] == [
        '{"x":1,"y":"one"}',
        '{"x":null,"y":"none"}',
        None,
    ]


def test_parameters(connection: Any) -> None:
    sql = "SELECT n_name FROM nation WHERE n_nationkey = $1 AND n_name <> $2"
    assert _asked(connection, sql, (3, "x")).to_pylist() == [{"n_name": "CANADA"}]


def test_a_larger_result(connection: Any) -> None:
    table = _asked(connection, "SELECT l_orderkey, l_comment FROM lineitem LIMIT 100000")
    assert table.num_rows == 100_000


def test_metadata(connection: Any) -> None:
    catalogs = connection.adbc_get_objects(depth="all", db_schema_filter="public").read_all().to_pylist()
    [schema] = catalogs[0]["catalog_db_schemas"]
    tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
    assert {*TPCH, "kinds"} <= set(tables)
    columns = [column["column_name"] for column in tables["kinds"]["table_columns"]]
    assert columns == KINDS.column_names
    assert connection.adbc_get_table_schema("nation").names[:2] == ["n_nationkey", "n_name"]
    assert connection.adbc_get_info()["vendor_name"] in ("PostgreSQL", "Penstock")
    assert connection.adbc_get_table_types()


def test_errors_and_views(connection: Any) -> None:
    with pytest.raises(Exception, match='column "nope" does not exist'):
        _asked(connection, "SELECT nope FROM nation")
    with connection.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE VIEW desk.adbc AS SELECT 1 AS one")
        cursor.execute("SELECT one FROM desk.adbc")
        assert cursor.fetchall() == [(1,)]
        cursor.execute("DROP VIEW desk.adbc")
