"""Values of parameters: few are handed over beside the text, many are written into it, and mean the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.server.engine.planning.arguments import arguments
from penstock.server.engine.planning.plans import sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD: dict[str, list[Any]] = {
    "STRING": [None, "it's \\ :p3 `x` \n\t$1 é", "'; DROP", "x" * 5_000, ""],
    "BOOLEAN": [True, False, None],
    "INT": [0, -5, 2**31 - 1],
    "BIGINT": [2**63 - 1, -(2**63), -1],
    "DOUBLE": [1.5, float("nan"), float("-inf"), 1e300, -1e-7, -0.0],
    "BINARY": [b"\x00\xff'", b""],
    "ARRAY<BIGINT>": [[1, None, 3], [], list(range(100))],
    "ARRAY<STRING>": [["a'\\", None, '"é'], ["x"] * 50],
}
MANY = 300


def test_thousands_of_values_cost_no_call_each() -> None:
    count = 20_000
    names = ", ".join(f"CAST(:p{number} AS INT)" for number in range(1, count + 1))
    text, left = arguments(f"SELECT ':p1', `:p2`, {names}", list(range(count)), count)
    assert not left
    assert text.startswith("SELECT ':p1', `:p2`, CAST((0) AS INT), CAST((1) AS INT)") and ":p3" not in text
    text, left = arguments("SELECT :p1", [list(range(count))], 1)
    assert text == "SELECT from_json(:p1, 'array<string>')" and isinstance(left["p1"], str)


def test_elements_of_lists_are_bare_literals() -> None:
    kinds = {
        "cast(:p1 AS INT)": (5, "5"),
        "cast(CAST(:p1 AS INT) AS BIGINT)": (-5, "(-5L)"),
        "cast(CAST(:p1 AS BIGINT) AS INT)": (2**40, f"cast(CAST(({2**40}) AS BIGINT) AS INT)"),
        "cast(:p1 AS BIGINT)": (-(2**63), f"cast(CAST('{-(2**63)}' AS BIGINT) AS BIGINT)"),
        "cast(:p1 AS STRING)": ("it's :p2", r"'it\'s :p2'"),
        "cast(CAST(:p1 AS DECIMAL(3,2)) AS DECIMAL(9,4))": ("1.25", "CAST('1.25' AS DECIMAL(9,4))"),
        "cast(CAST(:p1 AS DECIMAL(3,2)) AS DECIMAL(3,1))": (
            "1.25",
            "cast(CAST('1.25' AS DECIMAL(3,2)) AS DECIMAL(3,1))",
        ),
        "cast(CAST(:p1 AS BOOLEAN) AS INT)": (True, "cast(CAST(true AS BOOLEAN) AS INT)"),
        "cast(:p1 AS INT)  ": (None, "cast(NULL AS INT)  "),
        "CAST(:p1 AS INT)": (5, "CAST((5) AS INT)"),
    }
    for text, (value, expected) in kinds.items():
        assert arguments(text, [value], MANY) == (expected, {})


def test_a_few_are_handed_over_and_long_ones_always() -> None:
    assert arguments("SELECT :p1", ["x"], 1) == ("SELECT :p1", {"p1": "x"})
    text, left = arguments("SELECT :p1, :p2", ["x" * 100_000], MANY)
    assert text == "SELECT :p1, NULL" and left == {"p1": "x" * 100_000}


def test_values_mean_the_same_either_way(spark: SparkSession) -> None:
    values: list[Any] = [value for kind in ODD.values() for value in kind]
    kinds = [kind for kind, some in ODD.items() for _ in some]
    items = ", ".join(f"CAST(:p{n} AS {kind}) AS c{n}" for n, kind in enumerate(kinds, 1))
    few = sql(spark, f"SELECT {items}", values, len(values))
    many = sql(spark, f"SELECT {items}", values, MANY)
    assert few.schema.simpleString() == many.schema.simpleString()
    [one], [other] = few.collect(), many.collect()
    assert str(one) == str(other)
    assert one["c2"] == values[1] and other["c2"] == values[1]
