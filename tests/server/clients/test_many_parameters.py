"""Statements with as many parameters as programs send: tens of thousands, in every form that means a list."""

from __future__ import annotations

import threading
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors

from tests.marks import soaked
from tests.server.clients.conftest import Gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

Connection = psycopg.Connection[Any]
MANY = 20_000
MOST = 65_535
PATIENCE = 60
"""Seconds for one statement: far more than it takes, far less than it took before."""


@pytest.fixture
def connection(gateway: Gateway) -> Iterator[Connection]:
    with psycopg.connect(gateway.url(), autocommit=True) as connection:
        connection.execute(f"SET statement_timeout = '{PATIENCE}s'")
        yield connection


def listed(part: str, count: int, between: str = ",") -> str:
    return between.join(part.format(i=i, j=2 * i - 1, k=2 * i) for i in range(1, count + 1))


def count(connection: Connection, condition: str, values: list[Any]) -> int:
    sql = f"SELECT count(*) FROM orders WHERE {condition}"
    [(found,)] = psycopg.RawCursor(connection).execute(sql, values).fetchall()
    return int(found)


NUMBERS = list(range(1, MANY + 1))
FORMS: dict[str, tuple[str, list[Any]]] = {
    "in": (f"o_orderkey IN ({listed('${i}', MANY)})", NUMBERS),
    "casts": (f"o_orderkey IN ({listed('${i}::bigint', MANY)})", NUMBERS),
    "numerics": (f"o_orderkey IN ({listed('${i}', MANY)})", [Decimal(number) for number in NUMBERS]),
    "literals": (f"o_orderkey IN ({listed('{i}', MANY)})", []),
    "or": (f"({listed('o_orderkey = ${i}', MANY, ' OR ')})", NUMBERS),
    "any": ("o_orderkey = ANY ($1)", [NUMBERS]),
    "values": (f"o_orderkey IN (SELECT a FROM (VALUES {listed('(${i}::int)', MANY)}) AS t(a))", NUMBERS),
    "rows": (
        f"(o_orderkey, o_shippriority) IN ({listed('(${j}, ${k})', MANY)})",
        [value for number in NUMBERS for value in (number, 0)],
    ),
}


ALWAYS = ["in", "values"]
"""Forms that are read in ways of their own; the others are variants of these."""


@pytest.mark.parametrize("form", [*ALWAYS, *soaked(sorted(FORMS.keys() - ALWAYS))])
def test_twenty_thousand(connection: Connection, form: str) -> None:
    expected = count(connection, f"o_orderkey <= {MANY}", [])
    assert expected
    assert count(connection, *FORMS[form]) == expected
    if form in ("in", "or", "any", "literals"):
        condition, values = FORMS[form]
        others = count(connection, f"o_orderkey > {MANY}", [])
        assert count(connection, f"NOT ({condition})", values) == others


@pytest.mark.soak
def test_as_many_as_the_protocol_has(connection: Connection) -> None:
    condition = f"o_orderkey IN ({listed('${i}', MOST)})"
    assert count(connection, condition, list(range(1, MOST + 1))) == count(
        connection, f"o_orderkey <= {MOST}", []
    )


def test_others_are_served_meanwhile(gateway: Gateway, connection: Connection) -> None:
    """A statement that is being read holds nobody up, and can be cancelled."""
    slowest = 0.0
    done = threading.Event()

    def ask() -> None:
        nonlocal slowest
        with psycopg.connect(gateway.url(), autocommit=True) as other:
            while not done.is_set():
                begun = time.monotonic()
                other.execute("SELECT 1")
                slowest = max(slowest, time.monotonic() - begun)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        count(connection, *FORMS["in"])
        threading.Timer(0.5, connection.cancel_safe).start()
        begun = time.monotonic()
        with pytest.raises(errors.QueryCanceled):
            [count(connection, *FORMS["in"]) for _ in range(20)]
        assert time.monotonic() - begun < 15
    finally:
        done.set()
        asking.join()
    assert slowest < 10


def test_what_is_too_much_is_refused_at_once(connection: Connection) -> None:
    with pytest.raises(errors.StatementTooComplex, match="1,000 queries"):
        count(connection, f"o_orderkey IN ({listed('SELECT ${i}::int', MANY, ' UNION ALL ')})", NUMBERS)
    with pytest.raises(errors.StatementTooComplex, match="parts joined by OR"):
        count(connection, listed("o_orderkey < ${i} - o_custkey", MANY, " OR "), NUMBERS)
