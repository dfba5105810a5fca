"""Casts that lose nothing are made; everything else is refused by name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.batch.inputs import check_schema, conform
from penstock.errors import BadInput, TypeMismatch
from penstock.types.lattice import fits

US = pa.timestamp("us", "UTC")
NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    ("array", "target", "expected"),
    [
        (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
        (pa.array([1], pa.uint32()), pa.int64(), [1]),
        (pa.array([2**63 - 1], pa.uint64()), pa.int64(), [2**63 - 1]),
        (pa.array([3], pa.int64()), pa.float64(), [3.0]),
        (pa.array([3], pa.int64()), pa.decimal128(21, 2), [Decimal("3.00")]),
        (pa.array([0.5], pa.float32()), pa.float64(), [0.5]),
        (pa.array(["x", None]).dictionary_encode(), pa.string(), ["x", None]),
        (pa.array(["x"], pa.large_string()), pa.string(), ["x"]),
        (pa.array(["x"], pa.string_view()), pa.string(), ["x"]),
        (pa.array([b"x"], pa.binary(1)), pa.binary(), [b"x"]),
        (pa.array([b"x"]), pa.string(), ["x"]),
        (pa.array([NOON], pa.timestamp("ns", "UTC")), US, [NOON]),
        (pa.array([NOON], pa.timestamp("ms", "Europe/Berlin")), US, [NOON]),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("s")), US, [NOON]),
        (pa.array([date(2024, 1, 2)], pa.date64()), pa.date32(), [date(2024, 1, 2)]),
        (pa.array(["2024-01-02"]), pa.date32(), [date(2024, 1, 2)]),
        (pa.array([Decimal("1.5")], pa.decimal128(4, 1)), pa.decimal128(10, 2), [Decimal("1.50")]),
        (pa.nulls(2), pa.int64(), [None, None]),
        (pa.array([[1], None, []], pa.list_(pa.int32())), pa.list_(pa.int64()), [[1], None, []]),
        (pa.array([[1], None], pa.large_list(pa.int32())), pa.list_(pa.int64()), [[1], None]),
        (pa.array([[1, 2]], pa.list_(pa.int32(), 2)), pa.list_(pa.int64()), [[1, 2]]),
        (
            pa.array([{"b": 1, "a": 2}, None], pa.struct([("b", pa.int8()), ("a", pa.int8())])),
            pa.struct([("a", pa.int64()), ("c", pa.string())]),
            [{"a": 2, "c": None}, None],
        ),
        (
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            pa.map_(pa.string(), pa.int64()),
            [[("k", 1)]],
        ),
    ],
    ids=str,
)
def test_casts_that_lose_nothing(array: pa.Array, target: pa.DataType, expected: list[Any]) -> None:
    assert fits(array.type, target)
    schema = pa.schema([("x", target)])
    check_schema(batch(x=array).schema, schema, file="f")
    # A slice shows whether offsets are honoured.
    padded = pa.concat_arrays([array, array]).slice(len(array))
    for given in (array, padded):
        made = conform(batch(x=given), schema)
        made.validate(full=True)
        assert made.schema.equals(schema)
        assert made.column(0).to_pylist() == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.float64(), pa.int64()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.int64(), pa.decimal128(10, 2)),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.decimal128(10, 2), pa.float64()),
        (US, pa.timestamp("us")),
        (pa.bool_(), pa.int64()),
        (pa.list_(pa.string()), pa.list_(pa.int64())),
        (pa.struct([("a", pa.int64())]), pa.struct([pa.field("b", pa.int64(), nullable=False)])),
    ],
    ids=str,
)
def test_casts_that_are_refused(source: pa.DataType, target: pa.DataType) -> None:
    with pytest.raises(TypeMismatch, match=r"x is .* in the file and .* in the table"):
        check_schema(pa.schema([("x", source)]), pa.schema([("x", target)]), file="f")
    with pytest.raises(TypeMismatch, match="f, column x"):
        conform(batch(x=pa.array([None], source)), pa.schema([("x", target)]), file="f")


def test_a_value_that_does_not_fit_is_bad_input() -> None:
    values = batch(x=pa.array([2**63], pa.uint64()))
    with pytest.raises(BadInput, match="f, column x, rows 40-41: a value does not fit int64"):
        conform(values, pa.schema([("x", pa.int64())]), file="f", row=40)
    nanoseconds = batch(x=pa.array([1], pa.timestamp("ns")))
    with pytest.raises(BadInput, match="would lose data"):
        conform(nanoseconds, pa.schema([("x", US)]))


def test_missing_columns() -> None:
    given = batch(a=pa.array([1, 2]))
    made = conform(given, pa.schema([("b", pa.string()), ("a", pa.int64())]))
    assert made.to_pylist() == [{"b": None, "a": 1}, {"b": None, "a": 2}]
    with pytest.raises(BadInput, match="f has no column b"):
        conform(given, pa.schema([pa.field("b", pa.string(), nullable=False)]), file="f")


def test_a_null_where_none_may_be_is_named_with_its_row() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(BadInput, match=r"f, row 102 .counted from 0.: a is null"):
        conform(batch(a=pa.array([1, 2, None])), schema, file="f", row=100)


def test_a_null_deep_inside_is_named_with_its_row() -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    schema = pa.schema([pa.field("s", inner), pa.field("l", pa.list_(pa.field("item", inner)))])
    relaxed = pa.struct([("x", pa.int64())])
    good = batch(
        s=pa.array([None, {"x": 1}], relaxed), l=pa.array([[None, {"x": 1}], None], pa.list_(relaxed))
    )
    assert conform(good, schema).to_pylist() == good.to_pylist()
    bad = batch(s=pa.array([None, {"x": None}], relaxed), l=pa.array([[], []], pa.list_(relaxed)))
    with pytest.raises(BadInput, match=r"row 1 .counted from 0.: s\.x is null"):
        conform(bad, schema)
    bad = batch(
        s=pa.nulls(3, relaxed),
        l=pa.array([None, [None, {"x": 1}], [{"x": 2}, {"x": None}]], pa.list_(relaxed)),
    )
    with pytest.raises(BadInput, match=r"row 2 .counted from 0.: l\.item\.x is null"):
        conform(bad, schema)
