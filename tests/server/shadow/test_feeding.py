"""System tables in the shadow: they hold what a statement brings along, for that statement alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.server.base import Relay, TableInfo, User
from penstock.server.session_settings import Settings
from penstock.server.shadow import Shadow, TooManyRows, feeding
from penstock.server.shadow.catalog import roles
from tests.server.shadow.asking import PETER, RITA, open_folder

NASTY = [
    "'; drop view sys.things; --",
    "O''Hara \\ \"ü\" \\'",
    "{a,b}",
    "",
    "NULL",
    "null",
    " two\nlines\t",
    "$1 $$ %s",
    None,
    "\\",
    '"',
]
MOMENT = dt.datetime(2026, 2, 28, 23, 59, 59, 123456, tzinfo=dt.UTC)
COLUMNS = pa.schema(
    {
        "name": pa.string(),
        "user": pa.string(),
        "number": pa.int64(),
        "real": pa.float64(),
        "flag": pa.bool_(),
        "at": pa.timestamp("us", "UTC"),
        "names": pa.list_(pa.string()),
        "price": pa.decimal128(12, 2),
    }
)
COUNT = len(NASTY)
THINGS = pa.table(
    {
        "name": NASTY,
        "user": [f"user {number}" for number in range(COUNT)],
        "number": [2**63 - 1, -(2**63), 0, None, *range(COUNT - 4)],
        "real": [0.1, float("inf"), float("-inf"), None, 1e300, 5e-324, *([1.0] * (COUNT - 6))],
        "flag": [True, False, None, *([True] * (COUNT - 3))],
        "at": [MOMENT, None, dt.datetime(1, 1, 1, tzinfo=dt.UTC), *([MOMENT] * (COUNT - 3))],
        "names": [[], None, NASTY, ["a"], *([["x", None]] * (COUNT - 4))],
        "price": [Decimal("1.50"), None, Decimal("-9999999999.99"), *([None] * (COUNT - 3))],
    },
    schema=COLUMNS,
)
KEY = ("sys", "things")
TABLES = [TableInfo(*KEY, "system", COLUMNS), TableInfo("public", "orders", "table", COLUMNS)]


@pytest.fixture
def fed(shared: Shadow) -> Shadow:
    """With one system table. A user's next statement takes the connection that was used last."""
    shared.sync(TABLES, [PETER, RITA])
    return shared


def answered(
    shadow: Shadow,
    sql: str,
    *values: object,
    user: User = PETER,
    rows: Mapping[tuple[str, str], pa.Table] | None = None,
) -> Relay:
    described = shadow.describe(sql, (), user, Settings())
    return shadow.run(sql, described.parameters, values, user, Settings(), described.columns, rows=rows)


def taken(relay: Relay) -> list[dict[str, Any]]:
    return [row for batch in relay.batches() for row in batch.to_pylist()]


def test_what_is_given_is_what_is_read(fed: Shadow) -> None:
    relay = answered(fed, "select * from sys.things", rows={KEY: THINGS})
    found = pa.Table.from_batches(relay.batches())
    assert found.to_pylist() == THINGS.to_pylist()
    assert found.schema.types == COLUMNS.types
    assert taken(answered(fed, "select * from sys.things", rows={KEY: THINGS.slice(0, 0)})) == []
    part = answered(fed, "select name from sys.things", rows={KEY: THINGS.slice(2, 3)})
    assert [row["name"] for row in taken(part)] == NASTY[2:5]


def test_it_looks_like_a_view_with_these_columns(fed: Shadow) -> None:
    sql = (
        "select attname, format_type(atttypid, atttypmod) from pg_attribute"
        " where attrelid = 'sys.things'::regclass and attnum > 0 order by attnum"
    )
    assert [tuple(row.values()) for row in taken(answered(fed, sql))] == [
        ("name", "text"),
        ("user", "text"),
        ("number", "bigint"),
        ("real", "double precision"),
        ("flag", "boolean"),
        ("at", "timestamp with time zone"),
        ("names", "text[]"),
        ("price", "numeric(12,2)"),
    ]


LEFT = "select coalesce(current_setting('penstock.sys_things_0', true), '') as left"


def nothing_is_left(shadow: Shadow, user: User = PETER) -> None:
    assert taken(answered(shadow, LEFT, user=user)) == [{"left": ""}]
    seen = "select 1 from pg_settings where name like 'penstock%' and setting <> ''"
    assert taken(answered(shadow, seen, user=user)) == []
    for sql in ("select * from sys.things", "select count(*) from sys.things"):
        with pytest.raises(SqlError):
            taken(answered(shadow, sql, user=user))


def test_nothing_is_left_for_the_next_statement(fed: Shadow) -> None:
    sql = "select name, current_setting('penstock.sys_things_0') <> '' as there from sys.things limit 1"
    for _ in range(20):
        assert taken(answered(fed, sql, rows={KEY: THINGS})) == [{"name": NASTY[0], "there": True}]
        nothing_is_left(fed)
        nothing_is_left(fed, RITA)


def test_nothing_is_left_by_a_statement_that_failed_or_was_left_or_cancelled(fed: Shadow) -> None:
    with pytest.raises(SqlError) as caught:
        taken(answered(fed, "select 1 / (number - number) from sys.things", rows={KEY: THINGS}))
    assert caught.value.sqlstate == "22012"
    nothing_is_left(fed)

    many = "select a.name from sys.things a, generate_series(1, 1000000)"
    relay = answered(fed, many, rows={KEY: THINGS})
    assert next(iter(relay.rows(binary=False)))
    nothing_is_left(fed)
    relay.close()
    nothing_is_left(fed)

    relay = answered(fed, many, rows={KEY: THINGS})
    pulled = relay.rows(binary=False)
    assert next(pulled)
    relay.cancel("enough")
    with pytest.raises(SqlError, match="enough"):
        list(pulled)
    nothing_is_left(fed)


def test_another_user_sees_nothing_while_a_statement_runs(fed: Shadow) -> None:
    relay = answered(fed, "select a.name from sys.things a, generate_series(1, 1000000)", rows={KEY: THINGS})
    assert next(iter(relay.rows(binary=False)))
    try:
        nothing_is_left(fed, RITA)
        seen = taken(answered(fed, "select query from pg_stat_activity", user=RITA))
        assert seen and not any(
            "things" in (row["query"] or "") for row in seen if "stat" not in row["query"]
        )
        mine = answered(fed, "select name from sys.things", user=RITA, rows={KEY: THINGS.slice(2, 1)})
        assert taken(mine) == [{"name": NASTY[2]}]
    finally:
        relay.close()


@pytest.mark.parametrize(
    "sql",
    [
        "select set_config('penstock.sys_things_0', '{a}', false)",
        "select set_config('penstock.sys_things_0', '{a}', true) from sys.things",
        "select pg_set_config('penstock.sys_things_0', '{a}', true) from sys.things",
        "set penstock.sys_things_0 to '{a}'; select 1",
        "update pg_settings set setting = '{a}' where name = 'penstock.sys_things_0'",
        "insert into sys.things (name) values ('a')",
        "create or replace view sys.things as select 1",
    ],
)
def test_nobody_makes_rows_up(fed: Shadow, sql: str) -> None:
    with pytest.raises(SqlError):
        taken(fed.run(sql, (), (), PETER, Settings(), (), rows={KEY: THINGS}))
    nothing_is_left(fed)


def test_two_users_never_have_one_role() -> None:
    names = ["public", "~public", "~~public", "", "~", "pg_x", "~pg_x", "none", "penstock_system", "ann"]
    assert len({roles.role_name(name) for name in names}) == len(names)


def test_users_who_may_not_read_the_schema_can_be_given_rows_too(fed: Shadow) -> None:
    """What they are given is decided row by row."""
    assert not RITA.may_read("sys")
    sql = "select name from sys.things where number = $1"
    assert taken(answered(fed, sql, 0, user=RITA, rows={KEY: THINGS})) == [
        {"name": "{a,b}"},
        {"name": "NULL"},
    ]


def test_postgresql_knows_how_many_rows_there_are(fed: Shadow) -> None:
    many = pa.Table.from_pylist([{"number": number} for number in range(20_000)], schema=COLUMNS)
    sql = "explain select * from sys.things a join sys.things b using (number)"
    lines = [row["QUERY PLAN"] for row in taken(answered(fed, sql, rows={KEY: many}))]
    assert any("rows=20000" in line for line in lines)
    assert not any("Nested Loop" in line for line in lines)


def test_too_many_rows_are_refused_before_anything_is_sent(
    fed: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "MOST", 100)
    with pytest.raises(TooManyRows):
        answered(fed, "select * from sys.things", rows={KEY: THINGS})
    nothing_is_left(fed)


def test_a_server_that_ended_is_started_again_and_gets_the_rows() -> None:
    with open_folder() as folder:
        shadow = Shadow(folder)
        shadow.start()
        try:
            shadow.sync(TABLES, [PETER])
            relay = answered(shadow, "select count(*) as n from sys.things", rows={KEY: THINGS})
            assert shadow._cluster is not None and shadow._cluster._process is not None
            shadow._cluster._process.kill()
            shadow._cluster._process.wait()
            assert taken(relay) == [{"n": COUNT}]
        finally:
            shadow.stop()
