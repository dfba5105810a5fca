"""The kinds of statements that tools for dashboards and models send, though the tools are not run here.

They stand in tools.txt, part by part: what is said when somebody connects, opens the tree of tables, looks at
rows, and draws a chart.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.clients.conftest import Gateway

SCRIPT = (Path(__file__).parent / "tools.txt").read_text(encoding="utf-8")
PARTS = {part.split(":")[0]: part.splitlines()[1:] for part in SCRIPT.split("\n# ")[1:]}


@pytest.fixture
def connection(gateway: Gateway) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(gateway.url(), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("part", PARTS)
def test_everything_is_answered(connection: psycopg.Connection[Any], part: str) -> None:
    statements = [line for line in PARTS[part] if line]
    assert len(statements) > 5
    for sql in statements:
        try:
            cursor = connection.execute(sql)
        except psycopg.Error as error:
            raise AssertionError(f"{error}\n{sql}") from error
        if cursor.description:
            cursor.fetchall()


def test_times_are_put_into_groups(connection: psycopg.Connection[Any]) -> None:
    sql = """SELECT floor(extract(epoch from "instant")/60)*60 AS "time", sum(money) AS "value" FROM kinds
             WHERE "instant" BETWEEN '2024-02-29T00:00:00Z' AND '2024-02-29T23:59:59.999Z'
             GROUP BY 1 ORDER BY 1"""
    [(time, value)] = connection.execute(sql).fetchall()
    moment = dt.datetime(2024, 2, 29, 12, 34, tzinfo=dt.UTC)
    assert float(time) == moment.timestamp() and value == Decimal("12.34")


def test_models_are_made_beside_the_old_ones_and_renamed(connection: psycopg.Connection[Any]) -> None:
    """What dbt does for each view, twice: what reads a replaced view goes with it, and the catalog tells."""
    reads = """SELECT v.relname FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
               JOIN pg_class v ON v.oid = r.ev_class JOIN pg_class t ON t.oid = d.refobjid
               WHERE t.relname = %s AND v.oid <> t.oid"""
    connection.execute("CREATE SCHEMA IF NOT EXISTS models")
    for first in (True, False):
        connection.execute('create view "penstock"."models"."a__tmp" as (select n_name from nation)')
        if not first:
            connection.execute('alter table "penstock"."models"."a" rename to "a__old"')
            assert connection.execute(reads, ["a__old"]).fetchall() == [("b",)]
        connection.execute('alter table "penstock"."models"."a__tmp" rename to "a"')
        connection.execute('drop view if exists "penstock"."models"."a__old" cascade')
        connection.execute('create view "penstock"."models"."b" as (select count(*) as n from models.a)')
        assert connection.execute("SELECT n FROM models.b").fetchall() == [(25,)]
        assert connection.execute(reads, ["a"]).fetchall() == [("b",)]
    connection.execute("DROP SCHEMA models CASCADE")
