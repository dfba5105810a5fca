"""The hash of keys: the same everywhere and always, for every type, and even."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.batch.exchange.hashing import MOST_BUCKETS, bucket_numbers, check_key
from penstock.errors import UsageError

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15
MANY = 999_983
"""Buckets, so many that two hashes that differ are seen to."""


def mixed(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def word(x: int) -> int:
    return mixed(x + STEP & MASK)


def of_bytes(value: bytes) -> int:
    padded = value + bytes(-len(value) % 8)
    words = struct.unpack(f"<{len(padded) // 8}Q", padded)
    return word(len(value) + sum(word(w + i * STEP & MASK) for i, w in enumerate(words)) & MASK)


def slow(value: Any) -> int:
    """The hash as the module describes it, a value at a time."""
    if value is None:
        return 0x6A09E667F3BCC908
    if isinstance(value, bool | int):
        return word(int(value) & MASK)
    if isinstance(value, float):
        bits = (
            0x7FF8000000000000
            if math.isnan(value)
            else struct.unpack("<Q", struct.pack("<d", value or 0.0))[0]
        )
        return word(bits)
    return of_bytes(value.encode() if isinstance(value, str) else value)


def numbers(
    values: Sequence[Any] | pa.Array, kind: pa.DataType | None = None, buckets: int = MANY
) -> list[int]:
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    found: list[int] = bucket_numbers([array], buckets).tolist()
    return found


# These never change: files that were written with them are read by every later release.
GOLDEN: list[tuple[str, pa.Array, list[int]]] = [
    ("bool", pa.array([False, True, None]), [797005, 721748, 76265]),
    ("int8", pa.array([-1, 0, 127], pa.int8()), [770586, 797005, 197076]),
    ("int64", pa.array([-(2**63), 1, 2**63 - 1]), [375619, 721748, 210866]),
    ("uint64", pa.array([0, 2**64 - 1], pa.uint64()), [797005, 770586]),
    ("float32", pa.array([0.1, -0.0, math.nan], pa.float32()), [777094, 797005, 28267]),
    ("float64", pa.array([0.1, 0.0, math.nan, math.inf]), [142799, 797005, 28267, 274477]),
    (
        "decimal",
        pa.array([Decimal("-1.50"), Decimal("99999999999999999999999999.99")], pa.decimal128(38, 2)),
        [502344, 176120],
    ),
    ("string", pa.array(["", "a", "12345678", "ü€😀", "x" * 100]), [797005, 219403, 850194, 636787, 623420]),
    ("binary", pa.array([b"\0", b"\0\0", b"\xff" * 33]), [606947, 163955, 542661]),
    ("date", pa.array([date(1969, 12, 31), date(2024, 2, 29)]), [770586, 192448]),
    ("timestamp", pa.array([datetime(2024, 2, 29, 1, 2, 3, 4, UTC)], pa.timestamp("us", "UTC")), [303524]),
]


@pytest.mark.parametrize(
    ("name", "array", "expected"), GOLDEN, ids=lambda each: each if isinstance(each, str) else ""
)
def test_numbers_never_change(name: str, array: pa.Array, expected: list[int]) -> None:
    assert numbers(array) == expected


def test_numbers_of_several_columns_never_change() -> None:
    columns = [pa.array([1, 2, None, 1]), pa.array(["a", None, "a", "b"])]
    assert bucket_numbers(columns, MANY).tolist() == [826345, 449150, 62357, 495657]
    assert bucket_numbers(columns[::-1], MANY).tolist() == [700329, 922102, 371825, 769849]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers_are_hashed_as_described(values: list[int | None]) -> None:
    assert numbers(values, pa.int64()) == [slow(value) % MANY for value in values]


@given(st.lists(st.none() | st.floats()))
def test_floats_are_hashed_as_described(values: list[float | None]) -> None:
    assert numbers(pa.array(values, pa.float64(), from_pandas=False)) == [
        slow(value) % MANY for value in values
    ]


@given(st.lists(st.none() | st.binary(max_size=80)), st.integers(0, 5))
@settings(max_examples=200)
def test_bytes_are_hashed_as_described(values: list[bytes | None], skip: int) -> None:
    expected = [slow(value) % MANY for value in values]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        array = pa.array(values, kind)
        assert numbers(array) == expected
        assert numbers(array.slice(skip)) == expected[skip:]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_is_the_same_in_every_layout(kind: pa.DataType) -> None:
    values = ["", "a", None, "ü€😀", "x" * 7, "x" * 8, "x" * 9, "y" * 33, "z" * 1000]
    expected = [slow(value) % MANY for value in values]
    array = pa.array(values, kind)
    assert numbers(array) == expected
    assert numbers(array.slice(2, 5)) == expected[2:7]
    assert numbers(pa.array(values).dictionary_encode()) == expected
    assert numbers(pa.array(values).dictionary_encode().slice(3)) == expected[3:]


def test_values_longer_than_a_block_are_hashed_as_described() -> None:
    values = [b"short", bytes(range(256)) * 3000, None, b"", bytes(700_001), b"x" * 40]
    assert numbers(values, pa.binary()) == [slow(value) % MANY for value in values]


def test_bytes_of_a_fixed_length_are_bytes() -> None:
    values = [b"0123456789abcdef", None, bytes(16)]
    assert numbers(values, pa.binary(16)) == numbers(values, pa.binary())


def test_a_number_is_the_same_in_every_width() -> None:
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        assert numbers([0, 5, None, 127], kind) == numbers([0, 5, None, 127], pa.int64())
    assert numbers([-1], pa.int8()) == numbers([-1], pa.int64())
    assert numbers([True, False, None]) == numbers([1, 0, None], pa.int64())


def test_equal_floats_have_one_bucket() -> None:
    assert len(set(numbers([0.0, -0.0], pa.float64()) + numbers([-0.0], pa.float32()))) == 1
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    nans = pa.array(np.append(odd, np.nan))
    assert len(set(numbers(nans) + numbers(nans.cast(pa.float32())))) == 1
    assert numbers([1.5, 0.25, None], pa.float32()) == numbers([1.5, 0.25, None], pa.float64())


def test_a_decimal_is_its_unscaled_number() -> None:
    values = [Decimal("12.34"), None, Decimal("-0.01"), Decimal("12345678901234567890123.45")]
    whole = [None if v is None else int(v.scaleb(2)) for v in values]
    expected = [
        (slow(None) if v is None else word(word(v & MASK) + (v >> 64 & MASK) & MASK)) % MANY for v in whole
    ]
    array = pa.array(values, pa.decimal128(30, 2))
    assert numbers(array) == expected
    assert numbers(array.slice(1, 2)) == expected[1:3]


def test_a_time_is_the_same_in_every_unit_and_zone() -> None:
    values = [datetime(2024, 2, 29, 1, 2, 3), None, datetime(1901, 1, 1)]
    expected = numbers(values, pa.timestamp("us"))
    for unit in ("s", "ms", "ns"):
        assert numbers(values, pa.timestamp(unit)) == expected
    assert numbers(pa.array(values, pa.timestamp("us")).cast(pa.timestamp("us", "Europe/Berlin"))) == expected
    assert numbers([date(1970, 1, 3), None], pa.date32()) == numbers([2, None], pa.int64())


def test_null_is_one_value_of_all_types() -> None:
    kinds = (
        pa.int64(),
        pa.string(),
        pa.bool_(),
        pa.float64(),
        pa.decimal128(5, 1),
        pa.date32(),
        pa.timestamp("us"),
    )
    assert len({numbers([None], kind)[0] for kind in kinds}) == 1
    assert numbers([None], pa.string()) != numbers([""], pa.string())
    assert numbers([None], pa.int64()) != numbers([0], pa.int64())
    array = pa.array([1, None, 3, None, 5, None] * 40_000)
    assert numbers(array.slice(70_001, 100_000)) == numbers(array)[70_001:170_001]


def test_rows_do_not_depend_on_how_they_are_cut() -> None:
    columns = [
        pa.array(range(100_000)),
        pa.array([f"k{n % 977}" if n % 11 else None for n in range(100_000)]),
    ]
    whole = bucket_numbers(columns, 300)
    cut = [bucket_numbers([c.slice(at, 9_999) for c in columns], 300) for at in range(0, 100_000, 9_999)]
    assert np.array_equal(whole, np.concatenate(cut))
    assert whole.dtype == np.int32 and whole.min() >= 0 and whole.max() < 300


def test_the_order_of_columns_counts() -> None:
    one, other = pa.array(["a", "b"]), pa.array(["b", "a"])
    there, back = bucket_numbers([one, other], MANY), bucket_numbers([other, one], MANY)
    assert there[0] != there[1] and there[0] == back[1]


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.string(), pa.decimal128(10, 2), pa.bool_(), pa.binary_view()], ids=str
)
def test_no_rows_and_only_nulls(kind: pa.DataType) -> None:
    assert numbers([], kind) == []
    assert numbers(pa.array([None, None], kind).slice(2)) == []
    assert len(set(numbers(pa.nulls(5, kind)))) == 1


def evenness(buckets: np.ndarray[Any, Any], count: int) -> float:
    """Chi-square for each degree of freedom: about 1 for numbers that are there by chance."""
    rows, expected = np.bincount(buckets, minlength=count), len(buckets) / count
    return float(((rows - expected) ** 2 / expected).sum() / (count - 1))


N = 300_000
KEYS: dict[str, pa.Array] = {
    "sequence": pa.array(np.arange(N)),
    "multiples of 1024": pa.array(np.arange(N) * 1024),
    "high bits": pa.array(np.arange(N) << 40),
    "short texts": pa.array([f"a{n}" for n in range(N)]),
    "texts of one length": pa.array([f"user-{n:07d}" for n in range(N)]),
    "long texts": pa.array([f"https://example.com/some/path/that/is/long/{n}/index.html" for n in range(N)]),
    "decimals": pa.array(np.arange(N)).cast(pa.decimal128(38, 2)),
    "floats": pa.array(np.arange(N) * 0.5),
    "hours": pa.array(np.arange(N) * 3_600_000_000).cast(pa.timestamp("us")),
}


@pytest.mark.parametrize("buckets", [1024, 1000, 37])
@pytest.mark.parametrize("name", KEYS)
def test_keys_are_spread_evenly(name: str, buckets: int) -> None:
    # By chance alone, one in a thousand is above 1.9 with 37 buckets, and above 1.15 with a thousand.
    assert 0.4 < evenness(bucket_numbers([KEYS[name]], buckets), buckets) < (1.9 if buckets < 100 else 1.15)


def test_pairs_of_keys_are_spread_evenly() -> None:
    side = np.arange(550)
    left, right = np.repeat(side, 550), np.tile(side, 550)
    for columns in ((left, right), (right, left), (left, left + right)):
        keys = [pa.array(column) for column in columns]
        assert evenness(bucket_numbers(keys, 1024), 1024) < 1.2
    # Equal columns do not cancel each other.
    assert len(set(bucket_numbers([pa.array(side), pa.array(side)], MANY).tolist())) > 548


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.null(),
        pa.float16(),
        pa.decimal256(50, 2),
        pa.time64("us"),
    ],
    ids=str,
)
def test_what_cannot_be_a_key_is_named(kind: pa.DataType) -> None:
    with pytest.raises(UsageError) as error:
        bucket_numbers([pa.nulls(1, kind)], 4)
    assert str(kind) in error.value.what
    with pytest.raises(UsageError, match="the column 'there'"):
        check_key(kind, "there")


def test_numbers_of_buckets_have_bounds() -> None:
    assert numbers([1, 2, None], buckets=1) == [0, 0, 0]
    for wrong in (0, -1, MOST_BUCKETS + 1):
        with pytest.raises(UsageError, match="buckets"):
            numbers([1], buckets=wrong)
    with pytest.raises(UsageError, match="at least one column"):
        bucket_numbers([], 4)
