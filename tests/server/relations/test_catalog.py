"""CREATE and DROP: recorded in the catalog, there after a restart and for everyone else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock.config import TableConfig
from penstock.control.catalog import Catalog, Create, Statement, StatementKind
from penstock.errors import SqlError
from tests.server.relations.conftest import ADMIN, READER, WRITER, Place, numbers, say
from tests.server.waiting import wait_until

Rows = Callable[..., list[tuple[Any, ...]]]


def refused(state: str, action: Callable[[], object], *texts: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        action()
    assert caught.value.sqlstate == state, caught.value
    for text in texts:
        assert text in str(caught.value)
    return caught.value


def test_tables_and_views_are_there_after_a_restart_and_elsewhere(place: Place, rows: Rows) -> None:
    place.write("t/1.parquet")
    first, other = place.tables(), place.tables()
    other.follow()
    before = other.version
    say(first, "CREATE SCHEMA sales")
    say(first, "CREATE TABLE sales.t USING parquet LOCATION 't'")
    say(first, "CREATE VIEW v AS SELECT count(*), max(name) AS top FROM sales.t", columns=["count", "top"])
    say(first, "CREATE VIEW w (how_many) AS SELECT count + 1 FROM v")
    assert rows(first, "v") == [(3, "n2")] and rows(first, "w") == [(4,)]
    wait_until(lambda: "w" in [info.name for info in other.listed(ADMIN)])
    assert rows(other, "public", "w") == [(4,)] and other.version > before

    restarted = place.tables()
    assert rows(restarted, "penstock", "public", "w") == [(4,)]
    listed = {(i.schema, i.name): i for i in restarted.listed(ADMIN)}
    assert listed["public", "v"].kind == "view" and listed["public", "v"].columns.names == ["count", "top"]
    assert str(listed["sales", "t"].columns.field("id").type) == "int64"
    assert listed["public", "v"].definition == "SELECT count(*), max(name) AS top FROM sales.t"
    assert listed["public", "w"].definition == "SELECT * FROM (\nSELECT count + 1 FROM v\n) AS w (how_many)"

    say(restarted, "CREATE OR REPLACE VIEW v AS SELECT 10 AS count", WRITER)
    wait_until(lambda: rows(other, "w") == [(11,)])
    assert say(restarted, "DROP SCHEMA sales CASCADE") == ["drop cascades to table sales.t"]
    wait_until(lambda: ("sales", "t") not in [(i.schema, i.name) for i in other.listed(ADMIN)])
    assert (place.data / "t/1.parquet").exists()


def test_what_postgresql_would_say(place: Place) -> None:
    place.write("t/1.parquet")
    tables = place.tables(TableConfig("fixed", str(place.data / "t")))
    say(tables, "CREATE VIEW a AS SELECT id FROM fixed")
    say(tables, "CREATE VIEW b AS SELECT id FROM a")
    refused("42P07", lambda: say(tables, "CREATE VIEW a AS SELECT 1 AS x"), 'relation "a" already exists')
    refused("42P07", lambda: say(tables, "CREATE TABLE a USING parquet LOCATION 't'"))
    skipped = say(tables, "CREATE TABLE IF NOT EXISTS a USING parquet LOCATION 't'")
    assert skipped == ['relation "a" already exists, skipping']
    refused("2BP01", lambda: say(tables, "DROP VIEW a"), "view b depends on view a", "CASCADE")
    refused("42809", lambda: say(tables, "DROP TABLE a"), "DROP VIEW")
    refused("42809", lambda: say(tables, "CREATE OR REPLACE VIEW fixed AS SELECT 1 AS x"))
    refused("42501", lambda: say(tables, "DROP TABLE fixed"), "penstock.toml")
    refused("42P01", lambda: say(tables, "DROP VIEW nope"), 'view "nope" does not exist')
    assert say(tables, "DROP VIEW IF EXISTS nope") == ['view "nope" does not exist, skipping']
    refused("3F000", lambda: say(tables, "CREATE VIEW nowhere.v AS SELECT 1 AS x"))
    refused("42P06", lambda: say(tables, "CREATE SCHEMA public"))
    assert say(tables, "CREATE SCHEMA IF NOT EXISTS public") == ['schema "public" already exists, skipping']
    refused("42939", lambda: say(tables, "CREATE SCHEMA pg_mine"))
    refused("42701", lambda: say(tables, "CREATE VIEW c AS SELECT id, id FROM a"))
    refused("42602", lambda: say(tables, 'CREATE VIEW "a b" AS SELECT 1 AS x'))
    wrong = refused(
        "42P01", lambda: say(tables, "CREATE VIEW c AS SELECT * FROM fixd"), "did you mean fixed?"
    )
    assert wrong.position == len("CREATE VIEW c AS SELECT * FROM ")
    assert say(tables, "DROP VIEW a CASCADE") == ["drop cascades to view b"]
    say(tables, "CREATE VIEW _a AS SELECT 1 AS x")
    say(tables, "CREATE VIEW b AS SELECT x FROM _a")
    assert say(tables, "DROP VIEW _a, b") == []
    assert [info.name for info in tables.listed(ADMIN)] == ["fixed"]


def test_grants(place: Place) -> None:
    place.write("t/1.parquet")
    tables = place.tables(TableConfig("hidden.t", str(place.data / "t")))
    say(tables, "CREATE VIEW v AS SELECT id FROM hidden.t")
    refused("42501", lambda: tables.find(("hidden", "t"), (), READER), "schema hidden")
    refused("42P01", lambda: tables.find(("t",), ("hidden", "public"), READER))
    assert [info.name for info in tables.listed(READER)] == ["v"]
    assert tables.find(("v",), ("public",), READER).columns.names == ["id"]
    for statement in ("CREATE VIEW x AS SELECT 1 AS x", "DROP VIEW v", "CREATE SCHEMA s"):
        refused("42501", partial(say, tables, statement, READER))
    for schema in ("sys", "pg_catalog", "information_schema"):
        refused("42501", partial(say, tables, f"CREATE VIEW {schema}.x AS SELECT 1 AS x"))


def test_a_broken_table_is_listed_tells_why_and_heals(place: Place, rows: Rows) -> None:
    file = place.write("gone/1.parquet")
    place.write("here/1.parquet")
    tables = place.tables()
    for name in ("gone", "here"):
        say(tables, f"CREATE TABLE {name} USING parquet LOCATION '{name}'")
    say(tables, "CREATE VIEW v AS SELECT id FROM gone")
    file.rename(place.data / "kept")
    (place.data / "gone").rmdir()
    refused("58P01", lambda: rows(tables, "gone"), "gone")

    restarted = place.tables()
    assert rows(restarted, "here") and set(restarted.broken()) == {("public", "gone"), ("public", "v")}
    listed = {info.name: info for info in restarted.listed(ADMIN)}
    assert listed["gone"].columns.names == ["id", "name"] and listed["v"].columns.names == ["id"]
    refused("58P01", lambda: restarted.find(("v",), ("public",), ADMIN), "gone")
    (place.data / "gone").mkdir()
    (place.data / "kept").rename(file)

    def healed() -> bool:
        try:
            return rows(restarted, "v") == [(0,), (1,), (2,)]
        except SqlError:
            return False

    wait_until(healed)
    assert restarted.broken() == {}


def test_what_others_wrote_into_the_catalog(place: Place, rows: Rows) -> None:
    place.write("t/1.parquet", numbers(2))
    catalog = Catalog(place.store)
    for name, kind, text in (
        ("words", StatementKind.SOURCE, "CREATE SOURCE words"),
        ("t", StatementKind.TABLE, f"CREATE TABLE t USING parquet LOCATION '{place.data}/t'"),
        ("v", StatementKind.VIEW, "CREATE VIEW v AS SELECT max(id) AS m FROM t"),
        ("odd", StatementKind.VIEW, "CREATE VIEW odd AS SELECT FROM WHERE"),
        ("out", StatementKind.SINK, "CREATE SINK out FROM t"),
    ):
        needs = ("t",) if name in ("v", "out") else ()
        catalog.change(Create(Statement(name, kind, text, needs)))
    tables = place.tables()
    assert rows(tables, "v") == [(1,)]
    assert list(tables.broken()) == [("public", "odd")]
    refused("2BP01", lambda: say(tables, "DROP TABLE t"), "view v")
    say(tables, "CREATE OR REPLACE VIEW v AS SELECT min(id) AS m FROM t")
    assert rows(tables, "v") == [(0,)]
    say(tables, "DROP VIEW v, odd")
    refused("2BP01", lambda: say(tables, "DROP TABLE t CASCADE"), "sink out depends on it")
    assert [entry.name for entry in catalog.head().entries] == ["words", "t", "out"]


def test_what_is_kept_for_people_does_not_make_a_view_too_long(place: Place) -> None:
    place.write("t/1.parquet")
    tables = place.tables(TableConfig("t", f"{place.data}/t"))
    long = "SELECT id FROM t WHERE name IN (" + ", ".join(f"'{n:060}'" for n in range(1_500)) + ")"
    assert 64 * 1024 < len(long) < 128 * 1024
    say(tables, f"CREATE VIEW v AS {long}")
    [info] = [each for each in tables.listed(ADMIN) if each.name == "v"]
    assert info.definition.startswith("SELECT") and "penstock" in info.definition, "it is Spark's"
