"""Types of statements that were not run."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.server.base import TableInfo
from penstock.server.session_settings import Settings
from penstock.server.shadow import Shadow
from penstock.types import postgres
from tests.server.shadow.asking import ORDERS, PETER, TABLES


def test_parameters_get_the_types_that_their_places_ask_for(shadow: Shadow) -> None:
    described = shadow.describe(
        "select total * 2 as twice, $4 as said from orders"
        " where id = $1 and customer like $2 and at > $3 and $5 is null and id = any($6)",
        (),
        PETER,
        Settings(),
    )

    assert described.parameters == (
        postgres.INT8,
        postgres.TEXT,
        postgres.TIMESTAMPTZ,
        postgres.TEXT,
        postgres.TEXT,
        postgres.INT8_ARRAY,
    )
    assert described.columns is not None
    assert [(column.name, column.oid) for column in described.columns] == [
        ("twice", postgres.NUMERIC),
        ("said", postgres.TEXT),
    ]


def test_types_that_the_client_gives_are_kept(shadow: Shadow) -> None:
    described = shadow.describe("select $1, $2", (postgres.INT4, postgres.UNKNOWN), PETER, Settings())

    assert described.parameters == (postgres.INT4, postgres.TEXT)


def test_columns_have_the_types_of_the_table(shadow: Shadow) -> None:
    described = shadow.describe("select * from orders", (), PETER, Settings())

    assert described.columns is not None
    assert [column.type for column in described.columns] == ORDERS.types
    assert described.columns[2].typmod == postgres.numeric_typmod(12, 2)


def test_a_statement_without_rows_has_no_columns(shadow: Shadow) -> None:
    assert shadow.describe("set work_mem = '1MB'", (), PETER, Settings()).columns is None


def test_errors_are_postgresqls_own_with_their_place(shadow: Shadow) -> None:
    with pytest.raises(SqlError) as caught:
        shadow.describe("select 'ä', custmer from orders", (), PETER, Settings())

    assert caught.value.sqlstate == "42703"
    assert caught.value.position == 12
    assert "custmer" in caught.value.what
    assert caught.value.hint is not None and "orders.customer" in caught.value.hint
    with pytest.raises(SqlError) as caught:
        shadow.describe("selec 1", (), PETER, Settings())
    assert (caught.value.sqlstate, caught.value.position) == ("42601", 0)
    with pytest.raises(SqlError) as caught:
        shadow.describe("select 1; select 2", (), PETER, Settings())
    assert caught.value.sqlstate == "42601"
    with pytest.raises(SqlError) as caught:
        shadow.describe("select '\0'", (), PETER, Settings())
    assert caught.value.sqlstate == "22021"


def test_names_are_looked_up_in_the_search_path(shadow: Shadow) -> None:
    with pytest.raises(SqlError, match="does not exist"):
        shadow.describe("select * from queries", (), PETER, Settings())

    assert shadow.describe("select * from queries", (), PETER, Settings({"search_path": "sys"})).columns


def test_what_is_remembered_ends_with_the_table(shadow: Shadow) -> None:
    sql = "select customer from orders"
    first = shadow.describe(sql, (), PETER, Settings())
    assert shadow.describe(sql, (), PETER, Settings()) is first

    changed = TableInfo("public", "orders", "table", pa.schema([("customer", pa.int32())]))
    shadow.sync([changed, *TABLES[1:]], [PETER])

    described = shadow.describe(sql, (), PETER, Settings())
    assert described.columns is not None and described.columns[0].oid == postgres.INT4
