"""Every type of Spark comes out as something that a client can read."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.server.engine.engine import SparkEngine
from penstock.server.engine.results import shaping
from penstock.server.engine.running.sessions import SparkSessions
from penstock.types import postgres as pg
from tests.server.engine.standins import connected, pulled, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = {"penstock.sql": "spark"}
MONTHS = pa.MonthDayNano([14, 0, 0])
MIXED = pa.MonthDayNano([14, 25, 14_706_007_500_000])
CASES: list[tuple[str, int, Any]] = [
    ("CAST(1 AS TINYINT)", pg.INT2, 1),
    ("CAST(1.5 AS DECIMAL(10,3))", pg.NUMERIC, Decimal("1.500")),
    ("X'00ff'", pg.BYTEA, b"\x00\xff"),
    ("TIMESTAMP_NTZ'2024-02-29 12:00:00.123456'", pg.TIMESTAMP, dt.datetime(2024, 2, 29, 12, 0, 0, 123456)),
    (
        "TIMESTAMP'2024-02-29 12:00:00+02:00'",
        pg.TIMESTAMPTZ,
        dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC),
    ),
    ("INTERVAL '1 02:03:04.5' DAY TO SECOND", pg.INTERVAL, pa.MonthDayNano([0, 1, 7_384_500_000_000])),
    ("array(INTERVAL '2' DAY, NULL)", pg.INTERVAL_ARRAY, [pa.MonthDayNano([0, 2, 0]), None]),
    ("INTERVAL '1-2' YEAR TO MONTH", pg.INTERVAL, MONTHS),
    ("INTERVAL '14' MONTH", pg.INTERVAL, MONTHS),
    ("INTERVAL '-2' YEAR", pg.INTERVAL, pa.MonthDayNano([-24, 0, 0])),
    ("make_interval(1, 2, 3, 4, 4, 5, 6.0075)", pg.INTERVAL, MIXED),
    ("NULL", pg.TEXT, None),
    ("array(1, NULL)", pg.INT4_ARRAY, [1, None]),
    ("array('a')", pg.TEXT_ARRAY, ["a"]),
    ("array()", pg.TEXT_ARRAY, []),
    ("array(INTERVAL '1' MONTH)", pg.TEXT_ARRAY, ["INTERVAL '1' MONTH"]),
]
JSONS: list[tuple[str, Any]] = [
    ("named_struct('a', 1, 'b', NULL)", {"a": 1, "b": None}),
    ("map('k', 1.5)", {"k": 1.5}),
    ("to_variant_object(array(1, 2))", [1, 2]),
    ("array(named_struct('a', 1))", [{"a": 1}]),
    ("array(array(1, 2))", [[1, 2]]),
]


@pytest.mark.parametrize("spooled", [False, True])
def test_types_of_spark(engine: SparkEngine, spooled: bool) -> None:
    if spooled:
        engine.workplace = replace(engine.workplace, small=-1)
    expressions = [case[0] for case in CASES] + [case[0] for case in JSONS]
    # Once with a value and once without, in one result.
    whole = ", ".join(f"CASE WHEN id = 1 THEN {e} END AS c{n}" for n, e in enumerate(expressions))
    client = connected(engine, settings=SPARK)
    prepared = client.prepare(f"SELECT {whole} FROM people WHERE id < 3 ORDER BY id")
    assert [c.oid for c in prepared.columns or ()] == [case[1] for case in CASES] + [pg.JSON] * len(JSONS)
    execution = client.execute(prepared)
    table = pulled(execution)
    assert [c.type for c in prepared.columns or ()] == table.schema.types
    values = [column.to_pylist() for column in table.columns]
    assert [v[0] for v in values[: len(CASES)]] == [case[2] for case in CASES]
    assert [json.loads(v[0]) for v in values[len(CASES) :]] == [case[1] for case in JSONS]
    assert [v[1] for v in values] == [None] * len(expressions)


def test_times_of_day(engine: SparkEngine, spark: SparkSession) -> None:
    shape = shaping.shaped(SparkSessions(spark).of("UTC").sql("SELECT TIME'10:11:12.5' AS t"), None)
    [batch] = shape.frame.toArrow().to_batches()
    assert shape.fit(batch).to_pylist() == [{"t": dt.time(10, 11, 12, 500_000)}]
    assert shape.columns[0].oid == pg.TIME


def test_hours_beyond_those_that_arrow_can_count(engine: SparkEngine) -> None:
    client = connected(engine)
    sql = "SELECT interval '1 hour' * f FROM (SELECT {} * id AS f FROM people WHERE id = 1) x"
    assert rows(client, sql.format("1e6")) == [(pa.MonthDayNano([0, 0, 3_600_000_000_000_000_000]),)]
    with pytest.raises(SqlError, match="292 years") as caught:
        rows(client, sql.format("1e7"))
    assert caught.value.sqlstate == "22008"


def test_the_time_zone_of_the_session_counts(engine: SparkEngine) -> None:
    sql = "SELECT CAST('2024-07-01 12:00:00' AS TIMESTAMP) AS t FROM people WHERE id = 1"
    zones = ("UTC", "Europe/Berlin")
    clients = [connected(engine, settings={**SPARK, "TimeZone": zone}) for zone in zones]
    [[utc]], [[berlin]] = (rows(client, sql) for client in clients)
    assert utc - berlin == dt.timedelta(hours=2)
    assert berlin.utcoffset() == dt.timedelta(0)


@pytest.mark.parametrize(
    ("oid", "value", "expected"),
    [
        (pg.INT4, 7, 7),
        (pg.BOOL, True, True),
        (pg.FLOAT8, 1.5, 1.5),
        (pg.NUMERIC, Decimal("1.25"), Decimal("1.25")),
        (pg.TEXT, "it's", "it's"),
        (pg.BYTEA, b"\x00\x01", b"\x00\x01"),
        (pg.DATE, dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        (pg.TIMESTAMP, dt.datetime(2024, 2, 29, 1, 2, 3), dt.datetime(2024, 2, 29, 1, 2, 3)),
        (pg.INTERVAL, dt.timedelta(days=-2, seconds=-5), pa.MonthDayNano([0, -2, -5_000_000_000])),
        (pg.UUID, uuid.UUID(int=5), str(uuid.UUID(int=5))),
        (pg.INT4_ARRAY, [1, None], [1, None]),
        (pg.TEXT_ARRAY, [], []),
        (pg.DATE_ARRAY, [dt.date(2024, 2, 29)], [dt.date(2024, 2, 29)]),
        (pg.INT8, None, None),
    ],
)
def test_parameters_of_every_type(engine: SparkEngine, oid: int, value: object, expected: object) -> None:
    sql = "SELECT $1 AS v FROM people WHERE id = 1"
    assert rows(connected(engine), sql, value, oids=[oid]) == [(expected,)]


@pytest.mark.parametrize(
    ("sql", "given", "expected"),
    [
        ("$1", "1.5", "1.5"),
        ("$1", "1.50", "1.50"),
        ("$1", "0", "0"),
        ("$1", "0.00", "0.00"),
        ("$1", "-0.05", "-0.05"),
        ("$1", "1E+5", "100000"),
        ("$1", "9" * 38, "9" * 38),
        ("$1", "0." + "1" * 38, "0." + "1" * 38),
        ("$1::numeric", "2.125", "2.125"),
        ("$1::text", "2.10", "2.10"),
        ("id * $1", "1.25", "1.25"),
        ("id + $1", "1.1234567890123456789012345", "2.1234567890123456789012345"),
        ("1.50 - $1", "0.5", "1.00"),
        ("CASE WHEN id = 1 THEN $1 END", "7.70", "7.70"),
    ],
)
def test_a_numeric_parameter_keeps_its_digits(
    engine: SparkEngine, sql: str, given: str, expected: str
) -> None:
    sql = f"SELECT {sql} AS v FROM people WHERE id = 1"
    [(value,)] = rows(connected(engine), sql, Decimal(given), oids=[pg.NUMERIC])
    assert str(value) == expected


def test_numeric_parameters_in_an_array_share_what_they_need(engine: SparkEngine) -> None:
    given = [Decimal("1.5"), None, Decimal("1000.25")]
    sql = "SELECT $1 AS v FROM people WHERE id = ANY($1)"
    assert rows(
        connected(engine), "SELECT $1 AS v FROM people WHERE id = 1", given, oids=[pg.NUMERIC_ARRAY]
    ) == [([Decimal("1.50"), None, Decimal("1000.25")],)]
    precise = [Decimal("1.0000000000000000000000001"), Decimal(2)]
    assert len(rows(connected(engine), sql, precise, oids=[pg.NUMERIC_ARRAY])) == 1, "1 is not among them"


@pytest.mark.parametrize(
    ("given", "oid"),
    [
        (Decimal("1" * 39), pg.NUMERIC),
        (Decimal("1." + "0" * 37 + "1"), pg.NUMERIC),
        (Decimal("1E-39"), pg.NUMERIC),
        ([Decimal("1E+30"), Decimal("1E-30")], pg.NUMERIC_ARRAY),
    ],
)
def test_a_numeric_parameter_with_too_many_digits_is_refused(
    engine: SparkEngine, given: object, oid: int
) -> None:
    with pytest.raises(SqlError) as caught:
        rows(connected(engine), "SELECT $1 AS v FROM people", given, oids=[oid])
    assert caught.value.sqlstate == "22003" and "$1" in caught.value.what


def test_zeros_that_mean_nothing_make_no_number_too_long(engine: SparkEngine) -> None:
    sql = "SELECT $1 AS v FROM people WHERE id = 1"
    given = Decimal("12.5" + "0" * 50)
    assert rows(connected(engine), sql, given, oids=[pg.NUMERIC]) == [(Decimal("12.5"),)]


def test_a_comparison_takes_every_digit_of_a_parameter(engine: SparkEngine) -> None:
    sql = "SELECT 1 AS v FROM people WHERE id = 1 AND CAST(id AS numeric(38,18)) = $1"
    near = Decimal("1.0000000000000000000000000001")
    for settings in ({}, SPARK):
        client = connected(engine, settings=settings)
        assert rows(client, sql, Decimal(1), oids=[pg.NUMERIC]) == [(1,)]
    assert rows(connected(engine), sql, near, oids=[pg.NUMERIC]) == []
    assert rows(connected(engine), sql.replace("= $1", "< $1"), near, oids=[pg.NUMERIC]) == [(1,)]


def test_a_number_that_is_too_large_for_its_parameter(engine: SparkEngine) -> None:
    with pytest.raises(SqlError) as caught:
        rows(connected(engine), "SELECT $1 AS v FROM people", 1 << 40, oids=[pg.INT4])
    assert caught.value.sqlstate == "22003"
