"""Sorted ranges: all rows once, in one order over all ranges, and ranges of about one size."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.batch.exchange.ordering import sort_indices
from penstock.batch.exchange.packing import PLAN, ExchangePlan
from penstock.batch.exchange.run_files import ExchangeFile
from penstock.batch.exchange.sorted_ranges import cut, plan
from penstock.errors import CorruptFile
from penstock.storage import Storage
from penstock.types.order import Order, SortColumn
from tests.batch.exchange.support import write

SCHEMA = pa.schema([("key", pa.string()), ("size", pa.float64()), ("row", pa.int64())])
ORDER = (SortColumn("key"), SortColumn("size", descending=True))


def batch(rows: Sequence[tuple[str | None, float | None]], first: int = 0) -> pa.RecordBatch:
    found = [{"key": k, "size": s, "row": first + n} for n, (k, s) in enumerate(rows)]
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


def written(
    storage: Storage, tasks: Sequence[Sequence[pa.RecordBatch]], order: Order = ORDER, **options: Any
) -> list[ExchangeFile]:
    """A file for each task that has rows, with batches as small as ``options`` say."""
    keys = tuple(each.name for each in order)
    settings = {"schema": SCHEMA, "keys": keys, "buckets": 1, "order": order, **options}
    return [f for n, given in enumerate(tasks) for f in write(storage, f"task-{n}", given, **settings)]


def planned(files: Sequence[ExchangeFile], count: int, order: Order = ORDER) -> ExchangePlan:
    return plan(files, order, target_bytes=1 << 40, at_least=count, made_of={"a": "b"})


def read(
    storage: Storage, files: Sequence[ExchangeFile], found: ExchangePlan, order: Order = ORDER
) -> list[list[int]]:
    """The numbers of the rows of each range."""
    ranges = []
    for number in range(len(found.ranges)):
        splits = cut(storage, files, order, found.boundaries, number, ["row", "key"])
        splits = pickle.loads(pickle.dumps(splits))
        batches = [each for split in splits for each in split.batches()]
        assert all(each.schema.names == ["row", "key"] for each in batches)
        ranges.append([row for each in batches for row in each.column("row").to_pylist()])
    return ranges


def in_order(tasks: Sequence[Sequence[pa.RecordBatch]], order: Order = ORDER) -> list[int]:
    every = [each for task in tasks for each in task]
    whole = pa.concat_batches(every) if every else batch([])
    numbers: list[int] = whole.take(sort_indices(whole, order)).column("row").to_pylist()
    return numbers


VALUES = st.tuples(
    st.sampled_from([None, "", "a", "b", "b" * 300 + "x", "b" * 300 + "y", "é"]),
    st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("-inf")]),
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.lists(VALUES, max_size=12), max_size=4), max_size=4),
    st.integers(1, 8),
    st.sampled_from([1, 2, 3, 8]),
    st.booleans(),
    st.booleans(),
)
def test_ranges_after_each_other_are_all_rows_in_order(
    rows: list[list[list[tuple[str | None, float | None]]]], count: int, size: int, many: bool, turned: bool
) -> None:
    order = ORDER[::-1] if turned else ORDER
    first = 0
    tasks: list[list[pa.RecordBatch]] = []
    for task in rows:
        tasks.append([])
        for each in task:
            tasks[-1].append(batch(each, first))
            first += len(each)
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        # Chunks of one batch each, or of all that a task has.
        files = written(storage, tasks, order, batch_rows=size, **({"chunk_bytes": 1} if many else {}))
        found = planned(files, count, order)
        assert len(found.ranges) <= count
        assert sum(each.rows for each in found.ranges) == first
        assert all(each.rows >= 0 and each.bytes >= 0 for each in found.ranges)
        assert PLAN.decode("there", found.encode()) == found
        ranges = read(storage, files, found, order)
    # Sorting is stable: rows with equal keys stay as the tasks and chunks wrote them.
    assert [row for each in ranges for row in each] == in_order(tasks, order)


@pytest.mark.parametrize("tasks", [1, 40])
def test_ranges_are_about_even(tmp_path: Path, tasks: int) -> None:
    """Also where each task has few rows, and one key has half of all."""
    random, storage = Random(5), Storage(tmp_path)
    every = [
        batch([(f"k{random.randrange(10**6)}" if n % 2 else "hot", 1.0) for n in range(500)], first)
        for first in range(0, 40_000, 500)
    ]
    given = [every[n::tasks] for n in range(tasks)]
    files = written(storage, given, batch_rows=1024, chunk_bytes=40_000)
    found = planned(files, 10)
    ranges = read(storage, files, found)
    assert [row for rows in ranges for row in rows] == in_order(given)
    assert len(ranges) == 10
    assert all(2_000 < len(rows) < 6_500 for rows in ranges), [len(rows) for rows in ranges]
    assert sum(each.bytes for each in found.ranges) == sum(f.file.bytes for f in files)


def test_only_batches_that_can_have_rows_are_read(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    files = written(storage, [[batch([(f"{n:05}", None) for n in range(5000)])]], batch_rows=128)
    found = planned(files, 10)
    splits = [cut(storage, files, ORDER, found.boundaries, n, ["row"])[0] for n in range(10)]
    assert sum(split.rows for split in splits) < 5000 + 10 * 2 * 128


def test_small_rows_make_one_range_and_no_rows_too(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    files = written(storage, [[batch([("a", 1.0), ("b", 2.0)])]])
    one = plan(files, ORDER, target_bytes=1 << 20, at_least=1, made_of={})
    assert (len(one.ranges), one.boundaries, one.ranges[0].rows) == (1, None, 2)
    none = plan([], ORDER, target_bytes=1, at_least=4, made_of={})
    assert (len(none.ranges), none.boundaries, none.ranges[0].rows) == (1, None, 0)
    assert cut(storage, [], ORDER, None, 0, ["row"]) == []
    same = planned(written(storage, [[batch([("a", 1.0)] * 50)]]), 8)
    assert len(same.ranges) == 1  # one chunk, one key


def test_a_manifest_with_wrong_samples_is_corrupt(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    (file,) = written(storage, [[batch([("a", 1.0), ("b", 2.0)])]])
    for samples in (None, "AAAA", written(storage, [[batch([("a", 1.0)])]], batch_rows=1)[0].samples):
        with pytest.raises(CorruptFile, match="samples"):
            planned([replace(file, samples=samples)], 2)
