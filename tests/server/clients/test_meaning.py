"""Statements mean what PostgreSQL says, also with parameters; and columns tell where they are from."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.server.clients.conftest import Gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(gateway: Gateway) -> Iterator[Connection]:
    with psycopg.connect(gateway.url(), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("date_trunc(%s, timestamp '2020-05-17 10:20:30' + n_nationkey * interval '0')", ["month"]),
        ("to_char(timestamp '2020-05-17 10:20:30' + n_nationkey * interval '0', %s)", ["YYYY/MM"]),
        ("round(1.23456 * n_nationkey, %s)", [2]),
        ("trunc(1.23456 * n_nationkey, %s)", [1]),
        ("n_name ~ %s", ["^AL"]),
        ("regexp_replace(n_name, %s, %s, %s)", ["[aeiou]", "_", "gi"]),
        ("split_part(n_name || ',x', %s, %s)", [",", 2]),
        ("date_part(%s, timestamp '2020-05-17 10:20:30' + n_nationkey * interval '0')", ["hour"]),
        ("substring(n_name from %s)", ["[A-M]+"]),
        ("to_date(n_name || '2020-05-17', n_name || %s)", ["YYYY"]),
        ("lpad(n_name, %s, %s)", [6, "*"]),
        ("timestamp '2020-01-31' + n_nationkey * %s::interval", ["1 month 1 day 25:00:00"]),
        ("timestamp '2020-01-31' + %s", [dt.timedelta(days=1, hours=30)]),
        ("(timestamp '2020-01-31' + n_nationkey * interval '0') AT TIME ZONE %s", ["Europe/Berlin"]),
        ("string_to_array(n_name, %s)", ["A"]),
        ('\'{"a": {"b": 7}}\'::jsonb #>> %s::text[]', [["a", "b"]]),
        ("(n_nationkey::text || '[]')::text LIKE %s ESCAPE %s", ["1!_%", "!"]),
    ],
)
def test_parameters_where_literals_are_expected(
    connection: Connection, witness: Connection, sql: str, values: list[Any], binary: bool
) -> None:
    query = f"SELECT {sql} FROM nation WHERE n_nationkey < 3 ORDER BY n_nationkey"
    if "to_date" in sql:
        with pytest.raises(psycopg.Error, match="must be a literal"):
            connection.execute(query, values)
        return
    ours = connection.cursor(binary=binary).execute(query, values).fetchall()
    assert ours == witness.cursor(binary=binary).execute(query, values).fetchall()


@pytest.fixture(scope="module")
def witness() -> Iterator[Connection]:
    from servers.postgres import Postgres

    with Postgres() as server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE nation (n_nationkey bigint, n_name text)")
        connection.execute("INSERT INTO nation VALUES (0, 'ALGERIA'), (1, 'ARGENTINA'), (2, 'BRAZIL')")
        yield connection


def test_words_that_are_values_are_no_columns(connection: Connection) -> None:
    sql = "SELECT user, current_user, session_user, current_role, current_catalog, current_schema FROM nation"
    assert connection.execute(sql).fetchone() == ("ann", "ann", "ann", "ann", "penstock", "public")
    assert connection.execute("SELECT user, current_catalog").fetchone() == ("ann", "penstock")


def test_columns_tell_their_table(connection: Connection) -> None:
    cursor = connection.execute(
        "SELECT p.n_name AS label, p.n_nationkey + 1, p.n_nationkey FROM nation p LIMIT 1"
    )
    assert cursor.pgresult is not None
    places = [(cursor.pgresult.ftable(n), cursor.pgresult.ftablecol(n)) for n in range(3)]
    assert places[1] == (0, 0) and places[0][0] == places[2][0] != 0
    sql = "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
    named = [
        connection.execute(f"{sql} WHERE c.oid = %s AND a.attnum = %s", place).fetchone()
        for place in (places[0], places[2])
    ]
    assert named == [("nation", "n_name"), ("nation", "n_nationkey")]


def test_the_default_isolation_level_is_that_of_the_next_transaction(gateway: Gateway) -> None:
    def shown(connection: Connection, name: str) -> str:
        row = connection.execute(f"SHOW {name}").fetchone()
        assert row
        return str(row[0])

    with psycopg.connect(gateway.url(), autocommit=True) as connection:
        assert shown(connection, "transaction_isolation") == "read committed"
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        assert shown(connection, "default_transaction_isolation") == "serializable"
        assert shown(connection, "transaction isolation level") == "serializable"
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert shown(connection, "transaction_isolation") == "repeatable read"
        connection.execute("SET default_transaction_isolation = 'read committed'")
        assert shown(connection, "transaction_isolation") == "repeatable read"
        connection.execute("COMMIT")
        assert shown(connection, "transaction_isolation") == "read committed"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1 day 02:03:04", (0, 1, 7384)), ("25:00", (0, 0, 90_000)), ("1 mon -1 day", (1, -1, 0))],
)
def test_intervals_keep_their_parts(
    connection: Connection, value: str, expected: tuple[int, int, int]
) -> None:
    for given in (f"interval '{value}'", "%s::interval"):
        values = [value] * given.count("%s")
        sql = f"SELECT extract(month from {given}), extract(day from {given}), extract(hour from {given})"
        row = connection.execute(f"{sql} FROM nation WHERE n_nationkey = 1", values * 3).fetchone()
        assert row == (expected[0], expected[1], Decimal(expected[2] // 3600))


def test_the_session_tells_its_prepared_statements_and_cursors(gateway: Gateway) -> None:
    with psycopg.connect(gateway.url(), autocommit=True) as connection:
        connection.execute("PREPARE mine(int) AS SELECT n_name FROM nation WHERE n_nationkey = $1")
        sql = (
            "SELECT name, from_sql, parameter_types::text[] FROM pg_prepared_statements p WHERE name = 'mine'"
        )
        assert connection.execute(sql).fetchall() == [("mine", True, ["integer"])]
        asked = (
            "SELECT count(*) FROM pg_catalog.pg_prepared_statements WHERE statement LIKE '%n_nationkey = $1'"
        )
        assert connection.execute(asked).fetchone() == (1,)
        connection.execute("DEALLOCATE mine")
        assert connection.execute(sql).fetchall() == []
        with connection.transaction():
            connection.execute("DECLARE rows CURSOR FOR SELECT n_name FROM nation")
            assert connection.execute("SELECT name FROM pg_cursors").fetchall() == [("rows",)]


def test_a_prepared_statement_follows_the_time_zone(gateway: Gateway) -> None:
    """02:30 is shown twice in Berlin on that day; PostgreSQL means the second time."""
    local = "date '2020-10-24' + n_nationkey + interval '2 hours 30 minutes'"
    sql = f"SELECT extract(epoch from ({local})::timestamptz)::bigint FROM nation WHERE n_nationkey = 1"
    with psycopg.connect(gateway.url(), autocommit=True) as connection:
        connection.execute(f"PREPARE shown AS {sql}")
        for zone, expected in (("UTC", 1603593000), ("Europe/Berlin", 1603589400), ("UTC", 1603593000)):
            connection.execute(f"SET timezone = '{zone}'")
            assert connection.execute("EXECUTE shown").fetchone() == (expected,)


def test_binary_parameters_of_ranges_times_with_zones_and_single_bytes(connection: Connection) -> None:
    from psycopg.pq import ExecStatus

    def answer(expression: str, oid: int, value: bytes) -> bytes | None:
        result = connection.pgconn.exec_params(f"SELECT {expression}".encode(), [value], [oid], [1])
        assert result.status == ExecStatus.TUPLES_OK, result.error_message
        return result.get_value(0, 0)

    five, nine = (
        (4).to_bytes(4, "big") + (5).to_bytes(4, "big"),
        (4).to_bytes(4, "big") + (9).to_bytes(4, "big"),
    )
    assert answer("$1", 3904, b"\x02" + five + nine) == b"[5,9)"
    assert answer("$1", 3904, b"\x12" + five) == b"[5,)"
    assert answer("$1", 3904, b"\x01") == b"empty"
    noon = (43_200_000_000).to_bytes(8, "big") + (-7200).to_bytes(4, "big", signed=True)
    assert answer("$1", 1266, noon) == b"12:00:00+02"
    assert answer("$1", 18, b"x") == b"x"
