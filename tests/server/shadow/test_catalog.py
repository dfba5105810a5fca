"""What clients find in the catalog, and who sees what."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.server.base import TableInfo, User
from penstock.server.session_settings import Settings
from penstock.server.shadow import Shadow
from tests.server.shadow.asking import ORDERS, PETER, RITA, TABLES, ask, relay


def test_tables_views_and_columns_are_listed_as_they_are(shadow: Shadow) -> None:
    found = ask(
        shadow,
        "select table_schema, table_name, table_type from information_schema.tables"
        " where table_schema not in ('pg_catalog', 'information_schema') order by 1, 2",
    )

    assert found == [
        ["Sales 2", 'odd "name"', "BASE TABLE"],
        ["public", "big orders", "VIEW"],
        ["public", "orders", "BASE TABLE"],
        ["sys", "queries", "VIEW"],
    ]
    columns = ask(
        shadow,
        "select attname, format_type(atttypid, atttypmod), attnotnull from pg_attribute"
        " where attrelid = 'orders'::regclass and attnum > 0 order by attnum",
    )
    assert columns == [
        ["id", "bigint", "t"],
        ["customer", "text", "f"],
        ["total", "numeric(12,2)", "f"],
        ["at", "timestamp with time zone", "f"],
        ["tags", "text[]", "f"],
    ]


def test_there_is_one_database_and_only_people_are_listed_as_roles(shadow: Shadow) -> None:
    assert ask(shadow, "select datname from pg_database") == [["penstock"]]
    assert ask(shadow, "select rolname from pg_roles where rolname !~ '^pg_' order by 1") == [
        ["Rita O'Hara"],
        ["penstock_system"],
        ["peter"],
    ]
    assert ask(shadow, "select nspname from pg_namespace where nspname !~ '^pg_' order by 1") == [
        ["Sales 2"],
        ["information_schema"],
        ["public"],
        ["sys"],
    ]


def test_a_session_is_the_users_own(shadow: Shadow) -> None:
    sql = (
        "select current_user, session_user, current_database(), "
        "current_setting('TimeZone'), pg_is_in_recovery()"
    )

    assert ask(shadow, sql, user=RITA, TimeZone="Europe/Berlin") == [
        ["Rita O'Hara", "Rita O'Hara", "penstock", "Europe/Berlin", "f"]
    ]
    (version,) = ask(shadow, "select version()")[0]
    assert version is not None and version.startswith("PostgreSQL 1") and "Penstock" in version


def test_settings_of_one_session_do_not_reach_the_next(shadow: Shadow) -> None:
    sql = "select '03/02/2024'::date::text, current_schema()"

    assert ask(shadow, sql, DateStyle="ISO, DMY", search_path="sys") == [["2024-02-03", "sys"]]
    assert ask(shadow, sql) == [["2024-03-02", "public"]]


def test_privileges_are_those_of_the_user(shadow: Shadow) -> None:
    odd = """'"Sales 2"."odd ""name\"""'"""
    sql = (
        f"select has_schema_privilege('Sales 2', 'usage'), has_table_privilege({odd}, 'select'),"
        " has_table_privilege('public.orders', 'select'), has_table_privilege('public.orders', 'insert'),"
        " has_schema_privilege('public', 'create')"
    )

    assert ask(shadow, sql) == [["t", "t", "t", "f", "f"]]
    with pytest.raises(SqlError, match="permission denied for schema Sales 2"):
        ask(shadow, sql, user=RITA)
    by_oid = sql.replace(odd, "(select oid from pg_class where relname like 'odd%')")
    assert ask(shadow, by_oid, user=RITA) == [["f", "f", "t", "f", "f"]]


def test_a_user_who_is_new_or_may_read_more_since_is_served(shadow: Shadow) -> None:
    sql = "select has_schema_privilege('Sales 2', 'usage')"
    new = User("new", schemas=frozenset({"public"}))

    assert ask(shadow, sql, user=new) == [["f"]]
    assert ask(shadow, sql, user=User("new")) == [["t"]]
    assert ask(shadow, sql, user=new) == [["f"]]


@pytest.mark.parametrize(
    "name", ["pg_reader", "penstock_system", "public", "~public", "x" * 200, "ü" * 60, 'a"b']
)
def test_a_user_may_have_any_name(shadow: Shadow, name: str) -> None:
    assert ask(shadow, "select 1, rolsuper from pg_roles where rolname = current_user", user=User(name)) == [
        ["1", "f"]
    ]


def test_sync_changes_only_what_differs_and_readers_see_it_as_a_whole(shadow: Shadow) -> None:
    oid = ask(shadow, "select 'orders'::regclass::oid")
    version = shadow.version

    shadow.sync(TABLES, [PETER, RITA])
    assert shadow.version == version

    wider = ORDERS.append(pa.field("note", pa.string()))
    shadow.sync([TABLES[0], TableInfo("public", "big orders", "table", wider)], [PETER])
    assert shadow.version == version + 1
    assert ask(shadow, "select 'orders'::regclass::oid") == oid
    assert ask(shadow, "select relkind, relnatts from pg_class where relname = 'big orders'") == [["r", "6"]]
    assert ask(shadow, "select to_regclass('sys.queries')") == [[None]]
    assert ask(shadow, "select count(*) from pg_namespace where nspname in ('sys', 'Sales 2')") == [["0"]]
    assert ask(shadow, "select count(*) from pg_roles where rolname like 'Rita%'") == [["0"]]


def test_tables_that_postgresql_would_refuse_do_not_keep_others_out(shadow: Shadow) -> None:
    odd = [
        TableInfo("public", "hidden", "table", pa.schema([("xmin", pa.int64()), ("b", pa.int64())])),
        TableInfo("public", "nothing", "table", pa.schema([])),
        TableInfo("public", "nothing to see", "view", pa.schema([])),
        TableInfo("public", "twice", "table", pa.schema([("a", pa.int64()), ("a", pa.int64())])),
        TableInfo("public", "wide", "table", pa.schema([(f"c{n}", pa.int64()) for n in range(2000)])),
        TableInfo("public", "l" * 100, "table", pa.schema([("m" * 99, pa.int8()), ("m" * 98, pa.int8())])),
        TableInfo("public", "unnamed", "table", pa.schema([("", pa.int64())])),
        TableInfo("pg_private", "refused", "table", pa.schema([("a", pa.int64())])),
        TableInfo("information_schema", "tables", "table", pa.schema([("a", pa.int64())])),
    ]

    shadow.sync([*odd, *TABLES], [PETER], schemas=["empty"])

    found = ask(shadow, "select relname from pg_class where relnamespace = 'public'::regnamespace")
    names = {name for (name,) in found}
    assert {"hidden", "nothing", "nothing to see", "twice", "wide", "l" * 63, "unnamed", "orders"} <= names
    assert ask(shadow, "select count(*) from pg_namespace where nspname = 'empty'") == [["1"]]
    shadow.sync(TABLES, [PETER, RITA])
    assert ask(shadow, "select count(*) from pg_class where relname in ('wide', 'unnamed')") == [["0"]]


def test_a_reader_that_takes_no_rows_does_not_keep_changes_out(shadow: Shadow) -> None:
    slow = relay(shadow, "select n from orders right join generate_series(1, 1000000) n on true")
    rows = iter(slow.rows(binary=False))
    next(rows)

    shadow.sync(TABLES[1:], [PETER])

    assert ask(shadow, "select to_regclass('orders')") == [[None]]
    with pytest.raises(SqlError) as caught:
        list(rows)
    assert caught.value.sqlstate == "57P01"


CLIENTS = {
    "relations": """
        select n.nspname, c.relname,
            case c.relkind when 'r' then 'table' when 'v' then 'view' when 'p' then 'partitioned table' end,
            pg_catalog.pg_get_userbyid(c.relowner), pg_catalog.obj_description(c.oid, 'pg_class'),
            pg_catalog.pg_size_pretty(pg_catalog.pg_table_size(c.oid))
        from pg_catalog.pg_class c left join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f', '') and n.nspname !~ '^pg_toast'
            and pg_catalog.pg_table_is_visible(c.oid) and n.nspname = 'public' order by 1, 2""",
    "columns": """
        select a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
            (select pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) from pg_catalog.pg_attrdef d
             where d.adrelid = a.attrelid and d.adnum = a.attnum and a.atthasdef),
            a.attnotnull, a.attidentity, a.attgenerated, pg_catalog.col_description(a.attrelid, a.attnum)
        from pg_catalog.pg_attribute a where a.attrelid = 'public.orders'::regclass and a.attnum > 0""",
    "roles": """
        select r.rolname, r.rolsuper, r.rolinherit, r.rolcanlogin, r.rolconnlimit, r.rolvaliduntil,
            array(select b.rolname from pg_catalog.pg_auth_members m
                  join pg_catalog.pg_roles b on m.roleid = b.oid where m.member = r.oid) as memberof
        from pg_catalog.pg_roles r where r.rolname !~ '^pg_' order by 1""",
    "databases": """
        select d.datname, pg_catalog.pg_get_userbyid(d.datdba), pg_catalog.pg_encoding_to_char(d.encoding),
            pg_catalog.array_to_string(d.datacl, E'\\n') from pg_catalog.pg_database d order by 1""",
    "functions": """
        select n.nspname, p.proname, pg_catalog.pg_get_function_result(p.oid),
            pg_catalog.pg_get_function_arguments(p.oid)
        from pg_catalog.pg_proc p left join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where p.proname = 'version'""",
    "types": """
        select t.oid, t.typname, t.typtype, t.typelem, pg_catalog.format_type(t.oid, null)
        from pg_catalog.pg_type t where t.typname = 'int4'""",
    "keys of a table, as reflection asks": """
        select con.conname, pg_catalog.pg_get_constraintdef(con.oid, true) from pg_catalog.pg_class c
        left join pg_catalog.pg_constraint con on con.conrelid = c.oid and con.contype = 'p'
        where c.relname = 'orders'""",
    "a view's definition": """select pg_catalog.pg_get_viewdef('"big orders"'::regclass, true)""",
    "metadata of drivers": """
        select * from (select n.nspname, c.relname, a.attname, a.atttypid, t.typtypmod, a.attlen,
            row_number() over (partition by a.attrelid order by a.attnum) as attnum
            from pg_catalog.pg_namespace n join pg_catalog.pg_class c on c.relnamespace = n.oid
            join pg_catalog.pg_attribute a on a.attrelid = c.oid
            join pg_catalog.pg_type t on a.atttypid = t.oid
            where c.relkind in ('r', 'v') and a.attnum > 0) c where c.nspname like 'public'""",
    "settings": "select name, setting, sourcefile from pg_catalog.pg_settings where name = 'server_version'",
    "activity": "select pid, usename, query, state from pg_stat_activity where usename = current_user",
    "grants": "select * from information_schema.table_privileges where table_name = 'orders'",
}


@pytest.mark.parametrize("asked", CLIENTS)
def test_what_clients_ask_is_answered(shadow: Shadow, asked: str) -> None:
    sql = CLIENTS[asked]

    described = shadow.describe(sql, (), PETER, Settings())
    rows = ask(shadow, sql)

    assert described.columns is not None and rows
    assert all(len(row) == len(described.columns) for row in rows)
    batches = list(shadow.run(sql, (), (), PETER, Settings(), described.columns).batches())
    assert sum(batch.num_rows for batch in batches) == len(rows)
