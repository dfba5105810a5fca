"""Which queue a document goes to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DefinitionError
from penstock.journals.shuffle.queues.keys import clock_queues, key_queues
from penstock.sources.journals import JournalSource, check_key, parse_pointer
from penstock.types.tables import Precision, Table, derived

MANY = 1 << 20


class Customers(Table):
    id: int
    region: str | None


class Orders(Table):
    id: int
    customer: Customers
    lines: list[int]
    at: datetime
    total: Annotated[Decimal, Precision(18, 4)]
    name: str
    double: int = derived()


def queues(values: Sequence[Any], kind: pa.DataType, count: int = MANY) -> list[int]:
    batch = pa.RecordBatch.from_pydict({"k": pa.array(values, kind)})
    return key_queues(batch, ["/k"], count).tolist()  # type: ignore[no-any-return]


VALUES: list[tuple[list[Any], pa.DataType]] = [
    (["", "a", "b", "ab", "ba", "ä€😀", "\x00", "\x00\x00", "a" * 5000, None], pa.string()),
    ([b"", b"\x00", b"\xff", b"\xff\x00", b"\n", None], pa.binary()),
    ([0, 1, -1, 2**63 - 1, -(2**63), None], pa.int64()),
    ([0.0, 1.5, -1.5, 1e300, float("inf"), float("nan"), None], pa.float64()),
    ([True, False, None], pa.bool_()),
    (
        [Decimal("0.00"), Decimal("1.25"), Decimal("-1.25"), Decimal("99999999.99"), None],
        pa.decimal128(10, 2),
    ),
    ([date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), None], pa.date32()),
    (
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC), None],
        pa.timestamp("us", "UTC"),
    ),
]


@pytest.mark.parametrize(
    ("values", "kind"), VALUES, ids=lambda given: str(given) if isinstance(given, pa.DataType) else ""
)
def test_equal_keys_meet_in_one_queue_however_rows_are_cut(values: list[Any], kind: pa.DataType) -> None:
    dice = random.Random(1)
    rows = [dice.choice(values) for _ in range(200)]
    batch = pa.RecordBatch.from_pydict({"k": pa.array(rows, kind)})
    whole = key_queues(batch, ["/k"], MANY).tolist()
    cuts = [0, *sorted(dice.sample(range(200), 9)), 200]
    pieces = [batch.slice(a, b - a) for a, b in pairwise(cuts)]
    assert [queue for piece in pieces for queue in key_queues(piece, ["/k"], MANY).tolist()] == whole
    assert len(set(whole)) == len({repr(row) for row in rows}), "different values fell together"
    by_value = {repr(row): queue for row, queue in zip(rows, whole, strict=True)}
    assert [by_value[repr(row)] for row in rows] == whole


def test_a_dictionary_does_not_matter() -> None:
    texts = pa.array(["a", None, "b", "a", ""])
    plain = pa.RecordBatch.from_pydict({"k": texts})
    encoded = pa.RecordBatch.from_pydict({"k": texts.dictionary_encode()})
    for begin in range(5):
        want = key_queues(plain.slice(begin), ["/k"], MANY)
        assert key_queues(encoded.slice(begin), ["/k"], MANY).tolist() == want.tolist()


def test_both_zeros_are_one_key() -> None:
    assert len(set(queues([0.0, -0.0], pa.float64()))) == 1


def test_all_that_is_no_number_is_one_key() -> None:
    other = float(np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0])
    assert len(set(queues([float("nan"), other], pa.float64()))) == 1


def test_null_is_another_key_than_nothing() -> None:
    assert len(set(queues(["", None, "null"], pa.string()))) == 3
    assert len(set(queues([0, None], pa.int64()))) == 2


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.integers(0, 29))
def test_texts_of_any_bytes_depend_on_nothing_but_themselves(texts: list[bytes], begin: int) -> None:
    column = pa.array([b"before", *texts], pa.binary()).slice(1)
    alone = [queues([text], pa.binary())[0] for text in texts]
    batch = pa.RecordBatch.from_pydict({"k": column})
    assert key_queues(batch, ["/k"], MANY).tolist() == alone
    assert key_queues(batch.slice(begin), ["/k"], MANY).tolist() == alone[begin:]


def test_very_long_texts_are_hashed_among_short_ones() -> None:
    piece = 1 << 20
    texts = [b"x" * size for size in (piece - 1, piece, piece + 1, 3 * piece + 7, 0, 5)]
    alone = [queues([text], pa.binary())[0] for text in texts]
    assert queues(texts, pa.binary()) == alone
    assert len(set(alone)) == len(texts)
    assert queues([b"x" * 3 * piece + b"y"], pa.binary()) != queues([b"x" * 3 * piece + b"z"], pa.binary())


def test_no_rows_go_to_no_queue() -> None:
    for _, kind in VALUES:
        assert queues([], kind) == []
    assert clock_queues(np.zeros(0, np.uint64), 3).tolist() == []


@pytest.mark.parametrize(
    "column",
    [
        pa.array([f"customer-{n}" for n in range(100_000)]),
        pa.array(range(100_000)),
        pa.array([n * 4096 for n in range(100_000)]),
        pa.array([n / 8 for n in range(100_000)]),
        pa.array([Decimal(n) / 100 for n in range(100_000)], pa.decimal128(12, 2)),
    ],
    ids=["texts", "numbers", "multiples", "floats", "decimals"],
)
@pytest.mark.parametrize("count", [3, 16])
def test_keys_are_spread_evenly(column: pa.Array, count: int) -> None:
    found = key_queues(pa.RecordBatch.from_pydict({"k": column}), ["/k"], count)
    assert_even(found, count)


def test_clocks_are_spread_evenly() -> None:
    begin = np.uint64(0x1EF0_0000_0000_0000)
    for step in (1, 16, 160, 160_000_000):
        assert_even(clock_queues(begin + np.arange(100_000, dtype=np.uint64) * np.uint64(step), 4), 4)


def assert_even(found: Any, count: int) -> None:
    sizes = np.bincount(found.astype(np.int64), minlength=count)
    assert len(sizes) == count
    assert sizes.min() > 0.95 * 100_000 / count
    assert sizes.max() < 1.05 * 100_000 / count


PINNED = {
    "texts": [0, 697717, 487174, 959831, 926218],
    "numbers": [0, 502592, 311293, 470764, 926218],
    "floats": [0, 988867, 926218],
    "booleans": [502592, 0],
    "decimals": [361600, 431018],
    "dates": [487121],
    "times": [205042],
    "two": [366325, 327808],
    "clocks": [123917, 1001282],
}


def test_the_hash_never_changes() -> None:
    """Where a key was yesterday, it is tomorrow."""
    assert queues(["", "a", "customer-1", "ä€😀", None], pa.string()) == PINNED["texts"]
    assert queues([0, 1, -1, 2**63 - 1, None], pa.int64()) == PINNED["numbers"]
    assert queues([0.0, 1.5, None], pa.float64()) == PINNED["floats"]
    assert queues([True, False], pa.bool_()) == PINNED["booleans"]
    assert queues([Decimal("1.25"), Decimal("-3.00")], pa.decimal128(10, 2)) == PINNED["decimals"]
    assert queues([date(2024, 2, 29)], pa.date32()) == PINNED["dates"]
    assert queues([datetime(2024, 2, 29, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")) == PINNED["times"]
    batch = pa.RecordBatch.from_pydict({"a": ["x", "y"], "b": [1, 2]})
    assert key_queues(batch, ["/a", "/b"], MANY).tolist() == PINNED["two"]
    assert clock_queues(np.array([1 << 60, (1 << 60) + 16], np.uint64), MANY).tolist() == PINNED["clocks"]


def test_the_order_of_the_members_of_a_key_counts() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x", "y"], "b": ["y", "x"]})
    one, other = key_queues(batch, ["/a", "/b"], MANY).tolist()
    assert one != other
    assert key_queues(batch, ["/b", "/a"], MANY).tolist() == [other, one]


def test_a_pointer_leads_into_nested_documents() -> None:
    kind = pa.struct([("id", pa.int64()), ("a/b", pa.struct([("~", pa.string())]))])
    customers = pa.array([{"id": 5, "a/b": {"~": "x"}}, None, {"id": None, "a/b": None}, {"id": 5}], kind)
    batch = pa.RecordBatch.from_pydict({"customer": customers})
    found = key_queues(batch, ["/customer/id"], MANY).tolist()
    five, null = queues([5, None], pa.int64())
    assert found == [five, null, null, five]
    assert key_queues(batch.slice(1), ["/customer/id"], MANY).tolist() == [null, null, five]
    text, none = queues(["x", None], pa.string())
    assert key_queues(batch, ["/customer/a~1b/~0"], MANY).tolist() == [text, none, none, none]


@pytest.mark.parametrize(
    ("pointer", "names"),
    [
        ("/id", ("id",)),
        ("/customer/id", ("customer", "id")),
        ("/a~1b", ("a/b",)),
        ("/a~0b", ("a~b",)),
        ("/~01", ("~1",)),
        ("/", ("",)),
        ("//a", ("", "a")),
    ],
)
def test_a_pointer_is_read_as_json_pointers_are(pointer: str, names: tuple[str, ...]) -> None:
    assert parse_pointer(pointer) == names


@pytest.mark.parametrize("pointer", ["", "id", "customer/id", "#/id", "/a~", "/a~2", "/~/b"])
def test_what_is_no_pointer_is_refused(pointer: str) -> None:
    with pytest.raises(DefinitionError, match="JSON pointer"):
        parse_pointer(pointer)


@pytest.mark.parametrize(
    ("pointer", "why"),
    [
        ("/nope", "no field"),
        ("/id/x", "no field"),
        ("/customer/nope", "no field"),
        ("/lines/0", "no field"),
        ("/", "no field"),
        ("/double", "no field"),
        ("/customer", "is a struct"),
        ("/lines", "is a list"),
        ("id", "JSON pointer"),
    ],
)
def test_a_wrong_key_is_refused_when_the_source_is_made(pointer: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=why) as caught:
        JournalSource(tmp_path, Orders, key=["/id", pointer])
    assert str(tmp_path) in caught.value.what
    assert caught.value.hint


def test_a_key_may_be_any_field_that_can_be_compared(tmp_path: Path) -> None:
    for pointer in ("/id", "/customer/id", "/customer/region", "/at", "/total", "/name"):
        check_key(pointer, Orders.input_schema())
        assert JournalSource(tmp_path, Orders, key=[pointer]).key == (pointer,)


class Stamped(Table):
    id: str
    at: datetime
    number: int
    when: str
    later: str = derived()


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({"nope": "uuid"}, "no field of table stamped"),
        ({"later": "uuid"}, "no field of table stamped"),
        ({"number": "uuid"}, "number, a int64, with the uuid"),
        ({"id": "offset"}, "id, a string, with the offset"),
        ({"when": "time"}, "when, a string, with the time"),
        ({"id": "hat"}, "no document has hat"),
    ],
)
def test_meta_that_cannot_fill_its_field_is_refused(meta: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=why):
        JournalSource(tmp_path, Stamped, meta=meta)


def test_meta_that_fits_is_taken(tmp_path: Path) -> None:
    for what in ("uuid", "journal", "producer"):
        JournalSource(tmp_path, Stamped, meta={"id": what, "at": "time", "number": "offset"})


def test_other_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    class Inner(Table):
        uuid: str

    class Taken(Table):
        _meta: Inner

    wrong: list[dict[str, Any]] = [
        {"queues": 0},
        {"read_delay": float("nan")},
        {"on_gap": "ignore"},
        {"on_invalid": "drop"},
        {"schema": {"a": object()}},
        {"not_before": datetime(2024, 1, 1)},
        {"not_after": datetime(1500, 1, 1, tzinfo=UTC)},
    ]
    for options in wrong:
        with pytest.raises(DefinitionError):
            JournalSource(tmp_path, Stamped, **options)
    with pytest.raises(DefinitionError, match="_meta"):
        JournalSource(tmp_path, Taken)
