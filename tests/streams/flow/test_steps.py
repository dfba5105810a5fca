"""Functions of rows and batches as they run in a worker, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import (
    NullInField,
    PenstockError,
    TransformFailed,
    TransientError,
    TypeMismatch,
    UnknownField,
)
from penstock.spark.flow import Step
from penstock.streams.operators.sites import Site
from penstock.streams.operators.steps import (
    ExpectedRows,
    FilterRows,
    FlatMapRows,
    Forward,
    MapBatches,
    MapRows,
)
from penstock.types.tables import Table
from tests.streams.flow.support import Clicks, click

SITE = Site("map(function)", "flows.py:7")
ROWS = [click("ann", "/a", 1, 10), click("bob", "/b", 2, None)]


class Words(Table):
    word: str
    length: int | None


class Copies(Table):
    user: str
    at: datetime


WORDS = ExpectedRows(SITE, "words", Words.arrow_schema())
COPIES = ExpectedRows(SITE, "copies", Copies.arrow_schema(), time="at")


def batches(*rows: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    schema = Clicks.input_schema()
    yield pa.RecordBatch.from_pylist([], schema=schema)
    yield pa.RecordBatch.from_pylist(list(rows), schema=schema)


def made(step: Step, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for batch in step(batches(*(rows or ROWS))) for row in batch.to_pylist()]


def raise_(error: Exception) -> Callable[[Any], Any]:
    def function(row: Any) -> Any:
        raise error

    return function


def test_a_nullable_field_may_be_left_out() -> None:
    found = made(MapRows(lambda row: {"word": row["user"]}, WORDS))
    assert found == [{"word": "ann", "length": None}, {"word": "bob", "length": None}]


def test_a_function_that_changes_its_row_changes_nothing_else() -> None:
    def later(row: dict[str, Any]) -> dict[str, Any]:
        row["at"] += timedelta(hours=1)
        return {"user": row["user"], "at": row["at"]}

    assert made(MapRows(later, COPIES))[0]["at"] == ROWS[0]["at"] + timedelta(hours=1)


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (
            raise_(ValueError("no page")),
            TransformFailed,
            r"^flows.py:7: map\(function\) raised ValueError: no page$",
        ),
        (raise_(ConnectionError("gone")), TransientError, "raised ConnectionError: gone"),
        (raise_(NullInField("mine")), NullInField, "^mine$"),
        (lambda row: {"word": 1}, TypeMismatch, "row of words that does not fit: word does not fit string"),
        (lambda row: {"word": "a", "length": 1.5}, TypeMismatch, "length is 1.5, declared as int64"),
        (
            lambda row: {"word": "a", "size": 1},
            UnknownField,
            "returned size, which rows of words do not have",
        ),
        (lambda row: {"length": 1}, UnknownField, "returned a row without word"),
        (lambda row: {"word": None, "length": 1}, NullInField, "words.word is null in 2 of 2 rows"),
        (lambda row: "a", TransformFailed, "returned str for a row"),
    ],
)
def test_what_a_map_returns_is_checked(function: Any, kind: type[PenstockError], words: str) -> None:
    with pytest.raises(kind, match=words):
        made(MapRows(function, WORDS))


def test_a_flat_map_takes_lists_and_generators() -> None:
    assert made(FlatMapRows(lambda row: [{"word": row["user"]}] * 2, WORDS), ROWS[0]) == [
        {"word": "ann", "length": None},
        {"word": "ann", "length": None},
    ]
    assert made(FlatMapRows(lambda row: ({"word": w} for w in row["user"]), WORDS), ROWS[0])[1]["word"] == "n"
    assert made(FlatMapRows(lambda row: [], WORDS)) == []


def test_an_error_inside_a_generator_names_the_operator() -> None:
    def generator(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"word": "a"}
        raise ValueError("half way")

    with pytest.raises(TransformFailed, match=r"flows.py:7: .* raised ValueError: half way"):
        made(FlatMapRows(generator, WORDS))


@pytest.mark.parametrize("returned", [{"word": "a"}, "a", 1, None])
def test_a_flat_map_returns_rows(returned: Any) -> None:
    with pytest.raises(TransformFailed, match=f"returned {type(returned).__name__}"):
        made(FlatMapRows(lambda row: returned, WORDS))


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (lambda batch: [1], TransformFailed, "returned list"),
        (lambda batch: batch.select(["page"]), UnknownField, "returns no word, length for words"),
        (
            lambda batch: pa.record_batch({"word": ["a"], "length": [1], "page": ["b"]}),
            UnknownField,
            "returned page",
        ),
        (lambda batch: pa.record_batch({"word": [1], "length": [1]}), TypeMismatch, "word is int64"),
    ],
)
def test_what_a_function_of_batches_returns_is_checked(
    function: Any, kind: type[PenstockError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        made(MapBatches(function, WORDS))


def test_a_function_of_batches_may_return_a_table_or_nothing() -> None:
    assert made(MapBatches(lambda batch: pa.table({"word": ["a"], "length": [1]}), WORDS)) == [
        {"word": "a", "length": 1}
    ]
    assert made(MapBatches(lambda batch: batch.slice(0, 0), COPIES)) == []


@pytest.mark.parametrize(("wanted", "users"), [(True, ["ann"]), (False, ["bob"])])
def test_none_counts_as_no(wanted: bool, users: list[str]) -> None:
    found = made(FilterRows(lambda row: row["price"] and row["price"] > 1, SITE, wanted))
    assert [row["user"] for row in found] == users


def test_no_function_makes_a_row_older_than_it_is() -> None:
    def back(row: dict[str, Any]) -> dict[str, Any]:
        return {"user": row["user"], "at": row["at"] - timedelta(microseconds=1)}

    for step in (MapRows(back, COPIES), FlatMapRows(lambda row: [back(row)], COPIES)):
        with pytest.raises(TransformFailed, match=r"makes a row of 2026-01-01 00:00:00.999999") as raised:
            made(step)
        assert "extract" in (raised.value.hint or "")


def test_a_time_that_cannot_be_compared_is_a_wrong_type() -> None:
    with pytest.raises(TypeMismatch, match=r"copies.at as 'today'"):
        made(MapRows(lambda row: {"user": "ann", "at": "today"}, COPIES))
    with pytest.raises(TypeMismatch, match=r"copies.at as datetime"):
        made(MapRows(lambda row: {"user": "ann", "at": datetime(2026, 1, 1)}, COPIES))


def test_no_batch_comes_out_older_than_it_is() -> None:
    def back(batch: pa.RecordBatch) -> pa.RecordBatch:
        times = pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * batch.num_rows, batch["at"].type)
        return pa.record_batch({"user": batch["user"], "at": times})

    with pytest.raises(TransformFailed, match="makes a row of 2020-01-01"):
        made(Forward(MapBatches(back, COPIES), COPIES))
    same = Forward(MapBatches(lambda batch: batch.select(["user", "at"]), COPIES), COPIES)
    assert [row["user"] for row in made(same)] == ["ann", "bob"]
