"""ALTER … RENAME: the same under another name, also for those who read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.config import TableConfig
from penstock.errors import SqlError
from penstock.server.base import User
from penstock.server.relations import Tables
from penstock.sql.statements.classify import classify
from penstock.sql.statements.commands import Rename
from tests.server.relations.conftest import ADMIN, READER, Place, say

Rows = Callable[..., list[tuple[Any, ...]]]


def rename(tables: Tables, sql: str, user: User = ADMIN) -> list[str]:
    command = classify(sql)
    assert isinstance(command, Rename)
    return tables.rename(command, user=user)


def test_what_is_renamed_is_read_as_before(place: Place, rows: Rows) -> None:
    place.write("t/1.parquet")
    tables = place.tables(TableConfig("base", f"{place.data}/t"))
    say(tables, "CREATE TABLE t USING parquet LOCATION 't'")
    say(tables, "CREATE VIEW v AS SELECT max(id) AS top, 't' AS name FROM t")
    say(tables, "CREATE VIEW w AS SELECT top + 1 AS more FROM v")
    rename(tables, "ALTER TABLE t RENAME TO trades")
    rename(tables, "ALTER TABLE v RENAME TO v2")
    for each in (tables, place.tables()):
        assert len(rows(each, "trades")) == 3
        assert rows(each, "v2") == [(2, "t")] and rows(each, "w") == [(3,)]
        names = {info.name: info.definition for info in each.listed(ADMIN)}
        assert not {"t", "v"} & names.keys()
        assert "trades" in names["v2"] and "v2" in names["w"], "what they read is called so now"
    with pytest.raises(SqlError, match="depend on it"):
        say(tables, "DROP TABLE trades")
    say(tables, "CREATE VIEW v AS SELECT 7 AS top")
    assert rows(tables, "w") == [(3,)]


def test_what_postgresql_would_say(place: Place) -> None:
    place.write("t/1.parquet")
    tables = place.tables(TableConfig("base", f"{place.data}/t"))
    say(tables, "CREATE TABLE t USING parquet LOCATION 't'")
    say(tables, "CREATE VIEW v AS SELECT 1 AS one")
    for sql, state in (
        ("ALTER TABLE nothing RENAME TO x", "42P01"),
        ("ALTER VIEW t RENAME TO x", "42809"),
        ("ALTER TABLE t RENAME TO v", "42P07"),
        ("ALTER TABLE base RENAME TO x", "42501"),
        ('ALTER TABLE t RENAME TO "a b"', "42602"),
    ):
        with pytest.raises(SqlError) as caught:
            rename(tables, sql)
        assert caught.value.sqlstate == state, sql
    with pytest.raises(SqlError) as caught:
        rename(tables, "ALTER TABLE t RENAME TO x", READER)
    assert caught.value.sqlstate == "42501"
    [notice] = rename(tables, "ALTER TABLE IF EXISTS nothing RENAME TO x")
    assert "skipping" in notice
