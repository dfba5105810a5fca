"""Spark answers a translation as a real PostgreSQL answers the statement, or it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlglot
from sqlglot import exp

from penstock.dialect.postgres import parse_one
from penstock.dialect.translate import Target, respell, translate
from penstock.errors import SqlError
from servers.postgres import Postgres
from tests.dialect import comparison
from tests.dialect.comparison import Rows, Run

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
        table = spark.sql(sql).toArrow()
        columns = [column.to_pylist() for column in table.columns]
        return list(zip(*columns, strict=True))

    yield rows
    for key, value in before.items():
        with suppress(Exception):
            spark.conf.set(key, value)


@pytest.fixture(scope="module")
def targets(postgres: psycopg.Connection[Any], run: Run) -> dict[str, Target]:
    return comparison.create(postgres, run)


def test_expressions(postgres: psycopg.Connection[Any], run: Run) -> None:
    expressions = comparison.read("expressions.txt")
    assert len(expressions) > 600
    wrong = comparison.differences(expressions, postgres, run)
    assert not wrong, "\n".join(wrong)


def test_queries(postgres: psycopg.Connection[Any], run: Run, targets: dict[str, Target]) -> None:
    queries = comparison.read("queries.txt")
    assert len(queries) > 150
    wrong = [found for sql in queries if (found := comparison.difference(sql, postgres, run, targets))]
    assert not wrong, "\n".join(wrong)


def test_errors_of_values_are_errors_in_both(postgres: psycopg.Connection[Any], run: Run) -> None:
    for expression in comparison.read("failing.txt"):
        with pytest.raises(psycopg.Error):
            postgres.execute(f"SELECT {expression}")
        with pytest.raises(Exception, match=r".+"):
            run(comparison.said(f"SELECT {expression}", {}))


@pytest.mark.parametrize("sql", comparison.read("refused.txt"))
def test_what_cannot_be_said_is_refused(sql: str) -> None:
    columns = comparison.TABLES["t"][0]
    with pytest.raises(SqlError) as caught:
        translate(parse_one(sql), target=lambda _: Target("x", columns))
    assert caught.value.sqlstate == "0A000"
    assert caught.value.hint


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
    ],
)
def test_faults_have_postgresqls_codes(sql: str, sqlstate: str) -> None:
    target = Target("x", comparison.TABLES["t"][0])
    with pytest.raises(SqlError) as caught:
        translate(parse_one(sql), target=lambda path: target if path == ("t",) else None, parameters=["INT"])
    assert caught.value.sqlstate == sqlstate


def test_a_fault_says_where() -> None:
    with pytest.raises(SqlError) as caught:
        translate(parse_one("SELECT 1,\n nothing FROM t"), target=lambda _: Target("x", {"id": "int"}))
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


def test_names_are_folded_as_postgresql_does() -> None:
    asked: list[tuple[str, ...]] = []

    def target(path: tuple[str, ...]) -> Target:
        asked.append(path)
        return Target("here", {"id": "int"})

    translate(parse_one('SELECT ID FROM Public."Mixed" AS X, other.T'.replace("ID", "X.ID")), target=target)
    assert asked == [("public", "Mixed"), ("other", "t")]


def test_spark_sql_keeps_its_meaning_with_names_and_parameters() -> None:
    tree = sqlglot.parse_one(
        "WITH c AS (SELECT * FROM a.t) SELECT c.x / 2, explode(y) FROM c JOIN u ON c.id = u.id WHERE z = $1",
        dialect="spark",
    )
    assert isinstance(tree, exp.Select)
    said = respell(tree, target=lambda path: Target(f"`v_{path[-1]}`", {}), parameters=["INT"])
    assert "`v_t` AS `t`" in said
    assert "`v_u` AS `u`" in said
    assert "FROM c" in said
    assert "CAST(:p1 AS INT)" in said
    assert "c.x / 2" in said


def test_functions_of_spark_alone_are_passed_on() -> None:
    said = translate(parse_one("SELECT xxhash64(id) FROM t"), target=lambda _: Target("x", {"id": "int"}))
    assert "xxhash64(`@t`.`id`)" in said
