"""Statements of thousands of parts: what reading one costs grows as the text does, or it is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import pytest

from penstock.errors import SqlError
from penstock.sql.rules.core import SparkRelation
from penstock.sql.statements.analysis import analyse
from penstock.sql.translate import translate

FEW, MANY = 100, 400


def calls(work: Callable[[], object]) -> int:
    """How many functions are called for it: a measure that a busy machine does not change."""
    count = 0

    def count_call(*_: object) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def read(sql: str, parameters: int) -> str:
    found = analyse(sql)
    assert (found.dialect, found.parameters) == ("postgres", parameters)
    target = SparkRelation("numbers", {"n": "bigint", "m": "decimal(10,2)", "s": "string"})
    return translate(found.tree, target=lambda _: target, parameters=["INT"] * parameters)


def listed(part: str, count: int, between: str = ",") -> str:
    return between.join(part.format(i=i) for i in range(1, count + 1))


SHAPES: dict[str, Callable[[int], tuple[str, int]]] = {
    "parameters": lambda n: (f"SELECT n FROM numbers WHERE n IN ({listed('${i}', n)})", n),
    "casts": lambda n: (f"SELECT n FROM numbers WHERE n IN ({listed('${i}::int', n)})", n),
    "numerics": lambda n: (f"SELECT n FROM numbers WHERE m IN ({listed('{i}.5', n)})", 0),
    "any": lambda n: (f"SELECT n FROM numbers WHERE n = ANY (ARRAY[{listed('${i}', n)}])", n),
    "or": lambda n: (f"SELECT n FROM numbers WHERE {listed('n = ${i}', n, ' OR ')}", n),
    "pairs": lambda n: (f"SELECT n FROM numbers WHERE {listed('(n = {i} AND m = {i})', n, ' OR ')}", 0),
    "rows": lambda n: (f"SELECT n FROM numbers WHERE (n, m) IN ({listed('(${i}, {i})', n)})", n),
    "union": lambda n: (f"SELECT n FROM numbers, ({listed('SELECT ${i}', n, ' UNION ALL ')}) AS t", n),
    "values": lambda n: (f"SELECT a FROM (VALUES {listed('(${i})', n)}) AS t(a), numbers", n),
    "literals": lambda n: (f"SELECT n FROM numbers WHERE n IN ({listed('{i}', n)})", 0),
    "columns": lambda n: (f"SELECT {listed('n + {i} AS c{i}', n)} FROM numbers", 0),
    "terms": lambda n: (f"SELECT n FROM numbers WHERE {listed('n <> {i}', n, ' AND ')}", 0),
    "cases": lambda n: (f"SELECT CASE {listed('WHEN n = {i} THEN {i}', n, ' ')} END FROM numbers", 0),
    "with": lambda n: (f"WITH {listed('c{i} AS (SELECT n FROM numbers)', n)} SELECT n FROM c1", 0),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_cost_grows_as_the_statement_does(shape: str) -> None:
    few, many = (calls(partial(read, *SHAPES[shape](count))) for count in (FEW, MANY))
    assert many < 1.3 * few * MANY / FEW


def test_parameters_without_spaces_are_parameters() -> None:
    assert ":p2" in read("SELECT $1::int,$2::int FROM numbers", 2)
    text = read("SELECT $$it's $1,$2$$ || $a$ $1 $a$ FROM numbers WHERE n IN ($1,$2)", 2)
    assert r"'it\'s $1,$2'" in text and "' $1 '" in text


ONE_LIST = ("parameters", "casts", "numerics", "any", "or", "pairs", "rows", "terms")


@pytest.mark.parametrize("shape", ONE_LIST)
def test_a_long_list_is_one_in(shape: str) -> None:
    """Spark takes minutes for chains of thousands of comparisons, and a second for a list."""
    text = read(*SHAPES[shape](MANY))
    assert text.count(" IN (") == 1 and " OR " not in text and text.count(" AND ") <= 1


def test_constants_are_bare_literals_where_nothing_else_is_meant() -> None:
    text = read(f"SELECT n FROM numbers WHERE n IN ({listed('{i}', 40)}, -7, NULL)", 0)
    assert "1L, 2L, 3L" in text and "(-7L)" in text and "NULL" in text
    assert "cast(CAST(:p1 AS INT) AS BIGINT)" in read(*SHAPES["parameters"](40))
    # In ORDER BY and GROUP BY a bare number would be the place of a column.
    text = read(f"SELECT n FROM numbers WHERE n IN ({listed('${i}', 40)}) ORDER BY n + $1, s || $2", 40)
    assert "cast(" not in text.partition("ORDER BY")[2]


def test_each_comparison_of_a_chain_has_a_type_of_its_own() -> None:
    text = read(f"SELECT n FROM numbers WHERE {listed('n = {i}', 40, ' OR ')} OR n = 1.5 OR s = 'x'", 0)
    assert text.count(" IN (") == 1 and "1.5BD" in text and "'x'" in text
    text = read(f"SELECT n FROM numbers WHERE {listed('n = {i} OR s = {i}::text', 40, ' OR ')}", 0)
    assert text.count(" IN (") == 2
    # Only WHERE takes NULL for false, and a join of rows does the same.
    text = read(f"SELECT (n, m) IN ({listed('({i}, {i})', 40)}) FROM numbers", 0)
    assert "VALUES" not in text and text.count(" OR ") == 39


def test_a_constant_that_is_any_of_an_array_is_part_of_a_long_chain() -> None:
    chain = listed("n = {i}", 40, " OR ")
    text = read(f"SELECT n FROM numbers WHERE {chain} OR 3 = ANY (ARRAY[n, 2]) OR 4 = SOME (ARRAY[n])", 0)
    assert text.count(" IN (") == 1 and text.count("exists(") == 2
    chain = listed("n <> {i}", 40, " AND ")
    text = read(f"SELECT n FROM numbers WHERE {chain} AND 3 <> ALL (ARRAY[n, 2])", 0)
    assert text.count(" IN (") == 1 and text.count("forall(") == 1


@pytest.mark.parametrize("count", [11, 40])
def test_both_zeros_are_one_in_a_list_that_spark_hashes(count: int) -> None:
    text = read(f"SELECT n FROM numbers WHERE n::float8 IN ('-0', {listed('{i}.5', count)})", 0)
    assert "(CAST('-0' AS DOUBLE) + CAST(0 AS DOUBLE))" in text
    assert "(CAST(`@numbers`.`n` AS DOUBLE) + CAST(0 AS DOUBLE)) IN" in text
    assert text.count("+ CAST(0 AS DOUBLE)") == 2


@pytest.mark.parametrize("count", [2, 40])
def test_intervals_of_different_parts_in_a_list_are_compared_by_their_sizes(count: int) -> None:
    days = listed("'{i} days'", count)
    text = read(f"SELECT interval '1 month' IN ('2 months', '1 month 1 day', {days}) FROM numbers", 0)
    assert "INTERVAL" not in text and "CAST('2592000000000' AS DECIMAL(30,0))" in text


def test_a_condition_of_filter_is_no_join() -> None:
    rows = listed("({i}, {i})", 40)
    pairs = listed("(n = {i} AND m = {i})", 40, " OR ")
    for condition in (f"(n, m) IN ({rows})", pairs):
        assert "VALUES" not in read(f"SELECT count(*) FILTER (WHERE {condition}) FROM numbers", 0)
        assert "VALUES" in read(f"SELECT count(*) FROM numbers WHERE {condition}", 0)


def nested(levels: int) -> str:
    condition = "n > 0"
    for _ in range(levels):
        condition = f"({listed('s = {i}::text', 40, ' OR ')} OR ({condition}) = true)"
    return f"SELECT n FROM numbers WHERE {condition}"


def test_chains_inside_of_chains_are_read_once() -> None:
    few, many = (calls(partial(read, nested(levels), 0)) for levels in (2, 8))
    assert many < 1.3 * few * 4


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT n FROM numbers WHERE {listed('n + {i} = {i}', 2_000, ' OR ')}",
        f"SELECT n FROM numbers WHERE (n, m) NOT IN ({listed('({i}, {i})', 2_000)})",
        f"SELECT n FROM numbers WHERE {listed('n = {i} AND m < {i}', 2_000, ' OR ')}",
    ],
)
def test_what_spark_cannot_plan_is_refused_at_once(sql: str) -> None:
    with pytest.raises(SqlError) as refused:
        read(sql, 0)
    assert refused.value.sqlstate == "54001" and refused.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT {}",
        "SELECT ${}",
        "SELECT n FROM numbers LIMIT {}",
        "SELECT n FROM numbers ORDER BY {}",
        "SELECT s::varchar({}) FROM numbers",
        "SELECT interval '1' second({})",
    ],
)
def test_numbers_of_thousands_of_digits_are_refused(sql: str) -> None:
    with pytest.raises(SqlError) as refused:
        read(sql.format("9" * 5_000), 0)
    assert refused.value.sqlstate == "22003"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT 1 {listed('UNION ALL SELECT {i}', 5_000, ' ')}",
        f"SELECT {'(' * 3_000}1{')' * 3_000}",
        f"SELECT {'NOT ' * 3_000} true FROM numbers",
    ],
)
def test_what_is_nested_too_deeply_is_refused(sql: str) -> None:
    with pytest.raises(SqlError) as refused:
        analyse(sql)
    assert refused.value.sqlstate == "54001"
