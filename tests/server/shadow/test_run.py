"""Queries that the shadow runs: values in, rows out, and an end when asked for."""

from __future__ import annotations

import datetime as dt
import threading
import time
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.server.base import Relay
from penstock.server.session_settings import Settings
from penstock.server.shadow import Shadow
from penstock.types import postgres
from tests.server.shadow.asking import PETER, RITA, ask, relay

SECOND = dt.timedelta(seconds=1)
VALUES: list[tuple[str, object, str]] = [
    ("bool", True, "t"),
    ("int8", -(2**63), "-9223372036854775808"),
    ("float8", 1e-5, "1e-05"),
    ("float8", float("-inf"), "-Infinity"),
    ("float8", float("nan"), "NaN"),
    ("numeric", Decimal("12.50"), "12.50"),
    ("text", 'O\'Hara \\ "ü"', 'O\'Hara \\ "ü"'),
    ("bytea", b"\x00\xff", "\\x00ff"),
    ("date", dt.date(2024, 2, 29), "2024-02-29"),
    ("time", dt.time(1, 2, 3, 4), "01:02:03.000004"),
    ("timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 4), "2024-02-29 01:02:03.000004"),
    ("timestamptz", dt.datetime(2024, 2, 29, tzinfo=dt.UTC), "2024-02-29 00:00:00+00"),
    ("interval", dt.timedelta(days=-2, seconds=3), "-2 days +00:00:03"),
    ("interval", -SECOND, "-1 days +23:59:59"),
    ("uuid", UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    ("int4[]", [1, None, 3], "{1,NULL,3}"),
    ("text[]", ["a b", "", "NULL", 'q"\\', None], '{"a b","","NULL","q\\"\\\\",NULL}'),
    ("int4[]", [], "{}"),
    ("int4[]", [[1, 2], [3, 4]], "{{1,2},{3,4}}"),
    ("text", None, ""),
]


@pytest.mark.parametrize(("kind", "value", "text"), VALUES)
def test_values_arrive_as_they_are(shadow: Shadow, kind: str, value: object, text: str) -> None:
    assert ask(shadow, f"select $1::{kind}", value, TimeZone="UTC") == [[None if value is None else text]]


def test_a_value_of_another_kind_is_refused(shadow: Shadow) -> None:
    with pytest.raises(SqlError, match="cannot be a set"):
        ask(shadow, "select $1", {1})
    with pytest.raises(SqlError) as caught:
        ask(shadow, "select $1::text", "a\0b")
    assert caught.value.sqlstate == "22021"


def test_rows_come_in_text_or_binary(shadow: Shadow) -> None:
    sql = "select n::int4, null, 'x' || n from generate_series(1, 2) n where n > $1"

    assert list(relay(shadow, sql, 0).rows(binary=False)) == [[[b"1", None, b"x1"], [b"2", None, b"x2"]]]
    assert list(relay(shadow, sql, 1).rows(binary=True)) == [[[b"\0\0\0\2", None, b"x2"]]]


def test_batches_have_the_types_that_were_described(shadow: Shadow) -> None:
    sql = """
        select true, 1::int2, 2::int4, 3::int8, 4.5::float8, 'Infinity'::float4, 1.25::numeric(10, 3), 'text',
            '2024-02-29'::date, '01:02:03.5'::time, '2024-02-29 01:02:03.5'::timestamp,
            '2024-02-29 00:00:00+00'::timestamptz, '1 year 2 mons -3 days 04:05:06.5'::interval,
            '\\x00ff'::bytea,
            '{"a": 1}'::jsonb, array[1, null, 3], array['a "b"', null, 'NULL'], '{}'::text[],
            'pg_class'::regclass,
            '1 2'::int2vector, '00000000-0000-0000-0000-000000000007'::uuid, null::int4, 2::numeric
    """
    asked = relay(shadow, sql)

    (batch,) = asked.batches()

    assert asked.columns is not None
    assert batch.schema.types == [column.type for column in asked.columns]
    row = [column[0].as_py() for column in batch.columns]
    assert row[:8] == [True, 1, 2, 3, 4.5, float("inf"), Decimal("1.250"), "text"]
    assert row[8:10] == [dt.date(2024, 2, 29), dt.time(1, 2, 3, 500_000)]
    assert row[10] == dt.datetime(2024, 2, 29, 1, 2, 3, 500_000)
    assert row[11] == dt.datetime(2024, 2, 29, tzinfo=dt.UTC)
    assert tuple(row[12]) == (14, -3, (4 * 3600 + 5 * 60 + 6) * 10**9 + 5 * 10**8)
    assert row[13:18] == [b"\x00\xff", '{"a": 1}', [1, None, 3], ['a "b"', None, "NULL"], []]
    assert row[18] == "pg_class"
    assert row[21:] == [None, 2]


def test_a_value_that_arrow_cannot_hold_is_an_error_and_not_a_trace(shadow: Shadow) -> None:
    for sql in ("select 'infinity'::timestamptz", "select 'NaN'::numeric", "select '{{1},{2}}'::int4[]"):
        with pytest.raises(SqlError) as caught:
            list(relay(shadow, sql).batches())
        assert caught.value.sqlstate == "22003"
        assert ask(shadow, sql)


def test_a_zone_does_not_move_timestamps(shadow: Shadow) -> None:
    sql = "select '2024-07-01 12:00:00+00'::timestamptz"
    columns = shadow.describe(sql, (), PETER, Settings()).columns
    zoned = Settings({"TimeZone": "Asia/Kolkata", "IntervalStyle": "iso_8601"})

    (batch,) = shadow.run(sql, (), (), PETER, zoned, columns).batches()

    assert batch.column(0)[0].as_py() == dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    assert list(shadow.run(sql, (), (), PETER, zoned, columns).rows(binary=False)) == [
        [[b"2024-07-01 17:30:00+05:30"]]
    ]


def test_a_result_without_columns_or_rows(shadow: Shadow) -> None:
    assert list(relay(shadow, "select from generate_series(1, 3)").rows(binary=False)) == [[[], [], []]]
    assert [batch.num_rows for batch in relay(shadow, "select from generate_series(1, 3)").batches()] == [3]
    assert list(relay(shadow, "select 1 where false").rows(binary=False)) == []
    assert list(relay(shadow, "select * from orders").batches()) == []


def _resident() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) >> 10


def test_a_large_result_streams_in_bounded_memory(shadow: Shadow) -> None:
    asked = relay(shadow, "select repeat('x', 10000), n from generate_series(1, 40000) n")
    before, rows = _resident(), 0

    for chunk in asked.rows(binary=True):
        rows += len(chunk)

    assert rows == 40_000
    assert _resident() - before < 60, "400 MB went through"


def test_one_that_is_not_read_to_its_end_can_be_closed(shadow: Shadow) -> None:
    for _ in range(40):
        asked = relay(shadow, "select generate_series(1, 10000000)")
        next(iter(asked.rows(binary=False)))
        asked.close()

    assert ask(shadow, "select 1") == [["1"]]


def test_cancel_from_another_thread(shadow: Shadow) -> None:
    asked = relay(shadow, "select pg_sleep(5)")
    threading.Timer(0.1, asked.cancel).start()
    began = time.monotonic()

    with pytest.raises(SqlError, match="user request") as caught:
        list(asked.rows(binary=False))

    assert caught.value.sqlstate == "57014"
    assert time.monotonic() - began < 4
    asked.cancel()
    asked.close()


def test_cancel_before_it_runs_and_between_rows(shadow: Shadow) -> None:
    asked = relay(shadow, "select 1")
    asked.cancel("the server goes down")
    with pytest.raises(SqlError, match="the server goes down"):
        list(asked.rows(binary=False))

    asked = relay(shadow, "select generate_series(1, 10000000)")
    rows = iter(asked.rows(binary=False))
    next(rows)
    asked.cancel()
    with pytest.raises(SqlError) as caught:
        next(rows)
    assert caught.value.sqlstate == "57014"


def test_cancel_in_the_moment_of_sending_is_not_lost(shadow: Shadow) -> None:
    began_at = time.monotonic()
    for _ in range(20):
        asked = relay(shadow, "select pg_sleep(5)")
        began = threading.Event()
        thread = threading.Thread(target=lambda a=asked, b=began: (b.wait(), a.cancel()))
        thread.start()
        began.set()
        with pytest.raises(SqlError):
            list(asked.rows(binary=False))
        thread.join()
    assert time.monotonic() - began_at < 5


def test_close_from_another_thread_ends_it(shadow: Shadow) -> None:
    asked = relay(shadow, "select pg_sleep(5)")
    threading.Timer(0.1, asked.close).start()
    began = time.monotonic()

    with pytest.raises(SqlError) as caught:
        list(asked.rows(binary=False))

    assert caught.value.sqlstate == "57014"
    assert time.monotonic() - began < 4


def test_statement_timeout_counts(shadow: Shadow) -> None:
    with pytest.raises(SqlError, match="statement timeout") as caught:
        ask(shadow, "select pg_sleep(5)", statement_timeout="50ms")

    assert caught.value.sqlstate == "57014"


def test_an_error_in_the_middle_has_its_state(shadow: Shadow) -> None:
    asked = relay(shadow, "select 1 / (500 - n) from generate_series(1, 1000) n")

    with pytest.raises(SqlError) as caught:
        list(asked.rows(binary=False))

    assert caught.value.sqlstate == "22012"
    assert ask(shadow, "select 1") == [["1"]]


def test_many_threads_share_few_connections(shadow: Shadow) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(20):
            if ask(shadow, "select $1::int8 + 1", number) != [[str(number + 1)]]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
    assert 0 < shadow._pool._open <= 16


def test_oids_of_the_description_fit_the_values(shadow: Shadow) -> None:
    described = shadow.describe("select $1 is null", (), PETER, Settings())

    assert described.parameters == (postgres.TEXT,)
    assert described.columns is not None and described.columns[0].type == pa.bool_()
    assert ask(shadow, "select $1 is null", None, oids=described.parameters) == [["t"]]


def test_one_user_who_has_all_connections_sleep_keeps_nobody_out(shadow: Shadow) -> None:
    sleeping = [relay(shadow, "select pg_sleep(60)") for _ in range(20)]

    def sleep(each: Relay) -> None:
        with suppress(SqlError):
            list(each.rows(binary=False))

    threads = [threading.Thread(target=sleep, args=[each]) for each in sleeping]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while sum(shadow._pool._used.values()) < 8 and time.monotonic() < deadline:
        time.sleep(0.01)

    assert shadow._pool._used.total() == 8
    assert ask(shadow, "select 1", user=RITA) == [["1"]]
    assert shadow.describe("select 2, now()", (), PETER, Settings()).columns is not None

    for each in sleeping:
        each.cancel()
    for thread in threads:
        thread.join(20)
    assert ask(shadow, "select 1") == [["1"]]
    assert not shadow._pool._used
