"""The order of rows is Spark's, for all types and both directions."""

from __future__ import annotations

import functools
import itertools
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch.exchange.ordering import before, decode_rows, encode_rows, in_order, sort_indices
from penstock.types.order import Order, SortColumn
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLOATS = [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.5, -1.5, 5e-324]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [0, -1, 1, 2**63 - 1, -(2**63)],
    pa.float64(): FLOATS,
    pa.float32(): [value for value in FLOATS if value != 5e-324],
    pa.string(): ["", "a", "A", "ab", "é", "z", "￿", "\U0001f600", "a\0", "aa"],
    pa.binary(): [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\x80\x00"],
    pa.bool_(): [False, True],
    pa.date32(): [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us", "UTC"): [datetime(y, 1, 1, tzinfo=UTC) for y in (1900, 1970, 2026)],
    pa.decimal128(20, 2): [Decimal("-1.50"), Decimal(0), Decimal("1.50"), Decimal("123456789012345678.99")],
}
KINDS = list(VALUES)
ROW = "row"


def weight(value: Any) -> tuple[int, Any]:
    """Where a value stands among those of its type, as Spark documents it."""
    if value is None:
        return 0, 0
    if isinstance(value, float) and math.isnan(value):
        return 2, 0
    return 1, value.encode() if isinstance(value, str) else value


def compared(one: dict[str, Any], other: dict[str, Any], order: Order) -> int:
    for each in order:
        a, b = weight(one[each.name]), weight(other[each.name])
        if a != b:
            return (1 if a > b else -1) * (-1 if each.descending else 1)
    return 0


@st.composite
def batches(draw: st.DrawFn, least: int = 0) -> tuple[pa.RecordBatch, Order]:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    count = draw(st.integers(least, 30))
    columns = {
        f"c{n}": pa.array(
            draw(st.lists(st.none() | st.sampled_from(VALUES[k]), min_size=count, max_size=count)), k
        )
        for n, k in enumerate(kinds)
    }
    order = tuple(SortColumn(name, draw(st.booleans())) for name in columns)
    return pa.RecordBatch.from_pydict({**columns, ROW: pa.array(range(count), pa.int64())}), order


@given(batches())
def test_sorted_as_a_plain_comparison_of_rows_sorts(found: tuple[pa.RecordBatch, Order]) -> None:
    rows, order = found

    def by_order(one: dict[str, Any], other: dict[str, Any]) -> int:
        return compared(one, other, order)

    wanted = [row[ROW] for row in sorted(rows.to_pylist(), key=functools.cmp_to_key(by_order))]
    indices = sort_indices(rows, order)
    assert indices.to_pylist() == wanted
    assert in_order(rows.take(indices), order)


@given(batches(least=1))
def test_rows_before_another(found: tuple[pa.RecordBatch, Order]) -> None:
    rows, order = found
    plain = rows.to_pylist()
    for n, bound in enumerate(plain):
        wanted = [compared(row, bound, order) < 0 for row in plain]
        assert before(rows, order, rows.slice(n, 1)).tolist() == wanted
    steps = itertools.pairwise(plain)
    assert in_order(rows, order) == all(compared(one, other, order) <= 0 for one, other in steps)


@given(batches())
def test_rows_travel_as_text(found: tuple[pa.RecordBatch, Order]) -> None:
    rows, _ = found
    assert str(decode_rows(encode_rows(rows)).to_pylist()) == str(rows.to_pylist())


@pytest.mark.parametrize("text", ["", "é", "AAAA", encode_rows(pa.RecordBatch.from_pydict({}))[:-8]])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_rows(text)


def test_sorted_as_spark_sorts(spark: SparkSession) -> None:
    """Each type in both directions, with ties that a second column decides."""
    from pyspark.sql import functions as F

    schema = pa.schema([*((f"c{n}", kind) for n, kind in enumerate(KINDS)), (ROW, pa.int64())])
    most = 2 * max(len(values) for values in VALUES.values())
    every = [[*values, None] for values in VALUES.values()]
    plain = [{f"c{n}": v[row % len(v)] for n, v in enumerate(every)} | {ROW: row} for row in range(most)]
    rows = pa.RecordBatch.from_pylist(plain, schema=schema)
    frame = spark.createDataFrame(plain, spark_schema(schema)).repartition(2).cache()
    for n in range(len(KINDS)):
        for descending in (False, True):
            order = (SortColumn(f"c{n}", descending), SortColumn(ROW, not descending))
            columns = [F.desc(each.name) if each.descending else F.asc(each.name) for each in order]
            wanted = [row[ROW] for row in frame.orderBy(*columns).select(ROW).collect()]
            assert rows.take(sort_indices(rows, order)).column(ROW).to_pylist() == wanted, order
    frame.unpersist()
