"""Parse, Bind, Describe, Execute: in their order, with errors, limits and formats."""

from __future__ import annotations

import asyncio
import struct
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal

import asyncpg
import psycopg
import pytest

from tests.server.pgwire.raw import (
    FLUSH,
    SYNC,
    Raw,
    bind,
    describe,
    error,
    execute,
    kinds,
    message,
    parse,
    query,
    rows,
    tags,
)
from tests.server.pgwire.serving import Serving


def test_a_whole_round(raw: Raw) -> None:
    said = raw.ask(parse("SELECT $1::int"), describe("S"), bind([b"7"]), describe(), execute(), SYNC)
    assert kinds(said) == "1tT2TDCZ"
    assert said[1][1] == struct.pack(">hI", 1, 23)
    assert rows(said) == [[b"7"]] and tags(said) == ["SELECT 1"]


def test_given_types_are_believed(raw: Raw) -> None:
    said = raw.ask(parse("SELECT $1", types=[20]), describe("S"), SYNC)
    assert said[1][1] == struct.pack(">hI", 1, 20)


def test_statements_without_rows_describe_as_none(raw: Raw) -> None:
    said = raw.ask(parse("CREATE VIEW v AS SELECT 1"), bind(), describe(), execute(), SYNC)
    assert kinds(said) == "12nNCZ" and tags(said) == ["CREATE VIEW"]


def test_nothing_is_answered_as_nothing(raw: Raw) -> None:
    assert kinds(raw.ask(query(" ; -- nothing"))) == "IZ"
    assert kinds(raw.ask(parse(""), bind(), describe(), execute(), SYNC)) == "12nIZ"


def test_row_limits_suspend_the_portal(raw: Raw) -> None:
    raw.send(parse("SELECT * FROM numbers(25000)"), bind(portal="p"), FLUSH)
    assert [raw.read()[0], raw.read()[0]] == ["1", "2"]
    seen: list[int] = []
    for limit, ending in ((3, "s"), (12_000, "s"), (0, "C"), (5, "C")):
        raw.send(execute("p", limit), FLUSH)
        said = raw.read_until(ending)
        seen += [int(each[0] or b"") for each in rows(said)]
        assert limit in (0, 5) or len(rows(said)) == limit
    assert seen == list(range(25_000))
    assert tags(said) == ["SELECT 0"]
    assert kinds(raw.ask(SYNC)) == "Z"


def test_a_limit_that_fits_exactly_suspends_too(raw: Raw) -> None:
    said = raw.ask(parse("SELECT * FROM numbers(2)"), bind(), execute(limit=2), execute(limit=2), SYNC)
    assert kinds(said) == "12DDsCZ" and tags(said) == ["SELECT 0"]


def test_portals_end_with_their_transaction(raw: Raw) -> None:
    said = raw.ask(parse("SELECT 1", "s"), bind(portal="p", name="s"), SYNC, execute("p"), SYNC)
    said += raw.read_until()
    assert error(said)["C"] == "34000"
    raw.ask(query("BEGIN"))
    raw.ask(bind(portal="p", name="s"), SYNC)
    assert rows(raw.ask(execute("p"), SYNC)) == [[b"1"]]
    raw.ask(query("COMMIT"))
    assert error(raw.ask(execute("p"), SYNC))["C"] == "34000"


def test_an_error_skips_to_sync(raw: Raw) -> None:
    raw.send(parse("SELECT nope"), bind(), execute(), parse("SELECT 1"), bind(), execute(), SYNC)
    raw.send(parse("SELECT 2"), bind(), execute(), SYNC)
    said = raw.read_until()
    assert kinds(said) == "EZ"
    assert (error(said)["C"], error(said)["P"]) == ("42703", "8")
    assert rows(raw.read_until()) == [[b"2"]]


def test_an_error_is_seen_before_sync(raw: Raw) -> None:
    raw.send(parse("SELECT nope"))
    assert raw.read()[0] == "E"
    assert kinds(raw.ask(SYNC)) == "Z"


def test_pipelines(raw: Raw) -> None:
    one = parse("SELECT $1::int") + bind([b"%d"]) + execute() + SYNC
    raw.send(*(one.replace(b"%d", b"%02d" % number) for number in range(50)))
    for number in range(50):
        said = raw.read_until()
        assert rows(said) == [[str(number).encode()]]


def test_names_of_statements(raw: Raw) -> None:
    assert kinds(raw.ask(parse("SELECT 1", "a"), SYNC)) == "1Z"
    assert error(raw.ask(parse("SELECT 2", "a"), SYNC))["C"] == "42P05"
    assert error(raw.ask(bind(name="b"), SYNC))["C"] == "26000"
    assert error(raw.ask(describe("S", "b"), SYNC))["C"] == "26000"
    assert error(raw.ask(describe("P", "b"), SYNC))["C"] == "34000"
    said = raw.ask(message("C", b"Sa\0"), message("C", b"Sa\0"), message("C", b"Pnone\0"), SYNC)
    assert kinds(said) == "333Z"
    assert error(raw.ask(bind(name="a"), SYNC))["C"] == "26000"
    assert kinds(raw.ask(parse("SELECT 1"), SYNC, parse("SELECT 2"), SYNC)) == "1Z"


def test_values_that_do_not_fit(raw: Raw) -> None:
    raw.ask(parse("SELECT $1::int", "v"), SYNC)
    assert error(raw.ask(bind(name="v"), SYNC))["C"] == "08P01"
    assert error(raw.ask(bind([b"1", b"2"], name="v"), SYNC))["C"] == "08P01"
    assert error(raw.ask(bind([b"x"], name="v"), SYNC))["C"] == "22P02"
    assert error(raw.ask(bind([b"xx"], name="v", formats=[1]), SYNC))["C"] in ("22P03", "08P01")
    assert error(raw.ask(bind([b"1"], name="v", results=[1, 1]), SYNC))["C"] == "08P01"
    assert rows(raw.ask(bind([None], name="v"), execute(), SYNC)) == [[None]]


def test_one_statement_at_a_time(raw: Raw) -> None:
    assert error(raw.ask(parse("SELECT 1; SELECT 2"), SYNC))["C"] == "42601"


def test_formats_of_results(raw: Raw) -> None:
    said = raw.ask(parse("SELECT 1, 'x', 2"), bind(results=[1, 0, 0]), execute(), SYNC)
    assert rows(said) == [[b"\0\0\0\1", b"x", b"2"]]
    said = raw.ask(bind(results=[1]), execute(), SYNC)
    assert rows(said) == [[b"\0\0\0\1", b"x", b"\0\0\0\2"]]


@pytest.mark.parametrize(
    ("results", "expected"), [((), b"1"), ((0,), b"1"), ((1,), b"\0\0\0\1"), ((1, 0), b"\0\0\0\1")]
)
def test_rows_of_the_shadow_catalog_pass_through(raw: Raw, results: tuple[int, ...], expected: bytes) -> None:
    said = raw.ask(parse("SELECT * FROM relay()"), bind(results=results), execute(), SYNC)
    first, second = rows(said)
    assert first == [expected, b"x"] and second[1] is None


def test_rows_of_the_shadow_catalog_stop_at_limits(raw: Raw) -> None:
    said = raw.ask(
        parse("SELECT * FROM relay()"), bind(), execute(limit=1), execute(limit=1), execute(), SYNC
    )
    assert kinds(said) == "12DsDsCZ"


def test_commands_run_by_the_session_can_be_prepared(raw: Raw) -> None:
    said = raw.ask(parse("SHOW timezone"), describe("S"), bind(), execute(), SYNC)
    assert kinds(said) == "1tT2DCZ" and rows(said) == [[b"UTC"]] and tags(said) == ["SHOW"]
    said = raw.ask(parse("SET timezone = 'Europe/Berlin'"), bind(), execute(), SYNC)
    assert kinds(said) == "12CSZ" and said[-2][1] == b"TimeZone\0Europe/Berlin\0"


def test_an_error_undoes_what_the_pipeline_set(raw: Raw) -> None:
    raw.ask(
        parse("SET application_name = 'lost'"),
        bind(),
        execute(),
        parse("SELECT 1/0"),
        bind(),
        execute(),
        SYNC,
    )
    assert rows(raw.ask(query("SHOW application_name"))) == [[b""]]


def test_function_calls_are_refused(raw: Raw) -> None:
    assert error(raw.ask(message("F", struct.pack(">ihhh", 1, 0, 0, 0)), SYNC))["C"] == "0A000"


def test_values_of_all_kinds_through_psycopg(server: Serving) -> None:
    values = (5, "text", b"\0\xff", 1.5, True, date(2024, 2, 29), Decimal("12.5"), None)
    kinds_ = ("int", "text", "bytea", "float8", "bool", "date", "numeric", "text")
    asked = "SELECT " + ", ".join(f"%s::{kind}" for kind in kinds_)
    with psycopg.connect(server.url) as client:
        for binary in (False, True):
            with client.cursor(binary=binary) as cursor:
                found = cursor.execute(asked, values).fetchone()
                assert found == values


def test_psycopg_pipelines_and_prepares(server: Serving) -> None:
    with psycopg.connect(server.url, prepare_threshold=0) as client:
        with client.pipeline():
            cursors = [client.execute("SELECT %s::int", (number,)) for number in range(20)]
        assert [cursor.fetchone() for cursor in cursors] == [(number,) for number in range(20)]


def test_asyncpg(server: Serving) -> None:
    async def ask() -> None:
        client = await asyncpg.connect(
            host="127.0.0.1", port=server.port, user="someone", database="penstock", ssl=False
        )
        try:
            assert await client.fetchval("SELECT $1::int", 5) == 5
            key, now = uuid.uuid4(), datetime.now(UTC)
            found = await client.fetchrow("SELECT $1::uuid, $2::timestamptz", key, now)
            assert tuple(found) == (key, now)
            assert len(await client.fetch("SELECT * FROM numbers(20000)")) == 20_000
            async with client.transaction():
                numbers = [each["i"] async for each in client.cursor("SELECT * FROM numbers(120)")]
            assert numbers == list(range(120))
            with pytest.raises(asyncpg.UndefinedColumnError):
                await client.fetch("SELECT nope")
        finally:
            await client.close()

    asyncio.run(ask())
