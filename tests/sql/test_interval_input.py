"""Texts of intervals mean what a real PostgreSQL reads from them, or are refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import psycopg
import pytest

from penstock.errors import SqlError
from penstock.sql.parse.interval_input import Parts, parsed
from servers.postgres import Postgres

TEXTS = """
1 day 02:03:04|1 day ago|1 day 2 hours ago|@ 1 day ago|-1 day ago|1 year 2 mons 3 days 04:05:06.789|1-2
-1-2|1-2 3 4:05:06|-1-2 +3 -4:05:06|1 02:03|1 2:3:4.5|3 4:05|10:20|10:20:30|10:20.5|-10:20|+10:20
1.5 day|1.5 month|1.5 year|0.3 year|1.25 weeks|1.5|-1.5|1 day 2|1 century|2 decades 3 years|1 mil|1.5 us
2.5 ms|1h30m|1d2h|1 day -02:03|1 day - 2 hours|-1 day +2 hours|1 Day 2 HOURS|25:00|100:00:00|1:59:60
1 week 1 day|1-2 3 days|1-2 month|0.1 month|0.99999 month|0.0000005 second|0.0000015 s|1.5 decade
0.01 decade|1:2:3.9999999|1 day 1:2:3 ago|1:2:3 1 day|1.5 1:00|.5 day|5. days|1 s 500 ms|4 msecs
1 microsecon|-3 days ago|0|00:00|-0:00:01|1 +2:00|1 day, 2 hours|3 4 hours|P1Y2M3DT4H5M6.7S|P1W|PT36H
P-1Y2M|P0001-02-03T04:05:06|P1.5D|P1.5M|P1.5Y|P1Y1D|P2020-01|PT10:20|PT-1H30M|2147483647 months
178000000 years
"""
WRONG = """
1 2|1 day 2 days|day|ago||1 fortnight|01:02:03:04|1:60|1:59:61|1 hour 02:03|5 quarters
1e2 seconds|1.5.5|--1 day
1 day and 2 hours|P|p1y|P1Y 2M|P1H|PT1D|-P1D|1-12|2147483648 months|2147483648 days
1 year 1 year|1 ago|2 -1-2|-.5 day
1.5 s 500 ms|1 ms 1:00|1:-2|1 month-1
"""
FIELDS = [
    "year", "month", "day", "hour", "minute", "second", "year to month", "day to hour", "day to minute",
    "day to second", "hour to minute", "hour to second", "minute to second",
]  # fmt: skip
WITH_FIELDS = "1|1.5|1-2|1 2:03|1 2:03:04|2:03|2:03:04.5678|-5|14 mons 3 days 4:05:06.789|P1Y2M3DT4H5M6.7S"


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    with Postgres() as server, psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


def theirs(postgres: psycopg.Connection[Any], expression: str) -> Parts:
    row = postgres.execute(
        "SELECT extract(year from x) * 12 + extract(month from x), extract(day from x),"
        " extract(hour from x) * 3600000000 + extract(minute from x) * 60000000"
        " + extract(microseconds from x)"
        f" FROM (SELECT {expression}) AS q(x)"
    ).fetchone()
    assert row
    return Parts(*map(int, row))


@pytest.mark.parametrize("text", TEXTS.strip().replace("\n", "|").split("|"))
def test_texts(postgres: psycopg.Connection[Any], text: str) -> None:
    assert parsed(text) == theirs(postgres, f"interval '{text}'")


@pytest.mark.parametrize("text", WRONG.strip().replace("\n", "|").split("|"))
def test_what_is_no_interval(postgres: psycopg.Connection[Any], text: str) -> None:
    with pytest.raises(psycopg.Error) as told:
        theirs(postgres, f"interval '{text}'")
    with pytest.raises(SqlError) as caught:
        parsed(text)
    assert caught.value.sqlstate == told.value.sqlstate


@pytest.mark.parametrize("fields", FIELDS)
def test_fields(postgres: psycopg.Connection[Any], fields: str) -> None:
    for text in WITH_FIELDS.split("|"):
        assert parsed(text, fields) == theirs(postgres, f"interval '{text}' {fields}"), text


@pytest.mark.parametrize("precision", range(7))
def test_precision(postgres: psycopg.Connection[Any], precision: int) -> None:
    for text in ("1:2:3.456789", "-1:2:3.4565", "1.5", "0.0005"):
        assert parsed(text, "", precision) == theirs(postgres, f"interval({precision}) '{text}'"), text


def test_whatever_is_combined_is_the_same_or_refused(postgres: psycopg.Connection[Any]) -> None:
    chance = random.Random(5)
    units = ["day", "days", "hour", "h", "min", "mon", "year", "week", "s", "ms", "us", "decade", "century"]
    numbers = ["1", "2.5", "0.3", "17", "100", ".25", "1.999999", "0.333333", "12.000001"]
    equal = 0
    for _ in range(400):
        parts = [
            chance.choice(["", "-", "+"]) + chance.choice(numbers) + chance.choice(["", " "]) + unit
            for unit in chance.sample(units, chance.randint(1, 4))
        ]
        parts += [chance.choice(["1:2:3", "-10:20", "+99:00:00.5"])] if chance.random() < 0.3 else []
        parts += ["ago"] if chance.random() < 0.2 else []
        text = " ".join(parts)
        try:
            ours = parsed(text)
        except SqlError:
            continue
        assert ours == theirs(postgres, f"interval '{text}'"), text
        equal += 1
    assert equal > 200


def test_multiples(postgres: psycopg.Connection[Any]) -> None:
    chance = random.Random(6)
    for _ in range(100):
        months, days, seconds = chance.randint(-40, 40), chance.randint(-40, 40), chance.randint(-9999, 9999)
        factor = chance.choice([2, -3, 0.5, 1.5, 0.3333, -0.25, 7.77, 1e-3])
        told = theirs(
            postgres,
            f"make_interval(months => {months}, days => {days}, secs => {seconds}) * {factor}::float8",
        )
        assert Parts(months, days, seconds * 1_000_000).times(Fraction(factor)) == told
