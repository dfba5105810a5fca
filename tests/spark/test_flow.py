"""Flows: work that is put off, and batches that fit their schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.errors import NullInField, TypeMismatch
from penstock.spark.faults import decode
from penstock.spark.fitting import fit, unchanged
from penstock.spark.flow import Batches, Flow, Scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string()), pa.field("c", pa.float64())]
)


@dataclass(frozen=True)
class Piece:
    number: int
    columns: tuple[str, ...]

    @property
    def rows(self) -> int:
        return 3

    def batches(self) -> Batches:
        first = 3 * self.number
        data = {"a": [first, first + 1, first + 2], "b": ["x", None, "z"], "c": [0.5] * 3}
        yield pa.RecordBatch.from_pydict(data, schema=SCHEMA).select(list(self.columns))


def scan(pieces: int = 2, asked: list[Sequence[str]] | None = None) -> Flow:
    def cut(columns: Sequence[str]) -> Sequence[Piece]:
        if asked is not None:
            asked.append(tuple(columns))
        return [Piece(n, tuple(columns)) for n in range(pieces)]

    return Flow.scan("t", Scan(SCHEMA, cut, kept="here"))


@dataclass(frozen=True)
class Add:
    amount: int

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield batch.set_column(0, SCHEMA.field("a"), pa.compute.add(batch["a"], self.amount))


def test_a_scan_reads_only_the_selected_columns() -> None:
    asked: list[Sequence[str]] = []
    flow = scan(asked=asked).select(["c", "a"])
    assert flow.schema.names == ["a", "c"]
    assert isinstance(flow.origin, Scan)
    flow.origin.splits()
    assert asked == [("a", "c")]


def test_a_flow_knows_where_its_rows_are(spark: SparkSession) -> None:
    flow = scan()
    stepped = flow.then(Add(1), SCHEMA)
    frame = Flow("t", spark.range(1).toDF("a"), pa.schema([("a", pa.int64())]))
    assert [f.in_jvm for f in (flow, stepped, frame)] == [False, False, True]
    assert [f.kept for f in (flow, stepped, frame)] == ["here", None, None]
    assert frame.select(["a"]) is frame
    assert not frame.then(Add(1), SCHEMA).in_jvm


def test_steps_run_in_order_in_one_task(spark: SparkSession) -> None:
    flow = scan(3).then(Add(10), SCHEMA).select(["a", "b"]).then(Add(100), SCHEMA.remove(2))
    frame = flow.frame(spark)
    assert frame.columns == ["a", "b"]
    got = frame.orderBy("a").collect()
    assert [r["a"] for r in got] == list(range(110, 119))
    assert [r["b"] for r in got] == ["x", None, "z"] * 3


def test_nothing_to_scan(spark: SparkSession) -> None:
    frame = scan(0).then(Add(1), SCHEMA).frame(spark)
    assert frame.collect() == []
    assert frame.columns == ["a", "b", "c"]


def test_steps_on_a_dataframe(spark: SparkSession) -> None:
    source = spark.range(4).selectExpr("id AS a", "cast(NULL AS string) AS b", "1D AS c")
    flow = Flow("t", source, SCHEMA).then(Add(1), SCHEMA)
    assert sorted(r["a"] for r in flow.frame(spark).collect()) == [1, 2, 3, 4]


def test_a_null_that_is_not_declared_is_named(spark: SparkSession) -> None:
    source = spark.range(4).selectExpr("nullif(id, 2) AS a", "'x' AS b", "1D AS c")
    with pytest.raises(Exception, match="null in 1 of") as caught:
        Flow("t", source, SCHEMA).then(Add(0), SCHEMA).frame(spark).collect()
    error = decode(caught.value)
    assert isinstance(error, NullInField)
    assert "declare a as nullable" in str(error)


def batch_of(values: Any, kind: Any = None) -> pa.RecordBatch:
    return pa.record_batch({"x": values if isinstance(values, pa.Array) else pa.array(values, kind)})


NOT_NULL = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (batch_of([1, 2], "int32"), pa.int64()),
        (batch_of([1, 2], "uint8"), pa.int64()),
        (batch_of([1.5], "float32"), pa.float64()),
        (batch_of(["a"], pa.large_string()), pa.string()),
        (batch_of(["a"], pa.string_view()), pa.string()),
        (batch_of(pa.array(["a", "b"]).dictionary_encode()), pa.string()),
        (batch_of([b"a"], pa.large_binary()), pa.binary()),
        (batch_of([None, None]), pa.string()),
        (batch_of([1], pa.timestamp("ms", "UTC")), pa.timestamp("us", "UTC")),
        (batch_of([1], pa.timestamp("us", "Europe/Paris")), pa.timestamp("us", "UTC")),
        (batch_of([0], pa.date64()), pa.date32()),
        (
            batch_of([[1], []], pa.large_list(pa.int16())),
            pa.list_(pa.field("element", pa.int64(), nullable=False)),
        ),
        (batch_of([{"a": 1, "b": None}]), NOT_NULL),
        (batch_of([None, {"a": 1, "b": "x"}], NOT_NULL), NOT_NULL),
    ],
)
def test_casts_within_a_kind(have: pa.RecordBatch, want: pa.DataType) -> None:
    got = fit("t", have, pa.schema([("x", want)]))
    assert got.schema.field("x").type == want
    assert got["x"].to_pylist() == have["x"].to_pylist() or pa.types.is_date(want)


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (batch_of(["1"]), pa.int64()),
        (batch_of([1]), pa.string()),
        (batch_of([1]), pa.bool_()),
        (batch_of([1.0]), pa.int64()),
        (batch_of([1]), pa.float64()),
        (batch_of([1]), pa.decimal128(18, 2)),
        (batch_of(["a"]), pa.binary()),
        (batch_of([1], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (batch_of([2**63], "uint64"), pa.int64()),
        (batch_of([[1]]), pa.int64()),
        (batch_of([["1"]]), pa.list_(pa.int64())),
        (batch_of([{"a": 1}]), NOT_NULL),
        (batch_of([{"a": "1", "b": "x"}]), NOT_NULL),
    ],
)
def test_casts_between_kinds_are_refused(have: pa.RecordBatch, want: pa.DataType) -> None:
    with pytest.raises(TypeMismatch, match=r"^t\.x is .*, declared as "):
        fit("t", have, pa.schema([("x", want)]))


@pytest.mark.parametrize(
    ("have", "field", "where"),
    [
        (batch_of([1, None]), pa.field("x", pa.int64(), nullable=False), r"t\.x is null in 1 of 2"),
        (
            batch_of([[1, None], None, [None]]),
            pa.field("x", pa.list_(pa.field("element", pa.int64(), nullable=False))),
            r"t\.x\[\] is null in 2 of 3",
        ),
        (
            batch_of([[{"a": None, "b": "x"}]], pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
            pa.field("x", pa.list_(NOT_NULL)),
            r"t\.x",
        ),
    ],
)
def test_nulls_at_any_depth(have: pa.RecordBatch, field: pa.Field, where: str) -> None:
    with pytest.raises((NullInField, TypeMismatch), match=where):
        fit("t", have, pa.schema([field]))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (pa.array([1, None]), pa.array([1, None]), True),
        (pa.array([1, None]), pa.array([1, 0]), False),
        (pa.array([1.0, float("nan"), None]), pa.array([1.0, float("nan"), None]), True),
        (pa.array([1.0, float("nan")]), pa.array([float("nan"), 1.0]), False),
        (pa.array([1, 2]), pa.array([1, 2], "int8"), True),
        (pa.array([1, 2]), pa.array(["1", "2"]), False),
        (pa.array([{"a": float("nan")}]), pa.array([{"a": float("nan")}]), True),
        (pa.array([{"a": float("nan")}]), pa.array([None, {"a": 1.0}])[1:], False),
        (pa.array([[float("nan")], [1.0]]), pa.array([[float("nan"), 1.0], []]), False),
        (pa.array([0.5, float("nan")])[1:], pa.array([1.5, float("nan")])[1:], True),
        (pa.array([2**40]), pa.array([0], "int8"), False),
    ],
)
def test_unchanged(one: pa.Array, other: pa.Array, same: bool) -> None:
    assert unchanged(one, other) is same
