"""Functions that keep a state for each key, and rows that came before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import BadState, NullInField, PenstockError, TransformFailed, TypeMismatch
from penstock.streams.api.stream import Stream
from penstock.streams.operators.query import spark_settings
from penstock.streams.operators.sites import Site
from penstock.streams.operators.stateful import Function, KeyedFunction, encoded
from penstock.streams.operators.steps import ExpectedRows
from penstock.types.tables import Table
from tests.streams.flow.support import Clicks, Feed, Nowhere, Source, click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sums(Table):
    user: str
    page: str
    total: int


SITE = Site("stateful_map(add)", "flows.py:7")


class _Row(dict[str, Any]):
    def asDict(self, recursive: bool) -> dict[str, Any]:  # noqa: N802
        return dict(self)


def add(key: Any, row: dict[str, Any], state: dict[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    state["total"] += row["price"]
    if row["page"] == "/forget":
        return None, []
    user = key if isinstance(key, str) else "/".join(key)
    return state, [{"user": user, "page": row["page"], "total": state["total"]}]


def handle(function: Function, *rows: dict[str, Any], first: Any = 0, text: str | None = None) -> Any:
    keeper = KeyedFunction(
        SITE, function, ExpectedRows(SITE, "sums", Sums.arrow_schema()), encoded(SITE, "", first)
    )
    return keeper.handle(("ann",), [_Row(row) for row in rows or [click("ann", "/a", 0)]], text)


def test_a_state_goes_from_row_to_row_and_from_batch_to_batch(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    clicks = stream.source("clicks", Source()).assign_timestamps(Clicks.at, 2)
    unique = clicks.deduplicate(Clicks.user, Clicks.price)
    sums = unique.key_by(Clicks.user).stateful_map(add, to=Sums, state={"total": 0})
    output = stream.output("sums", sums, Nowhere())
    feed.add(
        "clicks",
        [click("ann", "/a", 0, 1), click("bob", "/b", 3, 5)],
        [click("ann", "/a", 2, 2), click("ann", "/twice", 2, 1)],
        # As late as a row may be. Spark takes the watermark from before the last batch to judge it.
        [click("ann", "/a", 1, 3)],
        [click("ann", "/forget", 4, 9)],
        [click("ann", "/a", 5, 4)],
    )
    found = feed.run(streaming, output)
    assert [sorted((r["user"], r["total"]) for r in batch) for batch in found.batches if batch] == [
        [("ann", 1), ("bob", 5)],
        [("ann", 3)],
        [("ann", 6)],
        [("ann", 4)],
    ]
    assert found.late == 0


def test_a_state_expires_when_nothing_comes_for_its_key(
    streaming: SparkSession, stream: Stream, feed: Feed
) -> None:
    clicks = stream.source("clicks", Source())
    sums = clicks.key_by("user", "page").stateful_map(add, to=Sums, state={"total": 0}, ttl=0.5)
    output = stream.output("sums", sums, Nowhere(), mode="update", keys=[Sums.user])
    key = "spark.sql.streaming.noDataMicroBatches.enabled"
    streaming.conf.set(key, spark_settings(expires=output.shape.expires)[key])
    first = feed.add("clicks", [click("ann", "/a", 0, 1)]).run(streaming, output)
    assert first.tuples("user", "total") == [("ann//a", 1)]
    deadline = time.monotonic() + 30
    # Time since a row goes on while the next query is started: at some point the state is gone.
    while time.monotonic() < deadline:
        time.sleep(0.5)
        (row,) = feed.add("clicks", [click("ann", "/a", 0, 1)]).run(streaming, output).rows
        if row["total"] == 1:
            return
    pytest.fail("the state did not expire")


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (
            lambda key, row, state: 1 / 0,
            TransformFailed,
            r"flows.py:7: stateful_map\(add\) raised ZeroDivision",
        ),
        (lambda key, row, state: state, TransformFailed, "returned int"),
        (lambda key, row, state: (state, {"user": "a"}), TransformFailed, "returned a state and dict"),
        (lambda key, row, state: ({1, 2}, []), BadState, "state for key 'ann' that cannot be kept: .* set"),
        (
            lambda key, row, state: (state, [{"user": "a", "page": "b", "total": "c"}]),
            TypeMismatch,
            "row of sums that does not fit: total does not fit int64",
        ),
        (
            lambda key, row, state: (state, [{"user": None, "page": "b", "total": 1}]),
            NullInField,
            "sums.user is null",
        ),
    ],
)
def test_what_the_function_returns_is_checked(
    function: Function, kind: type[PenstockError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        handle(function)


def test_a_state_is_kept_as_text_that_runs_no_code() -> None:
    text, rows = handle(lambda key, row, state: (state + 1, []), click("ann", "/a", 0), click("ann", "/a", 1))
    assert (text, rows) == ("1:2", [])
    assert handle(lambda key, row, state: (state + 1, []), text="1:7")[0] == "1:8"
    assert handle(lambda key, row, state: (None, []), text="1:7")[0] is None


def test_an_error_of_the_function_names_its_line(streaming: SparkSession, stream: Stream, feed: Feed) -> None:
    def fail(key: Any, row: dict[str, Any], state: Any) -> Any:
        raise KeyError("nothing")

    sums = stream.source("clicks", Source()).key_by("user").stateful_map(fail, to=Sums)
    output = stream.output("sums", sums, Nowhere())
    with pytest.raises(TransformFailed, match=r"test_stateful.py:\d+: stateful_map\(fail\) raised KeyError"):
        feed.add("clicks", [click("ann", "/a", 0)]).run(streaming, output)
