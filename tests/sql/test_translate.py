"""Spark answers a translation as a real PostgreSQL answers the statement, or it is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlglot
from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.parse.postgres import parse_one
from penstock.sql.translate import SparkRelation, respell, translate
from servers.postgres import Postgres
from tests.sql import comparison
from tests.sql.comparison import Rows, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # A few rows are computed sooner than code for them is compiled.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    with Postgres() as server, comparison.connect(server.url) as connection:
        yield connection


@pytest.fixture(scope="module")
def run(spark: SparkSession) -> Iterator[Run]:
    """Spark with the settings of the gateway's sessions."""
    before = {key: str(spark.conf.get(key)) for key in SETTINGS}
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)

    def rows(sql: str) -> Rows:
        table = comparison.carried(spark.sql(sql)).toArrow()
        columns = [column.to_pylist() for column in table.columns]
        return list(zip(*columns, strict=True))

    yield rows
    for key, value in before.items():
        with suppress(Exception):
            spark.conf.set(key, value)


@pytest.fixture(scope="module")
def targets(postgres: psycopg.Connection[Any], run: Run) -> dict[str, SparkRelation]:
    return comparison.create(postgres, run)


def test_expressions(postgres: psycopg.Connection[Any], run: Run) -> None:
    expressions = comparison.read("expressions.txt")
    assert len(expressions) > 600
    wrong = comparison.differences(expressions, postgres, run)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Havana", "Australia/Lord_Howe"])
def test_expressions_where_clocks_change(
    zone: str, postgres: psycopg.Connection[Any], run: Run, spark: SparkSession
) -> None:
    """Elapsed time is what elapses, days are the calendar's, and the second of two equal hours is meant."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    postgres.execute(f"SET timezone = '{zone}'")
    try:
        wrong = comparison.differences(comparison.read("zones.txt"), postgres, run)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        postgres.execute("SET timezone = 'UTC'")
    assert not wrong, "\n".join(wrong)


def test_queries(postgres: psycopg.Connection[Any], run: Run, targets: dict[str, SparkRelation]) -> None:
    queries = comparison.read("queries.txt")
    assert len(queries) > 150
    wrong = [found for sql in queries if (found := comparison.difference(sql, postgres, run, targets))]
    assert not wrong, "\n".join(wrong)


NAN_TESTS = [
    "v > 100", "v >= 'NaN'", "v = 'NaN'", "100 < v", "v <> 1", "v IS DISTINCT FROM 1", "v IN ('NaN', 7)",
    "v BETWEEN 50 AND 'NaN'", "NOT v <= 100", "NOT (v = 1)", "v < 100", "v = ANY ('{NaN, 7}'::float8[])",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_nan_is_found_in_files_whose_statistics_do_not_know_it(
    kind: str, spark: SparkSession, run: Run, tmp_path: Path
) -> None:
    """Spark leaves out files by their least and greatest values, and in these NaN does not count."""
    path = str(tmp_path / "nan")
    rows = (
        f"SELECT id, CAST(v AS {kind}) AS v FROM VALUES (1, 1.0D), (2, double('NaN')), (3, NULL) AS t(id, v)"
    )
    spark.sql(rows).coalesce(1).write.parquet(path)
    target = SparkRelation(f"parquet.`{path}`", {"id": "INT", "v": kind})
    found = {}
    for test in NAN_TESTS:
        tree = parse_one(f"SELECT id FROM t WHERE {test} ORDER BY id")
        found[test] = [row[0] for row in run(translate(tree, target=lambda *_: target))]
    odd = {"v < 100": [1], "v IS DISTINCT FROM 1": [2, 3]}
    assert found == {test: odd.get(test, [2]) for test in NAN_TESTS}


FILL = ", ".join(f"{number}000" for number in range(1, 40))
WORDS = ", ".join(f"'none {number}'" for number in range(1, 40))
DAYS = ", ".join(f"'1950-01-01'::date + {number}" for number in range(1, 40))
LISTS = {
    "i": [f"10, 3, {FILL}", f"10, 10, NULL, {FILL}", f"10, 0.0, 3.00, {FILL}", f"10, '3', '-7', {FILL}",
          f"10::int8, 2147483647, -7, {FILL}", f"NULL, NULL, {FILL}", f"3, 1e1, '0', NULL, {FILL}"],
    "b": [f"-5, 9223372036854775807, {FILL}", f"'7', -9223372036854775807 - 1, NULL, {FILL}"],
    "n": [f"1.50, 3.14, {FILL}", f"1.5, -2.25000, '7.770', {FILL}", f"1, 0, NULL, 99999999.99, {FILL}",
          f"1.5, 0.00000000000000000000000000000000001, 12345678901234567890123456789012345678, {FILL}"],
    "f": [f"0.5, -1.25, {FILL}", f"0.5, '3.14', 1e10, NULL, {FILL}"],
    "s": [f"'apple', '', {WORDS}", f"'apple', NULL, 'apple', {WORDS}",
          f"'it''s 100% \\ok_', 'äpfel', {WORDS}",
          f"'apple'::varchar(9), {WORDS}"],
    "d": [f"'2020-01-31', '2000-02-29'::date, NULL, {DAYS}", f"'2020-01-31'::timestamp, {DAYS}"],
}  # fmt: skip


@pytest.mark.parametrize("column", LISTS)
def test_long_lists(
    column: str, postgres: psycopg.Connection[Any], run: Run, targets: dict[str, SparkRelation]
) -> None:
    """Lists of IN, chains of OR and AND, arrays: also with NULLs, duplicates, and items of several types."""
    wrong = []
    for items in LISTS[column]:
        parts = items.split(", ")
        either = " OR ".join(f"{column} = {part}" for part in parts)
        neither = " AND ".join(f"{part} <> {column}" for part in parts)
        tests = [f"{column} IN ({items})", f"{column} NOT IN ({items})", f"NOT ({column} IN ({items}))"]
        tests += [either, neither, f"{column} = ANY (ARRAY[{items}])", f"{column} <> ALL (ARRAY[{items}])"]
        shown = ", ".join(f"({test}) AS c{number}" for number, test in enumerate(tests))
        statements = [f"SELECT id, {shown} FROM t", f"SELECT id FROM t WHERE {either}"]
        wrong += [found for sql in statements if (found := _differs(sql, postgres, run, targets))]
    assert not wrong, "\n".join(wrong)


def test_long_lists_of_rows(
    postgres: psycopg.Connection[Any], run: Run, targets: dict[str, SparkRelation]
) -> None:
    rows = "(10, 'apple'), (NULL, 'Zebra'), (-7, NULL), (0, ''), (10, 'apple'), (3.0, 'äpfel'), "
    rows += ", ".join(f"({number}, 'none')" for number in range(40))
    pairs = " OR ".join(f"(i = {number} AND s = 'none')" for number in range(40))
    selects = " UNION ALL ".join(f"SELECT {number} AS k, 'apple'" for number in range(1, 60))
    statements = [
        f"SELECT id FROM t WHERE (i, s) IN ({rows})",
        f"SELECT id FROM t WHERE id > 2 AND ((i, s) IN ({rows}) OR id = 6)",
        f"SELECT id FROM t WHERE (i, s) NOT IN ({rows})",
        f"SELECT id, (i, s) IN ({rows}) FROM t",
        f"SELECT id FROM t WHERE {pairs} OR (i = 10 AND s = 'apple') OR (s = '' AND i = 0) OR id = 7",
        f"SELECT id, {pairs} OR (i = 10 AND s = 'apple') FROM t",
        f"SELECT id FROM t JOIN ({selects}) AS x(k, w) ON k = i AND w = s",
        f"{selects} ORDER BY k DESC LIMIT 3",
        " UNION ALL ".join(f"SELECT id + {number}, s FROM t WHERE id = 1" for number in range(40)),
    ]
    wrong = [found for sql in statements if (found := comparison.difference(sql, postgres, run, targets))]
    assert not wrong, "\n".join(wrong)


def _differs(
    sql: str, postgres: psycopg.Connection[Any], run: Run, targets: dict[str, SparkRelation]
) -> str | None:
    """What is wrong with a query; one that PostgreSQL refuses must be refused."""
    try:
        postgres.execute(sql)
    except psycopg.Error as error:
        try:
            run(comparison.said(sql, targets))
        except Exception:
            return None
        return f"{sql}\n    is refused by PostgreSQL: {error}"
    return comparison.difference(sql, postgres, run, targets)


def test_errors_of_values_are_errors_in_both(postgres: psycopg.Connection[Any], run: Run) -> None:
    for expression in comparison.read("failing.txt"):
        with pytest.raises(psycopg.Error):
            postgres.execute(f"SELECT {expression}")
        with pytest.raises(Exception, match=r".+"):
            run(comparison.said(f"SELECT {expression}", {}))


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("(date '0001-01-01' - 1)::text", "years before 1 or after 9999"),
        ("to_jsonb(timestamp '0001-01-01' - interval '1 hour')", "years before 1 or after 9999"),
        (
            "json_build_array(timestamptz '9999-12-31 00:00Z' + interval '1 day')",
            "years before 1 or after 9999",
        ),
        ("to_char(timestamp '9999-12-31' + interval '1 day', 'YYYY-MM-DD')", "years before 1 or after 9999"),
        ("to_char(date '0001-01-01' - 1, 'CC')", "years before 1 or after 9999"),
        (
            "(SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v) FROM (VALUES (1::float8), ('inf')) q(v))",
            "percentile_cont of infinite values",
        ),
    ],
)
def test_what_only_the_values_show_is_refused_when_it_runs(expression: str, why: str, run: Run) -> None:
    with pytest.raises(Exception, match=why):
        run(comparison.said(f"SELECT {expression}", {}))


@pytest.mark.parametrize("sql", comparison.read("refused.txt"))
def test_what_cannot_be_said_is_refused(sql: str) -> None:
    columns = comparison.TABLES["t"][0]
    with pytest.raises(SqlError) as caught:
        translate(parse_one(sql), target=lambda _: SparkRelation("x", columns))
    assert caught.value.sqlstate == "0A000"
    assert caught.value.hint


MALFORMED = ["{\\}", "{a,}", "{,a}", "{a,,b}", '{"a}', '{"a"b}', '{a"b"}', "{a}b}", "{a", "a", "{", ""]


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("SELECT nothing FROM t", "42703"),
        ("SELECT t.nothing FROM t", "42703"),
        ("SELECT * FROM missing", "42P01"),
        ("SELECT id FROM t a, t b", "42702"),
        ("SELECT x.* FROM t", "42P01"),
        ("SELECT $2 FROM t", "42P02"),
        ("SELECT 1 UNION SELECT 1, 2", "42601"),
        ("SELECT id FROM t GROUP BY 7", "42P10"),
        ("SELECT id FROM t ORDER BY 7", "42P10"),
        ("SELECT 'x'::int", "22P02"),
        ("SELECT '2020-13-01'::date", "22008"),
        ("SELECT s + 1 FROM t", "42883"),
        ("SELECT (SELECT 1, 2)", "42601"),
        ("SELECT s = 1 FROM t", "42883"),
        ("SELECT s IN (1, 2) FROM t", "42883"),
        ("SELECT i IN ('1', s) FROM t", "42883"),
        ("SELECT flag NOT IN (1, 2) FROM t", "42883"),
        ("SELECT id FROM t WHERE s IN (SELECT id FROM t)", "42883"),
        (f"SELECT s IN ({FILL}) FROM t", "42883"),
        ("SELECT coalesce(s, 1) FROM t", "42804"),
        ("SELECT '2024-01-01 25:00:00'::timestamp", "22008"),
        ("SELECT '2024-01-01 24:00:01'::date", "22008"),
        ("SELECT '2024-01-01 10:00:61'::timestamptz", "22008"),
        ("SELECT '2024-01-01 10:00:00+16'::timestamp", "22009"),
        *((f"SELECT '{literal}'::text[]", "22P02") for literal in MALFORMED),
        (f"SELECT {'9' * 5_000}", "22003"),
        (f"SELECT i = '{'9' * 5_000}' FROM t", "22003"),
        (f"SELECT interval '{'9' * 5_000} days'", "22015"),
        ("SELECT '2147483648'::int", "22003"),
        ("SELECT 1e99999999999999999999", "22003"),
        ("SELECT 1e2000000000", "22003"),
        ("SELECT '-1e2000000000'::numeric", "22003"),
        ("SELECT 1e-2000000000", "22003"),
        ("SELECT 0e-999999999", "22003"),
        ("SELECT '1e512345678901234567890123'::jsonb", "22P02"),
    ],
)
def test_faults_have_postgresqls_codes(sql: str, sqlstate: str) -> None:
    target = SparkRelation("x", comparison.TABLES["t"][0])
    with pytest.raises(SqlError) as caught:
        translate(parse_one(sql), target=lambda path: target if path == ("t",) else None, parameters=["INT"])
    assert caught.value.sqlstate == sqlstate


def test_a_fault_says_where() -> None:
    with pytest.raises(SqlError) as caught:
        translate(parse_one("SELECT 1,\n nothing FROM t"), target=lambda _: SparkRelation("x", {"id": "int"}))
    assert caught.value.position == 11
    with pytest.raises(SqlError) as caught:
        parse_one("SELECT 1 +\n FROM FROM t")
    assert caught.value.sqlstate == "42601"
    assert caught.value.position is not None


def test_parameters_are_bound_with_their_types(spark: SparkSession) -> None:
    said = translate(
        parse_one("SELECT $1 / 2, $2 || 'x', $3 + interval '1 day' LIMIT $4"),
        target=lambda _: None,
        parameters=["INT", "STRING", "DATE", "BIGINT"],
    )
    rows = spark.sql(said, args={"p1": 7, "p2": "a", "p3": "2020-01-31", "p4": 1}).collect()
    assert [str(value) for value in rows[0]] == ["3", "ax", "2020-02-01 00:00:00"]


def said(sql: str, **columns: str) -> str:
    """A query of t in Spark's words, for a session in UTC."""
    known = {**comparison.TABLES["t"][0], **columns}
    return translate(parse_one(sql), target=lambda _: SparkRelation("x", known), session={"timezone": "UTC"})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n = '1.234'", "= 1.234BD"),
        ("'1.234' <> n", "(1.234BD <>"),
        ("n <= '1.235'", "<= 1.235BD"),
        ("n = '12345678901'", "= 12345678901BD"),
        ("n IN ('1.234', '2')", "= 1.234BD"),
        ("i IN (1.5, '2.5')", "= 2.5BD"),
        ("n BETWEEN '1.001' AND '1.009'", ">= 1.001BD"),
        ("n + '0.005'", "+ 0.005BD"),
        ("mod(n, '0.333')", "% 0.333BD"),
        ("coalesce(n, '1.239')", "CAST(1.239BD AS DECIMAL(11,3))"),
        ("greatest(n, NULL, '1.239')", "CAST(1.239BD AS DECIMAL(11,3))"),
        ("CASE WHEN flag THEN n ELSE '1.239' END", "ELSE CAST(1.239BD AS DECIMAL(11,3))"),
        ("lag(n, 1, '1.239') OVER (ORDER BY id)", "CAST(1.239BD AS DECIMAL(11,3))"),
        ("n = ANY('{1.234, 5}')", "CAST(array(1.234BD, 5BD) AS ARRAY<DECIMAL(4,3)>)"),
        ("ns || '{1.239}'", "CAST(array(1.239BD) AS ARRAY<DECIMAL(4,3)>)"),
        ("array_replace(ns, '1.239', '1.2345')", "CAST(1.2345BD AS DECIMAL(12,4))"),
        ("n IN (SELECT '1.239')", "CAST(c0 AS DECIMAL(11,3))"),
        ("n FROM t UNION SELECT '1.239'", "CAST(c0 AS DECIMAL(11,3))"),
        # A cast that is written rounds.
        ("n = '1.234'::numeric(10,2)", "CAST(1.234BD AS DECIMAL(10,2))"),
        ("'{1.239}'::numeric(10,2)[]", "array(CAST(1.239BD AS DECIMAL(10,2)))"),
    ],
)
def test_a_literal_beside_a_numeric_keeps_its_digits(expression: str, expected: str) -> None:
    text = said(
        f"SELECT {expression}{'' if ' FROM t' in expression else ' FROM t'}", ns="array<decimal(10,2)>"
    )
    assert expected in text
    assert "AS DECIMAL(10,2))" in expected or "BD AS DECIMAL(10,2))" not in text


def test_a_zero_with_a_large_exponent_is_a_zero() -> None:
    assert said("SELECT 0e999999999").startswith("SELECT 0BD")
    assert said(f"SELECT {'0' * 5_000}7").startswith("SELECT 7 ")
    assert said(f"SELECT '-{'0' * 5_000}7'::int").startswith("SELECT CAST('-7' AS INT)")
    assert said("SELECT -0.0e3").startswith("SELECT (-0BD)")


@pytest.mark.parametrize(
    ("text", "kind", "read"),
    [
        ("2024-01-01T10:00:00Z", "timestamp", "2024-01-01T10:00:00"),
        ("2024-01-01 10:00:00.25 +02:00 ", "timestamp", "2024-01-01 10:00:00.25"),
        ("2024-01-01 10:00-0530", "date", "2024-01-01 10:00"),
        ("2024-01-01", "date", "2024-01-01"),
        ("2024-01-01Z", "date", None),
        ("2024-01-01 10:00:00+99", "timestamp", None),
        ("2024-01-01 25:00", "date", None),
        ("2024-01-01 10:00:00+02", "timestamptz", "2024-01-01 10:00:00+02:00"),
        ("2024-01-01 10:00+02", "timestamptz", None),
    ],
)
def test_the_offset_of_a_text_counts_for_timestamptz_alone(text: str, kind: str, read: str | None) -> None:
    found = [
        literal.replace("\\\\", "\\")
        for literal in re.findall(r"'([^']*)'", said(f"SELECT s::{kind} FROM t"))
    ]
    form, pattern, new = found[0], found[1], found[2].replace("$1", r"\1")
    assert (re.search(form, text) is not None) == (read is not None)
    if read is not None:
        assert re.sub(pattern, new, text) == read


def test_elements_of_an_array_literal() -> None:
    assert "array('a b', 'c, d', NULL, 'NULL', 'NULL')" in said(
        r"""SELECT '{ a b , "c, d" ,null,"NULL",\NULL}'::text[]"""
    )
    assert r"array('a,b', '\"x', 'y ')".replace(r"\"", '"') in said(r"""SELECT '{a\,b,\"x, y\ }'::text[]""")
    assert "array()" in said("SELECT '{ }'::text[]")


def test_names_are_folded_as_postgresql_does() -> None:
    asked: list[tuple[str, ...]] = []

    def target(path: tuple[str, ...]) -> SparkRelation:
        asked.append(path)
        return SparkRelation("here", {"id": "int"})

    translate(parse_one('SELECT ID FROM Public."Mixed" AS X, other.T'.replace("ID", "X.ID")), target=target)
    assert asked == [("public", "Mixed"), ("other", "t")]


def test_spark_sql_keeps_its_meaning_with_names_and_parameters() -> None:
    tree = sqlglot.parse_one(
        "WITH c AS (SELECT * FROM a.t) SELECT c.x / 2, explode(y) FROM c JOIN u ON c.id = u.id WHERE z = $1",
        dialect="spark",
    )
    assert isinstance(tree, exp.Select)
    said = respell(tree, target=lambda path: SparkRelation(f"`v_{path[-1]}`", {}), parameters=["INT"])
    assert "`v_t` AS `t`" in said
    assert "`v_u` AS `u`" in said
    assert "FROM c" in said
    assert "CAST(:p1 AS INT)" in said
    assert "c.x / 2" in said


def test_functions_of_spark_alone_are_passed_on() -> None:
    said = translate(
        parse_one("SELECT xxhash64(id) FROM t"), target=lambda _: SparkRelation("x", {"id": "int"})
    )
    assert "xxhash64(`@t`.`id`)" in said
