"""The text of a view's author, and who sees it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.server.base import TableInfo
from penstock.server.shadow import Shadow
from penstock.server.shadow.catalog.definitions import shown
from tests.server.shadow.asking import PETER, RITA, TABLES, ask

NUMBER = pa.schema([("n", pa.int64())])
TEXT = "SELECT n /* it's $$ours$$ */\nFROM t -- all of it"
VIEWS = [
    TableInfo("public", "v", "view", NUMBER, TEXT),
    TableInfo("Sales 2", "Hidden one", "view", NUMBER, "SELECT secret"),
    TableInfo("public", "untold", "view", NUMBER),
]


@pytest.fixture
def viewed(shadow: Shadow) -> Shadow:
    shadow.sync([*TABLES, *VIEWS], [PETER, RITA])
    return shadow


def test_every_way_to_ask_shows_what_the_author_wrote(viewed: Shadow) -> None:
    said = f"{TEXT}\n;"
    by_function = (
        "select pg_get_viewdef('v'), pg_get_viewdef('public.v', true), pg_get_viewdef('v'::regclass),"
        " pg_get_viewdef('v'::regclass, true), pg_get_viewdef('v'::regclass::oid, 0)"
    )

    assert ask(viewed, by_function) == [[said] * 5]
    assert ask(viewed, "select definition from pg_views where viewname = 'v'") == [[said]]
    sql = "select view_definition from information_schema.views where table_name = 'v'"
    assert ask(viewed, sql) == [[said]]


def test_other_views_say_what_they_said(viewed: Shadow) -> None:
    assert ask(viewed, "select pg_get_viewdef('untold')") == [[" SELECT NULL::bigint AS n;"]]
    (text,) = ask(viewed, "select pg_get_viewdef('pg_roles'::regclass, true)")[0]
    assert text is not None and "pg_authid" in text
    assert ask(viewed, "select pg_get_viewdef(0::oid), pg_get_viewdef(null::oid)") == [[None, None]]
    (count,) = ask(viewed, "select count(definition) from pg_views where schemaname = 'pg_catalog'")[0]
    assert int(count or 0) > 50


def test_who_may_not_use_the_schema_does_not_see_the_text(viewed: Shadow) -> None:
    oid = "(select oid from pg_class where relname = 'Hidden one')"
    asked = [
        f"select pg_get_viewdef({oid})",
        f"select pg_get_viewdef({oid}, true)",
        "select definition from pg_views where viewname = 'Hidden one'",
    ]

    for sql in asked:
        assert ask(viewed, sql) == [["SELECT secret;"]]
        assert ask(viewed, sql, user=RITA) == [[None]]
    standard = "select count(*) from information_schema.views where view_definition like '%secret%'"
    assert ask(viewed, standard) == [["1"]] and ask(viewed, standard, user=RITA) == [["0"]]
    for user in (PETER, RITA):
        with pytest.raises(SqlError, match="permission denied for table pg_view_text"):
            ask(viewed, "select * from pg_view_text", user=user)


def test_texts_come_and_go_with_their_views(viewed: Shadow) -> None:
    oid = ask(viewed, "select 'v'::regclass::oid")
    changed = TableInfo("public", "v", "view", NUMBER, "SELECT 2 AS n")
    viewed.sync([*TABLES, changed], [PETER, RITA])
    assert ask(viewed, "select pg_get_viewdef('v')") == [["SELECT 2 AS n;"]]
    assert ask(viewed, "select 'v'::regclass::oid") == oid, "the columns are the same, and so is the twin"
    viewed.sync([*TABLES, TableInfo("public", "v", "view", NUMBER)], [PETER, RITA])
    assert ask(viewed, "select pg_get_viewdef('v')") == [[" SELECT NULL::bigint AS n;"]]


def test_a_text_ends_with_a_semicolon_that_is_no_comment() -> None:
    assert shown(" SELECT 1 ") == "SELECT 1;"
    assert shown("SELECT 1 -- one\n, 2") == "SELECT 1 -- one\n, 2;"
    assert shown("SELECT 1 -- one") == "SELECT 1 -- one\n;"


def test_what_a_view_reads_is_known_and_keeps_no_twin(viewed: Shadow) -> None:
    sql = (
        "select rc.relname from pg_depend d join pg_rewrite r on r.oid = d.objid join pg_class rc"
        " on rc.oid = d.refobjid where r.ev_class = 'v'::regclass and rc.oid <> r.ev_class order by 1"
    )
    reads = (("public", "orders"), ("sys", "queries"), ("nowhere", "nothing"))
    view = TableInfo("public", "v", "view", NUMBER, TEXT, reads)
    viewed.sync([*TABLES, view], [PETER, RITA])
    version = viewed.version
    assert ask(viewed, sql) == [["orders"], ["queries"]]
    viewed.sync([*TABLES, view], [PETER, RITA])
    assert viewed.version == version, "nothing has changed"

    wider = TableInfo("public", "orders", "table", pa.schema([("other", pa.int64())]))
    viewed.sync([wider, *TABLES[1:], view], [PETER, RITA])
    assert ask(viewed, sql) == [["orders"], ["queries"]]
    assert ask(viewed, "select attname from pg_attribute where attrelid = 'orders'::regclass and attnum > 0")
    viewed.sync([*TABLES[:-1], view], [PETER, RITA])
    assert ask(viewed, sql) == [["orders"]]
    viewed.sync(TABLES[1:], [PETER, RITA])
    assert ask(viewed, "select to_regclass('orders'), to_regclass('v')") == [[None, None]]
