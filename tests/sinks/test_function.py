"""A Python function for each batch, at least once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock import sinks
from penstock.errors import StaleToken, TransformFailed, TransientError
from penstock.sinks.base import Batch
from penstock.sinks.function import FunctionSink
from tests.sinks.support import Bench, Rows, number, plain, sales

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def test_the_function_gets_the_rows_and_the_number(output: Bench) -> None:
    seen: dict[int, Rows] = {}

    def take(frame: DataFrame, batch: Batch) -> None:
        seen[batch.number] = plain(frame.collect())

    writer = output.open(FunctionSink(take), 1)
    writer.write(output.frame(sales(0)), number(0))
    writer.write(output.frame(sales(1)), number(1, final=True))
    assert seen == {0: plain(sales(0)), 1: plain(sales(1))}


def test_a_repeated_batch_is_given_again(output: Bench) -> None:
    seen: list[int] = []
    writer = output.open(FunctionSink(lambda _, batch: seen.append(batch.number)), 1)
    for _ in range(2):
        writer.write(output.frame(sales(0)), number(0))
    assert seen == [0, 0]
    assert not FunctionSink.exactly_once


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError("no\nway"), TransformFailed),
        (ConnectionResetError("gone"), TransientError),
        (StaleToken("taken"), StaleToken),
    ],
)
def test_what_it_raises_fails_the_batch(output: Bench, raised: Exception, kind: type[Exception]) -> None:
    def fail(frame: DataFrame, batch: Batch) -> None:
        raise raised

    writer = output.open(FunctionSink(fail), 1)
    with pytest.raises(kind, match=str(raised).split("\n", maxsplit=1)[0]):
        writer.write(output.frame([]), number(3))


class Taker:
    def __call__(self, frame: DataFrame, batch: Batch) -> None: ...


def named(frame: DataFrame, batch: Batch) -> None: ...


def test_it_is_described_by_its_name() -> None:
    assert FunctionSink(named).describe() == {"kind": "function", "function": f"{__name__}.named"}
    assert FunctionSink(Taker()).describe()["function"] == f"{__name__}.Taker"


def test_every_sink_can_be_had_from_one_place() -> None:
    assert sorted(sinks._HOMES) == sinks.__all__
    assert sinks.FunctionSink is FunctionSink
    with pytest.raises(AttributeError):
        sinks.NoSink  # noqa: B018
