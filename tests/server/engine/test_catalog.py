"""EXPLAIN, and statements that change the catalog."""

from __future__ import annotations

import json

import pytest

from penstock.errors import SqlError
from penstock.server.base import QueryState, User
from penstock.server.engine.engine import SparkEngine
from penstock.types import postgres as pg
from tests.server.engine.standins import ADMIN, ANN, FileTables, FixedShadow, connected, rows


def test_explain_shows_sparks_plan_line_by_line(engine: SparkEngine) -> None:
    client = connected(engine)
    sql = "EXPLAIN SELECT id FROM people WHERE id > $1"
    assert [c.name for c in client.prepare(sql, [pg.INT4]).columns or ()] == ["QUERY PLAN"]
    lines = [line for (line,) in rows(client, sql, 1, oids=[pg.INT4])]
    assert any("Physical Plan" in line for line in lines)
    assert any("Scan parquet" in line for line in lines)
    verbose = [line for (line,) in rows(client, "EXPLAIN VERBOSE SELECT id FROM people")]
    assert any("Optimized Logical Plan" in line for line in verbose)


def test_explain_tells_nobody_but_admins_where_files_are(engine: SparkEngine, tables: FileTables) -> None:
    for sql in ("EXPLAIN SELECT id FROM people", "EXPLAIN VERBOSE SELECT id FROM people WHERE id > 1"):
        seen, all_of_it = (
            "\n".join(line for (line,) in rows(connected(engine, user), sql)) for user in (ANN, ADMIN)
        )
        # Spark itself cuts what is long.
        folder = f"file:/{tables.folder.parts[1]}"
        assert folder in all_of_it
        assert "Location: InMemoryFileIndex [...]" in seen and "ReadSchema" in seen
        assert folder not in seen


def test_explain_analyze_runs_the_query_and_tells_what_it_took(engine: SparkEngine) -> None:
    lines = [line for (line,) in rows(connected(engine), "EXPLAIN ANALYZE SELECT id FROM people")]
    assert "Rows: 4" in lines
    assert any(line.startswith("Execution Time: ") and line.endswith(" ms") for line in lines)
    assert any(line.startswith("Tasks: ") and line != "Tasks: 0" for line in lines)


def test_explain_as_json(engine: SparkEngine) -> None:
    sql = "EXPLAIN (ANALYZE, FORMAT JSON) SELECT team, count(*) FROM people GROUP BY team"
    [[text]] = rows(connected(engine), sql)
    [plan] = json.loads(text)
    assert plan["Rows"] == 2 and plan["Stages"] >= 1 and plan["Plan"]


def test_explain_of_a_wrong_query_is_an_error_with_its_place(engine: SparkEngine) -> None:
    with pytest.raises(SqlError) as caught:
        connected(engine).prepare("EXPLAIN SELECT nothing FROM people")
    assert (caught.value.sqlstate, caught.value.position) == ("42703", 15)


def test_create_and_drop_reach_the_catalog_and_then_the_shadow(
    engine: SparkEngine, tables: FileTables, shadow: FixedShadow
) -> None:
    client = connected(engine)
    prepared = client.prepare("CREATE VIEW adults AS SELECT id FROM people")
    assert (prepared.tag, prepared.columns) == ("CREATE VIEW", None)
    execution = client.execute(prepared)
    assert tables.changes == []
    before = len(shadow.synced)
    assert list(execution.batches()) == []
    assert [(command.name, columns) for command, columns in tables.changes] == [(("adults",), ("id",))]
    assert list(execution.notices) == ["done"]
    assert len(shadow.synced) == before + 1
    assert engine.queries(ANN)[0].state is QueryState.FINISHED
    rows(client, "DROP VIEW adults")
    rows(client, "CREATE SCHEMA other")
    assert len(tables.changes) == 3


def test_a_shadow_that_cannot_be_told_fails_no_statement(
    engine: SparkEngine, tables: FileTables, shadow: FixedShadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise SqlError("the catalog does not answer", sqlstate="57P03")

    monkeypatch.setattr(shadow, "sync", refuse)
    client = connected(engine)
    rows(client, "CREATE SCHEMA other")
    assert len(tables.changes) == 1
    assert rows(client, "SELECT id FROM people WHERE id = 1") == [(1,)]


def test_a_view_with_a_wrong_query_never_enters_the_catalog(engine: SparkEngine, tables: FileTables) -> None:
    client = connected(engine)
    with pytest.raises(SqlError) as caught:
        client.prepare("CREATE VIEW v AS SELECT nothing FROM people")
    assert (caught.value.sqlstate, caught.value.position) == ("42703", 24)
    with pytest.raises(SqlError):
        client.prepare("CREATE VIEW v AS SELECT id FROM people WHERE id = $1")
    assert tables.changes == []


def test_those_who_may_only_read_change_nothing(engine: SparkEngine, tables: FileTables) -> None:
    client = connected(engine, User("eve"))
    with pytest.raises(SqlError) as caught:
        rows(client, "CREATE VIEW v AS SELECT id FROM people")
    assert caught.value.sqlstate == "42501"
    assert engine.queries(User("eve"))[0].state is QueryState.FAILED
    assert tables.changes == []
