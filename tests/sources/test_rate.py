"""The rate source: rows that depend on part and number alone, whatever the pace."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DefinitionError, UsageError
from penstock.sources import RateSource, Ticks
from penstock.sources.conformance import NAMES, check
from penstock.types.tables import Table
from tests.sources.conftest import read, stored


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Sales(Table):
    shop: str
    amount: int


def sales(part: int, numbers: npt.NDArray[np.int64]) -> pa.RecordBatch:
    shops = pa.array(["north", "south"]).take(pa.array(numbers % 2))
    return pa.RecordBatch.from_arrays([shops, pa.array(numbers * 10 + part)], schema=Sales.input_schema())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "source",
    [
        RateSource(parts=2, rows=300),
        RateSource(parts=1),
        RateSource(parts=1, per_second=20_000),
        RateSource(Sales, parts=2, rows=50, make=sales),
    ],
    ids=["finite", "endless", "paced", "own"],
)
def test_conformance(source: RateSource, name: str) -> None:
    check(source, only=name, rows=200)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"table"}))
def test_conformance_without_rows(name: str) -> None:
    check(RateSource(parts=2, rows=0), only=name)


@settings(deadline=None)
@given(st.integers(0, 10**12), st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 5000))
def test_a_row_depends_on_part_and_number_alone(first: int, limits: list[int], part: int) -> None:
    source = RateSource(parts=1)
    one = source.build_part(str(part), first)
    cut = [row for limit in limits for row in _rows(one.poll(limit))]
    assert cut == _rows(source.build_part(str(part), first).poll(sum(limits)))
    assert one.snapshot() == first + sum(limits)


def _rows(batch: pa.RecordBatch | None) -> list[dict[str, Any]]:
    assert batch is not None
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def test_ticks_are_these_for_ever() -> None:
    """A benchmark that is repeated next year must get the same rows."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert read(RateSource(parts=2, rows=3).build_part("1", None)) == [
        {"part": "1", "number": n, "key": key, "at": start + timedelta(milliseconds=n)}
        for n, key in enumerate([700, 519, 226])
    ]


def test_keys_are_spread_evenly_and_differ_between_parts() -> None:
    source = RateSource(keys=10)
    batches = [source.build_part(part, None).poll(10_000) for part in "01"]
    keys = [np.asarray(batch.column("key")) for batch in batches if batch is not None]
    for each in keys:
        assert np.bincount(each, minlength=10).min() > 850
        assert each.min() == 0 and each.max() == 9
    assert (keys[0] == keys[1]).mean() < 0.2


def test_it_finishes_after_its_rows() -> None:
    part = RateSource(parts=1, rows=5).build_part("0", None)
    assert [row["number"] for row in read(part, 2)] == [0, 1, 2, 3, 4]
    assert part.is_finished() and part.poll(1) is None
    assert RateSource(parts=1, rows=5).build_part("0", stored(part.snapshot())).is_finished()
    assert not RateSource(parts=1, rows=6).build_part("0", stored(part.snapshot())).is_finished()


def test_parts_are_named_so_that_more_can_follow() -> None:
    assert RateSource(parts=2).list_parts() == ["0", "1"]
    assert RateSource(parts=12).list_parts()[:2] == ["0", "1"]
    with pytest.raises(UsageError, match="no part 'x'"):
        RateSource().build_part("x", None)


def test_the_pace_bounds_what_is_there_and_changes_no_row() -> None:
    clock = Clock()
    paced = RateSource(parts=1, per_second=10, clock=clock)
    part = paced.build_part("0", None)
    assert len(read(part)) == 1
    assert part.poll(100) is None
    clock.now += 0.55
    assert len(read(part)) == 5
    clock.now += 1000
    behind = read(part, 50_000)
    assert len(behind) == 10_000
    assert part.poll(1) is None
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert [row["at"] for row in behind[:2]] == [start + timedelta(seconds=n / 10) for n in (6, 7)]
    assert [row["number"] for row in behind] == list(range(6, 10_006))


def test_the_pace_goes_on_where_it_was_when_a_part_is_built_anew() -> None:
    """Parts may be built anew in each epoch, which must neither stop nor speed up what comes."""
    clock = Clock()
    source = RateSource(parts=1, per_second=10, clock=clock)
    state, numbers = None, []
    for _ in range(20):
        part = source.build_part("0", state)
        numbers += [row["number"] for row in read(part)]
        state = stored(part.snapshot())
        clock.now += 0.05
    assert numbers == list(range(10))


def test_a_clock_that_goes_back_only_delays() -> None:
    clock = Clock()
    part = RateSource(parts=1, per_second=10, clock=clock).build_part("0", None)
    assert len(read(part)) == 1
    clock.now -= 5
    assert part.poll(10) is None
    clock.now += 5.1
    assert [row["number"] for row in read(part)] == [1]


def test_the_pace_may_be_changed_given_or_taken_away() -> None:
    clock = Clock()
    part = RateSource(parts=1, per_second=10, clock=clock).build_part("0", None)
    read(part)
    slower = RateSource(parts=1, per_second=1, clock=clock).build_part("0", stored(part.snapshot()))
    clock.now += 0.1
    assert [row["number"] for row in read(slower)] == [1]
    free = RateSource(parts=1, clock=clock).build_part("0", stored(slower.snapshot()))
    assert len(read(free, 7, most=7)) == 7
    paced = RateSource(parts=1, per_second=1, clock=clock).build_part("0", stored(free.snapshot()))
    assert [row["number"] for row in read(paced)] == [9]


def test_a_start_and_rows_of_ones_own() -> None:
    start = datetime(2000, 1, 1, tzinfo=UTC)
    row = read(
        RateSource(parts=1, rows=2, per_second=4, start=start, clock=lambda: 0.0).build_part("0", None)
    )[0]
    assert row["at"] == start
    part = RateSource(Sales, parts=3, rows=3, make=sales).build_part("2", None)
    assert read(part) == [
        {"shop": "north", "amount": 2},
        {"shop": "south", "amount": 12},
        {"shop": "north", "amount": 22},
    ]


def test_a_function_that_makes_another_number_of_rows_is_found() -> None:
    part = RateSource(Sales, make=lambda part, numbers: sales(part, numbers[1:])).build_part("1", None)
    with pytest.raises(DefinitionError, match="part 1: make gave 9 rows for 10 numbers"):
        part.poll(10)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"parts": 0}, "parts=0"),
        ({"rows": -1}, "rows=-1"),
        ({"per_second": 0}, "per_second=0"),
        ({"per_second": float("nan")}, "per_second=nan"),
        ({"keys": 0}, "keys=0"),
        ({"start": datetime(2026, 1, 1)}, "start="),
        ({"table": Sales}, "sales"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        RateSource(**options)


def test_it_is_fast_enough_to_measure_others_with() -> None:
    part = RateSource(parts=1).build_part("0", None)
    part.poll(1 << 16)
    best = float("inf")
    for _ in range(20):
        began = time.process_time()
        part.poll(1 << 16)
        best = min(best, time.process_time() - began)
    assert (1 << 16) / best > 10_000_000


def test_the_default_table_says_what_it_holds() -> None:
    assert Ticks.input_schema().names == ["part", "number", "key", "at"]
