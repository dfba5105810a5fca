"""What clients are told when Spark fails."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import SqlError, StorageFull
from penstock.server.engine.faults import too_large, translated


class Said(Exception):
    """An error as PySpark raises it."""

    def __init__(
        self, text: str, condition: str = "", sqlstate: str = "", fragment: str = "", **values: str
    ) -> None:
        super().__init__(text)
        self._given = (condition, sqlstate, values, fragment)

    def getCondition(self) -> str:  # noqa: N802
        return self._given[0]

    def getSqlState(self) -> str:  # noqa: N802
        return self._given[1]

    def getMessageParameters(self) -> dict[str, str]:  # noqa: N802
        return self._given[2]

    def getQueryContext(self) -> list[Any]:  # noqa: N802
        fragment = self._given[3]
        return [type("Context", (), {"fragment": lambda self: fragment})()]


MALFORMED = 'The value of the type "STRING" cannot be cast to "INT" because it is malformed.'
CAST = (
    f"[CAST_INVALID_INPUT] {MALFORMED} Correct the value as per the syntax, or change its target type. "
    "Use `try_cast` to tolerate malformed input. SQLSTATE: 22018\n== SQL (line 1, position 8) =="
)


def test_codes_are_postgress_and_the_advice_is_left_out() -> None:
    error = translated(Said(CAST, "CAST_INVALID_INPUT", "22018"))
    assert error.sqlstate == "22P02"
    assert error.what == MALFORMED


@pytest.mark.parametrize(
    ("condition", "sqlstate", "expected"),
    [
        ("AMBIGUOUS_REFERENCE", "42704", "42702"),
        ("DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", "42K09", "42804"),
        ("ARITHMETIC_OVERFLOW", "22003", "22003"),
        ("SOMETHING_NEW", "42K99", "42000"),
        ("INTERNAL_ERROR", "XX000", "XX000"),
        ("FAILED_READ_FILE.NO_HINT", "KD001", "58030"),
    ],
)
def test_conditions_of_spark(condition: str, sqlstate: str, expected: str) -> None:
    assert translated(Said(f"[{condition}] so it is", condition, sqlstate)).sqlstate == expected


BROKEN = (
    "[INTERNAL_ERROR] The Spark SQL phase optimization failed with an internal error. You hit a bug in Spark"
    " or the Spark plugins you use. Please, report this bug to the corresponding communities. SQLSTATE: XX000"
)


@pytest.mark.parametrize(
    "error",
    [
        Said(BROKEN, "INTERNAL_ERROR", "XX000"),
        type("Py4JJavaError", (Exception,), {})(
            f"An error occurred\n: org.apache.spark.SparkException: {BROKEN}"
        ),
    ],
)
def test_what_spark_cannot_plan_is_refused_with_a_way_out(error: Exception) -> None:
    told = translated(error)
    assert told.sqlstate == "0A000"
    assert "optimization" in told.what and "bug" not in told.what
    assert told.hint is not None and "in another way" in told.hint


def test_a_window_that_spark_cannot_plan_is_refused_too() -> None:
    told = translated(Said("[INTERNAL_ERROR] Unsupported window function: 0", "INTERNAL_ERROR", "XX000"))
    assert (told.sqlstate, "planning" in told.what) == ("0A000", True)


def test_nobody_is_asked_to_report_bugs_of_spark() -> None:
    other = BROKEN.replace("The Spark SQL phase optimization", "Reading")
    told = translated(Said(other, "INTERNAL_ERROR", "XX000"))
    assert (told.sqlstate, told.what) == ("XX000", "Reading failed with an internal error.")


def test_known_errors_in_known_words() -> None:
    column = Said("…", "UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703", "x", objectName="`x`", proposal="`y`")
    error = translated(column, "SELECT x FROM t")
    assert (error.what, error.position) == ('column "x" does not exist', 7)
    assert error.hint is not None and '"y"' in error.hint
    assert translated(column, "SELECT x, x FROM t").position is None
    assert translated(Said("…", "DIVIDE_BY_ZERO", "22012")).what == "division by zero"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("java.io.IOException: No space left on device", "53100"),
        ("java.lang.OutOfMemoryError: Java heap space", "53200"),
        ("Job 3 cancelled part of cancelled job tags", "57014"),
        ("whatever\n\tat org.apache", "XX000"),
    ],
)
def test_errors_without_a_code(text: str, expected: str) -> None:
    error = translated(RuntimeError(text))
    assert error.sqlstate == expected
    assert "\n" not in error.what


def test_our_own_errors_stay_what_they_are() -> None:
    own = SqlError("no", sqlstate="42501")
    assert translated(own) is own
    assert translated(StorageFull("full")).sqlstate == "53100"


def test_results_that_the_driver_refuses() -> None:
    assert too_large(RuntimeError("… is bigger than spark.driver.maxResultSize (1024.0 MiB)"))
    assert not too_large(RuntimeError("other"))


class Py4JJavaError(Exception):
    """As Py4J raises it for what PySpark does not recognize."""


def test_what_is_buried_in_a_trace_of_java_is_told() -> None:
    head = "An error occurred while calling o394.getResult.\n: org.apache.spark.SparkException: "
    cause = (
        "Exception thrown in awaitResult:\n\tat org.apache.spark.Threads.go(Threads.scala:12)\n"
        "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] "
        "Encountered error while reading file f.parquet. Column [a] is another.  SQLSTATE: KD001\n\tat more"
    )
    error = translated(Py4JJavaError(head + cause))
    assert error.what == "Encountered error while reading file f.parquet. Column [a] is another."
    assert error.sqlstate == "58030" and "say it again" in str(error.hint)
    error = translated(
        Py4JJavaError(f"{head}Broken pipe\n\tat org.apache.spark.Threads.go(Threads.scala:12)")
    )
    assert (error.what, error.sqlstate) == ("Broken pipe", "XX000")
