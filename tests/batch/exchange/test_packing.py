"""Packing buckets into key ranges: even, complete, and the same whoever does it."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch.exchange.packing import PLAN, ExchangePlan, KeyRange, pack, plan
from penstock.errors import CorruptFile, UsageError
from penstock.storage import Storage
from tests.batch.exchange.support import BUCKETS, batches, rows, write


def sizes_of(ranges: tuple[KeyRange, ...]) -> list[int]:
    return [each.bytes for each in ranges]


def packed(sizes: list[int], target: int, at_least: int = 1) -> tuple[KeyRange, ...]:
    return pack(np.sign(sizes), np.array(sizes, np.int64), target, at_least)


@given(
    st.lists(st.integers(0, 50) | st.sampled_from([0, 0, 400]), min_size=1, max_size=60),
    st.integers(1, 300),
    st.integers(1, 12),
)
def test_every_bucket_is_in_one_range_and_every_range_has_rows(
    sizes: list[int], target: int, at_least: int
) -> None:
    ranges = packed(sizes, target, at_least)
    assert ranges[0].begin_bucket == 0 and ranges[-1].end_bucket == len(sizes)
    assert all(one.end_bucket == other.begin_bucket for one, other in pairwise(ranges))
    assert [each.bytes for each in ranges] == [sum(sizes[r.begin_bucket : r.end_bucket]) for r in ranges]
    filled = sum(size > 0 for size in sizes)
    if not filled:
        assert ranges == (KeyRange(0, len(sizes), 0, 0),)
        return
    assert all(each.rows > 0 for each in ranges)
    wanted = min(filled, max(at_least, -(-sum(sizes) // target)))
    heavy = sum(size >= -(-sum(sizes) // wanted) for size in sizes)
    assert wanted <= len(ranges) <= max(wanted, 2 * heavy + 1)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=9), st.integers(1, 5))
def test_the_largest_range_is_as_small_as_it_can_be(sizes: list[int], count: int) -> None:
    ranges = packed(sizes, 10**9, count)
    made = len(ranges)
    share = -(-sum(sizes) // min(len(sizes), count))
    heavy = {n for n, size in enumerate(sizes) if size >= share}
    # Heavy ones are alone.
    walls = {end for n in heavy for end in (n, n + 1)} - {0, len(sizes)}
    best = min(
        max(sum(sizes[a:b]) for a, b in pairwise((0, *cuts, len(sizes))))
        for cuts in combinations(range(1, len(sizes)), made - 1)
        if walls <= set(cuts)
    )
    assert max(sizes_of(ranges)) == best


def test_even_buckets_make_even_ranges() -> None:
    ranges = packed([10] * 4096, target=1000)
    assert len(ranges) == 41
    assert max(sizes_of(ranges)) == 1000 and min(sizes_of(ranges)) >= 450
    assert {each.bytes for each in packed([10] * 100, 10**9, 10)} == {100}


def test_random_buckets_make_even_ranges() -> None:
    sizes = np.random.default_rng(3).poisson(200_000, 4096).tolist()
    found = sizes_of(packed(sizes, target=10**9, at_least=64))
    assert len(found) == 64
    assert max(found) < 1.05 * sum(sizes) / 64


def test_a_heavy_bucket_is_alone() -> None:
    sizes = [1] * 100
    sizes[40] = 1000
    ranges = packed(sizes, target=100)
    (heavy,) = [each for each in ranges if each.bytes >= 1000]
    assert (heavy.begin_bucket, heavy.end_bucket, heavy.bytes) == (40, 41, 1000)
    assert len(ranges) == 11
    # The others are not made larger for its sake.
    assert sorted(sizes_of(ranges))[-2] <= 20
    # Buckets without rows may be with it.
    assert packed([0, 0, 7, 0], 1, 5) == (KeyRange(0, 4, 1, 7),)
    assert [(r.begin_bucket, r.end_bucket) for r in packed([1, 98, 1], 50)] == [(0, 1), (1, 2), (2, 3)]


def test_rows_without_bytes_are_rows() -> None:
    ranges = pack(np.array([1, 0, 1, 1]), np.array([0, 0, 0, 0]), 100, 3)
    assert [(r.begin_bucket, r.end_bucket, r.rows) for r in ranges] == [(0, 2, 1), (2, 3, 1), (3, 4, 1)]


def test_many_buckets_and_ranges_are_packed_soon() -> None:
    sizes = np.random.default_rng(5).pareto(1.5, 1 << 16) * 1e9
    ranges = pack(np.ones(1 << 16, np.int64), sizes.astype(np.int64), 1 << 40, 2000)
    assert len(ranges) >= 2000


def test_what_makes_no_sense_is_refused() -> None:
    for sizes, target, at_least in (([], 1, 1), ([1], 0, 1), ([1], 1, 0)):
        with pytest.raises(UsageError, match="cannot make"):
            packed(sizes, target, at_least)


def test_the_same_files_in_any_order_make_the_same_plan(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    files = [write(storage, f"f{n}", batches(rows(700 + n, first=1000 * n)))[0] for n in range(9)]
    made_of = {f"{n}-{n + 1}": f"digest {n}" for n in range(9)}
    without = ["z", "b", "a"]
    texts = set()
    for seed in range(5):
        order = Random(seed)
        order.shuffle(files)
        order.shuffle(without)
        names = list(made_of.items())
        order.shuffle(names)
        found = plan(
            files, buckets=BUCKETS, target_bytes=20_000, at_least=3, made_of=dict(names), without=without
        )
        texts.add(found.encode())
    assert len(texts) == 1
    assert found.without == ("a", "b", "z")
    assert sizes_of(found.ranges) == sorted(sizes_of(found.ranges), reverse=True)
    assert sum(each.rows for each in found.ranges) == sum(file.file.rows for file in files)
    assert ExchangePlan.decode("there", texts.pop()) == found
    other = plan(
        files,
        buckets=BUCKETS,
        target_bytes=20_000,
        at_least=3,
        made_of={**made_of, "0-1": "x"},
        without=without,
    )
    assert other.made_of != found.made_of and other.ranges == found.ranges


def test_an_exchange_without_rows_has_one_range() -> None:
    found = plan([], buckets=16, target_bytes=1, at_least=4, made_of={}, without=["0-5"])
    assert found.ranges == (KeyRange(0, 16, 0, 0),)


def test_the_document() -> None:
    made = ExchangePlan(4, (KeyRange(1, 4, 7, 70), KeyRange(0, 1, 2, 20)), ("0-5",), "abc")
    assert PLAN.encode(made) == (
        b'{"buckets":4,"format":1,"made_of":"abc","ranges":[[1,4,7,70],[0,1,2,20]],"without":["0-5"]}'
    )
    assert PLAN.decode("there", PLAN.encode(made)) == made


@pytest.mark.parametrize(
    "ranges",
    ["[]", "[[0,3,1,1]]", "[[0,2,1,1],[1,4,1,1]]", "[[0,4,1,1],[4,4,0,0]]", "[[0,4,1]]", "[[0,4,1,null]]"],
)
def test_ranges_that_are_not_all_buckets_are_corrupt(ranges: str) -> None:
    text = f'{{"buckets":4,"format":1,"made_of":"abc","ranges":{ranges},"without":[]}}'
    with pytest.raises(CorruptFile, match="the plan of an exchange, there, cannot be read"):
        PLAN.decode("there", text)
