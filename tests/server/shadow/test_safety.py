"""What a query must not be able to do."""

from __future__ import annotations

import pytest

from penstock.errors import SqlError
from penstock.server.shadow import Shadow
from tests.server.shadow.asking import PETER, RITA, ask

REFUSED = [
    "select u&\"pg!005fread!005ffile\" uescape '!' ('/etc/passwd')",
    "select E'a'\n'\\'', pg_read_file('/etc/passwd'), '\\'",
    "select setseed(0.5)",
    "select lastval()",
    "select set_config('role', 'penstock_system', false)",
    "select set_config('session_authorization', 'penstock_system', false)",
    "select pg_catalog.set_config('statement_timeout', '0', false)",
    "select pg_set_config('statement_timeout', '0', false)",
    "update pg_settings set setting = '0' where name = 'statement_timeout'",
    "select pg_read_file('/etc/passwd')",
    "select pg_read_binary_file('/etc/passwd')",
    "select pg_stat_file('/etc/passwd')",
    "select pg_ls_dir('/')",
    "select pg_ls_logdir()",
    "select pg_ls_waldir()",
    "select pg_ls_tmpdir()",
    "select lo_import('/etc/passwd')",
    "select lo_export(1, '/tmp/x')",
    "select lo_creat(-1)",
    "select lo_create(0)",
    "select lo_from_bytea(0, 'x')",
    "select lo_get(1)",
    "select lo_put(1, 0, 'x')",
    "select lo_unlink(1)",
    "select lo_open(1, 1)",
    "select loread(1, 1)",
    "select lowrite(1, 'x')",
    "select pg_terminate_backend(1)",
    "select pg_cancel_backend(1)",
    "select pg_reload_conf()",
    "select pg_rotate_logfile()",
    "select pg_notify('a', 'b')",
    "select pg_advisory_lock(1)",
    "select pg_advisory_lock(1, 2)",
    "select pg_try_advisory_xact_lock_shared(1)",
    "select query_to_xml('select 1', true, true, '')",
    "select query_to_xmlschema('select 1', true, true, '')",
    "select cursor_to_xml('c', 1, true, true, '')",
    "select table_to_xml('pg_class', true, true, '')",
    "select database_to_xml(true, true, '')",
    "select * from ts_stat('select 1')",
    "select ts_rewrite('a'::tsquery, 'select 1')",
    "select pg_export_snapshot()",
    "select pg_create_restore_point('x')",
    "select pg_create_physical_replication_slot('x')",
    "select pg_switch_wal()",
    "select pg_stat_reset()",
    "select * from pg_config",
    "select * from pg_hba_file_rules",
    "select * from pg_file_settings",
    "select * from pg_authid",
    "select * from pg_shadow",
    "select * from pg_largeobject",
    "select current_setting('data_directory')",
    "select current_setting('unix_socket_directories')",
    "select current_setting('config_file')",
    "insert into orders (id) values (1)",
    "with gone as (delete from orders returning *) select * from gone",
    "select * from orders for update",
    "select * into taken from orders",
    "create table public.mine (a int)",
    "create temporary table mine (a int)",
    "create schema mine",
    "create function mine() returns int language sql as 'select 1'",
    "do $$ begin perform 1; end $$",
    "copy orders to '/tmp/x'",
    "copy (select 1) to program 'cat'",
    "set role penstock_system",
    "set session authorization penstock_system",
    "alter role current_user superuser",
    "alter system set work_mem = '1GB'",
    "create extension plpgsql",
    "load 'plpgsql'",
    "select 1; select 2",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_refused(shadow: Shadow, sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        ask(shadow, sql)

    assert caught.value.sqlstate in ("42501", "25006", "0A000", "42601", "42704"), caught.value


def test_no_other_function_of_that_kind_is_open(shadow: Shadow) -> None:
    """Whatever PostgreSQL adds to these families is closed too."""
    open_ = ask(
        shadow,
        "select proname from pg_proc where has_function_privilege(oid, 'execute')"
        " and pronamespace = 'pg_catalog'::regnamespace and proname <> 'pg_advisory_unlock_all'"
        " and proname !~ '^pg_stat_get' and proname ~"
        " '_file$|_slot$|_wal$|dblink|^(lo_|pg_ls_|pg_read_|pg_advisory|pg_try_adv|.*_to_xml)|l_backend'",
    )

    assert open_ == []


def test_paths_of_this_machine_do_not_show(shadow: Shadow) -> None:
    shown = ask(
        shadow, "select name, setting from pg_settings where setting like '/%' or sourcefile is not null"
    )

    assert shown == []


def test_what_one_user_asks_the_other_does_not_see(shadow: Shadow) -> None:
    ask(shadow, "select 'a secret of peter'", user=PETER)

    seen = ask(shadow, "select query from pg_stat_activity where usename = 'peter'", user=RITA)

    assert seen and all("secret" not in (query or "") for (query,) in seen)


def test_a_schema_that_is_closed_to_the_user_is_closed(shadow: Shadow) -> None:
    with pytest.raises(SqlError) as caught:
        ask(shadow, 'select * from "Sales 2"."odd ""name"""', user=RITA)

    assert caught.value.sqlstate == "42501"


def test_a_query_cannot_take_all_memory(shadow: Shadow) -> None:
    with pytest.raises(SqlError) as caught:
        ask(shadow, "select length(string_agg(repeat('x', 1000000), '')) from generate_series(1, 900)")

    assert caught.value.sqlstate == "53200"
    assert ask(shadow, "select 1") == [["1"]]


def test_drivers_may_switch_off_what_is_off(shadow: Shadow) -> None:
    assert ask(shadow, "select current_setting('jit'), set_config('jit', 'off', false)") == [["off", "off"]]
    with pytest.raises(SqlError) as caught:
        ask(shadow, "select set_config('TimeZone', 'UTC', false)")
    assert caught.value.hint is not None and "SET TimeZone" in caught.value.hint
