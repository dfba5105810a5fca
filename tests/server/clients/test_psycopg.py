"""psycopg 3: cursors, prepared statements, COPY, pipelines, cancelling, and parameters of every type."""

from __future__ import annotations

import datetime as dt
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors

from tests.server.clients.conftest import ENDLESS, Gateway
from tests.server.clients.data import KINDS, SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(gateway: Gateway) -> Iterator[Connection]:
    with psycopg.connect(gateway.url(), autocommit=True) as connection:
        yield connection


def _expected() -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in KINDS.to_pylist()]


@pytest.mark.parametrize("binary", [False, True])
def test_values(connection: Connection, binary: bool) -> None:
    rows = connection.cursor(binary=binary).execute("SELECT * FROM kinds ORDER BY id").fetchall()
    single = KINDS.schema.get_field_index("single")
    for row, expected in zip(rows, _expected(), strict=True):
        assert row[:single] == expected[:single] and row[single + 1 :] == expected[single + 1 :]
        assert row[single] == pytest.approx(expected[single])


@pytest.mark.parametrize("binary", [False, True])
def test_parameters(connection: Connection, binary: bool) -> None:
    """Each finds the row that it was taken from, all in one statement."""
    mark = "%b" if binary else "%t"
    # As text, a list of small numbers goes as smallint[], which PostgreSQL does not compare with integer[].
    names = [name for name in SAMPLES if binary or name != "numbers"]
    found, values = " AND ".join(f"{name} = {mark}" for name in names), [SAMPLES[name] for name in names]
    assert connection.execute(f"SELECT id FROM kinds WHERE {found}", values).fetchall() == [(1,)]
    names = [name for name in SAMPLES if name not in ("names", "numbers")]
    shown = ", ".join(mark for _ in names)
    back = connection.execute(f"SELECT {shown}", [SAMPLES[name] for name in names]).fetchone()
    assert back == tuple(SAMPLES[name] for name in names)


@pytest.mark.parametrize("mark", ["%b", "%t"])
def test_numbers_keep_their_digits(connection: Connection, mark: str) -> None:
    sql = f"SELECT {mark}, {mark}::numeric, money * {mark}, money - {mark} FROM kinds WHERE money > {mark}"
    for binary in (False, True):
        cursor = connection.cursor(binary=binary)
        [row] = cursor.execute(
            sql, [Decimal(n) for n in ("1.50", "0", "1.5", "0.340", "12.3399999")]
        ).fetchall()
        assert [str(value) for value in row] == ["1.50", "0", "18.510", "12.000"]
    with pytest.raises(errors.NumericValueOutOfRange, match="39 digits"):
        connection.execute(f"SELECT {mark} FROM kinds", [Decimal("1" * 39)])


def test_nulls_and_lists(connection: Connection) -> None:
    sql = "SELECT n_name, %s::int FROM nation WHERE n_nationkey = ANY(%s) AND %s IS NULL ORDER BY 1"
    assert connection.execute(sql, (None, [1, 2], None)).fetchall() == [("ARGENTINA", None), ("BRAZIL", None)]


@pytest.mark.parametrize("binary", [False, True])
def test_intervals(connection: Connection, binary: bool) -> None:
    sql = """SELECT id * INTERVAL '1 day 1 second', moment - TIMESTAMP '2024-02-28', day - DATE '2024-02-01',
                    instant + %s, INTERVAL '14 months'
             FROM kinds WHERE id = 1"""
    instant = dt.datetime(2024, 2, 29, 12, 34, 56, 789012, tzinfo=dt.UTC)
    row = connection.cursor(binary=binary).execute(sql, (dt.timedelta(hours=36),)).fetchone()
    assert row == (
        dt.timedelta(days=1, seconds=1),
        dt.timedelta(days=1, hours=12, minutes=34, seconds=56, microseconds=789012),
        28,
        instant + dt.timedelta(hours=36),
        dt.timedelta(days=365 + 60),
    )


def test_prepared_statements(connection: Connection) -> None:
    sql = "SELECT r_name FROM region WHERE r_regionkey = %s"
    names = [connection.execute(sql, (number,), prepare=True).fetchone() for number in range(3)]
    assert names == [("AFRICA",), ("AMERICA",), ("ASIA",)]
    assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() is not None


def test_cursors_on_the_server(connection: Connection) -> None:
    with connection.transaction(), connection.cursor("c") as cursor:
        cursor.itersize = 1000
        cursor.execute("SELECT o_orderkey FROM orders WHERE o_orderkey < %s ORDER BY 1", (20_000,))
        assert [row[0] for row in cursor][:3] == [1, 2, 3]
    with connection.transaction(), connection.cursor("d", binary=True) as cursor:
        cursor.execute("SELECT n_nationkey FROM nation ORDER BY 1")
        assert cursor.fetchmany(2) == [(0,), (1,)]
        cursor.scroll(3)
        assert cursor.fetchone() == (5,)


@pytest.mark.parametrize("form", ["text", "binary"])
def test_copy(connection: Connection, form: str) -> None:
    sql = f"COPY (SELECT n_nationkey, n_name FROM nation ORDER BY 1 LIMIT 2) TO STDOUT (FORMAT {form})"
    with connection.cursor().copy(sql) as copy:
        copy.set_types(["int8", "text"])
        assert list(copy.rows()) == [(0, "ALGERIA"), (1, "ARGENTINA")]


def test_pipelines(connection: Connection) -> None:
    with connection.pipeline():
        sql = "SELECT count(*) FROM nation WHERE n_regionkey = %s"
        cursors = [connection.execute(sql, (region,)) for region in range(3)]
    assert [cursor.fetchone() for cursor in cursors] == [(5,)] * 3
    with pytest.raises(errors.DivisionByZero):
        _three(connection)
    assert connection.execute("SELECT 3").fetchone() == (3,)


def _three(connection: Connection) -> None:
    with connection.pipeline():
        connection.execute("SELECT 1")
        connection.execute("SELECT 1 / 0")
        connection.execute("SELECT 2")


def test_rows_one_by_one(connection: Connection) -> None:
    rows = connection.cursor().stream("SELECT l_orderkey FROM lineitem LIMIT 5000")
    assert sum(1 for _ in rows) == 5000


def test_cancelling(connection: Connection) -> None:
    timer = threading.Timer(1.0, connection.cancel_safe)
    timer.start()
    with pytest.raises(errors.QueryCanceled, match="user request"):
        connection.execute(ENDLESS)
    timer.join()
    connection.execute("SET statement_timeout = '500ms'")
    with pytest.raises(errors.QueryCanceled, match="statement timeout"):
        connection.execute(ENDLESS)
    connection.execute("RESET statement_timeout")
    assert connection.execute("SELECT count(*) FROM region").fetchone() == (5,)


def test_a_transaction_that_failed(gateway: Gateway) -> None:
    with psycopg.connect(gateway.url()) as connection:
        with pytest.raises(errors.UndefinedColumn):
            connection.execute("SELECT nope FROM nation")
        with pytest.raises(errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        with connection.transaction():
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_large_numbers_are_exact(connection: Connection) -> None:
    sql = "SELECT sum(wide), avg(money), max(big) FROM kinds WHERE wide = %s"
    assert connection.execute(sql, (Decimal(10**37),)).fetchone() == (
        Decimal(10**37),
        Decimal("12.34"),
        -(2**63),
    )
