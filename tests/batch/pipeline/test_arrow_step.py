"""What an Arrow transform may see and give back, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.batch.pipeline.arrow_step import ArrowStep
from penstock.batch.pipeline.transforms import Retry
from penstock.errors import (
    NullInField,
    StorageFull,
    TerminalError,
    TransformFailed,
    TransientError,
    TypeMismatch,
    UndeclaredRead,
    UndeclaredWrite,
    UnknownField,
)
from penstock.types.tables import Table, derived

NAN = float("nan")
NOTHING: dict[str, int] = {}


class Trades(Table):
    trade_id: int
    symbol: str
    price: float
    size: int
    tags: list[float]
    notional: float = derived()


class Legs(Table):
    trade_id: int
    side: str | None


def batch(rows: int = 4) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "trade_id": list(range(rows)),
            "symbol": [f"S{n}" for n in range(rows)],
            "price": [1.5 * n for n in range(rows)],
            "size": [10] * rows,
            "tags": [[float(n)] * n for n in range(rows)],
        },
        schema=Trades.input_schema(),
    )


def step(
    function: Callable[..., Any],
    reads: str = "price size",
    writes: str = "notional",
    *,
    drops: bool = False,
    creates: type[Table] | None = None,
    retry: Retry = Retry(first=0.0),  # noqa: B008
    resources: dict[str, Any] | None = None,
) -> ArrowStep:
    written = creates.arrow_schema() if creates else Trades.arrow_schema(writes.split())
    return ArrowStep(
        name="priced",
        location="user.py:7",
        function=function,
        table="trades",
        target=creates.__table_name__ if creates else "trades",
        fields=tuple(Trades.__fields__),
        reads=tuple(reads.split()),
        writes=tuple(written.names),
        drops=drops,
        created=written if creates else None,
        written=written,
        retry=retry,
        resources={name: SimpleNamespace(value=value) for name, value in (resources or {}).items()},
    )


def run(made: ArrowStep, *batches: pa.RecordBatch) -> pa.Table:
    done = list(made(iter(batches or [batch()])))
    return pa.Table.from_batches(done) if done else None


def with_notional(trades: pa.RecordBatch, values: Any = None) -> pa.RecordBatch:
    return trades.append_column("notional", pc.multiply(trades["price"], pc.cast(trades["size"], "double")))


def test_it_sees_what_it_reads_and_the_rest_is_kept() -> None:
    seen = []

    def function(trades: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(trades.schema.names)
        return with_notional(trades)

    done = run(step(function))
    assert seen == [["price", "size"]]
    assert done.schema == Trades.arrow_schema()
    assert done["notional"].to_pylist() == [0.0, 15.0, 30.0, 45.0]
    assert done.drop_columns("notional").equals(pa.Table.from_batches([batch()]))


def test_only_the_written_fields_need_to_come_back() -> None:
    done = run(step(lambda trades: pa.record_batch({"notional": pc.negate(trades["price"])})))
    assert done["notional"].to_pylist() == [-0.0, -1.5, -3.0, -4.5]


def test_without_reads_the_number_of_rows_is_known() -> None:
    done = run(step(lambda trades: pa.record_batch({"notional": [1.0] * trades.num_rows}), reads=""))
    assert done["notional"].to_pylist() == [1.0] * 4


@pytest.mark.parametrize(
    "function",
    [
        lambda trades: trades["symbol"],
        lambda trades: trades.column("symbol"),
        lambda trades: trades.select(["symbol"]),
        lambda trades: trades.schema.field("symbol"),
        lambda trades: trades.filter(pc.field("symbol") == "A"),
        lambda trades: trades.sort_by("symbol"),
        lambda trades: trades.drop_columns(["symbol"]),
        lambda trades: [row["symbol"] for row in trades.to_pylist()],
        lambda trades: trades.to_pandas()["symbol"],
        lambda trades: pa.Table.from_batches([trades]).group_by("symbol").aggregate([]),
    ],
)
def test_an_undeclared_read(function: Callable[..., Any]) -> None:
    said = r"^user.py:7: transform priced reads trades.symbol, which .*\nnext: add symbol to reads"
    with pytest.raises(UndeclaredRead, match=said):
        run(step(function))


def test_other_missing_keys_are_the_functions_own() -> None:
    with pytest.raises(TransformFailed, match="raised KeyError: 'my symbols'"):
        run(step(lambda trades: NOTHING["my symbols"]))
    with pytest.raises(TransformFailed, match="raised KeyError: 'price'"):
        run(step(lambda trades: NOTHING["price"]))


def replaced(trades: pa.RecordBatch, name: str, values: Any) -> pa.RecordBatch:
    return trades.set_column(trades.schema.get_field_index(name), name, values)


def test_a_changed_field_that_was_only_read() -> None:
    def function(trades: pa.RecordBatch) -> pa.RecordBatch:
        return replaced(with_notional(trades), "price", pc.add(trades["price"], 1))

    with pytest.raises(UndeclaredWrite, match=r"changes trades\.price, which it only declares to read"):
        run(step(function))
    done = run(step(function, writes="notional price"))
    assert done["price"].to_pylist() == [1.0, 2.5, 4.0, 5.5]


def test_nan_is_not_a_change() -> None:
    data = replaced(batch(), "price", pa.array([NAN, 1.0, NAN, 2.0]))
    data = replaced(data, "tags", pa.array([[NAN], [], [1.0, NAN], [2.0]], data.schema.field("tags").type))

    def copied(trades: pa.RecordBatch) -> pa.RecordBatch:
        back = pa.RecordBatch.from_pylist(trades.to_pylist(), schema=trades.schema)
        return back.append_column("notional", back["price"])

    done = run(step(copied, reads="price tags"), data)
    assert done.num_rows == 4

    def moved(trades: pa.RecordBatch) -> pa.RecordBatch:
        return replaced(copied(trades), "tags", pa.array([[], [NAN], [1.0, NAN], [2.0]], trades["tags"].type))

    with pytest.raises(UndeclaredWrite, match=r"changes trades\.tags"):
        run(step(moved, reads="price tags"), data)


def test_another_spelling_of_the_same_values_is_not_a_change() -> None:
    def function(trades: pa.RecordBatch) -> pa.RecordBatch:
        trades = replaced(trades, "symbol", trades["symbol"].dictionary_encode())
        trades = replaced(trades, "size", trades["size"].cast("int16"))
        return with_notional(trades)

    assert run(step(function, reads="price size symbol")).schema == Trades.arrow_schema()


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (lambda trades: with_notional(trades).slice(1), UndeclaredWrite, "returned 3 rows for 4"),
        (lambda trades: None, TransformFailed, "returned NoneType, not a RecordBatch"),
        (lambda trades: {"notional": []}, TransformFailed, "returned dict, not a RecordBatch"),
        (lambda trades: trades, UnknownField, "declares to write notional, but does not"),
        (
            lambda trades: with_notional(trades).append_column("extra", trades["price"]),
            UndeclaredWrite,
            "returns extra, which it does not declare in writes",
        ),
        (
            lambda trades: with_notional(trades).append_column("symbol", trades["price"]),
            UndeclaredWrite,
            "returns symbol, which it does not declare",
        ),
        (
            lambda trades: trades.append_column("notional", pa.array(["1", "2", "3", "4"])),
            TypeMismatch,
            r"priced: trades.notional is string, declared as double",
        ),
        (
            lambda trades: trades.append_column("notional", trades["size"]),
            TypeMismatch,
            r"trades.notional is int64, declared as double",
        ),
        (
            lambda trades: trades.append_column("notional", pa.array([1.0, None, None, 2.0])),
            NullInField,
            r"^user.py:7: transform priced: trades.notional is null in 2 of 4 rows",
        ),
        (
            lambda trades: trades.append_column("notional", pa.nulls(4)),
            NullInField,
            r"null in 4 of 4 rows",
        ),
    ],
)
def test_results_that_do_not_fit(function: Callable[..., Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        run(step(function))
    assert str(caught.value).startswith("user.py:7: transform priced")


def test_a_narrower_type_is_widened() -> None:
    done = run(step(lambda trades: trades.append_column("notional", trades["price"].cast("float32"))))
    assert done.schema.field("notional").type == pa.float64()


def test_nulls_inside_lists_are_found() -> None:
    def function(trades: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"tags": pa.array([[1.0], [None], [], [2.0]])})

    with pytest.raises(NullInField, match=r"trades\.tags\[\] is null in 1 of 3 rows"):
        run(step(function, reads="", writes="tags"))


def test_a_table_is_as_good_as_a_batch() -> None:
    def chunked(trades: pa.RecordBatch) -> pa.Table:
        half = trades.num_rows // 2
        return pa.Table.from_batches(
            [with_notional(trades.slice(0, half)), with_notional(trades.slice(half))]
        )

    assert run(step(chunked))["notional"].to_pylist() == [0.0, 15.0, 30.0, 45.0]

    def empty(trades: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches([trades]).filter(pc.field("price") < 0)

    assert run(step(empty, writes="", drops=True)) is None


def test_dropped_rows_take_the_other_fields_along() -> None:
    def function(trades: pa.RecordBatch) -> pa.RecordBatch:
        return with_notional(trades.filter(pc.greater(trades["price"], 1.5)))

    done = run(step(function, drops=True))
    assert done["trade_id"].to_pylist() == [2, 3]
    assert done["symbol"].to_pylist() == ["S2", "S3"]
    assert done["notional"].to_pylist() == [30.0, 45.0]
    assert done.schema == Trades.arrow_schema()


def test_rows_in_another_order_keep_together() -> None:
    done = run(step(lambda trades: with_notional(trades.sort_by([("price", "descending")])), drops=True))
    assert done["trade_id"].to_pylist() == [3, 2, 1, 0]
    assert done["price"].to_pylist() == [4.5, 3.0, 1.5, 0.0]
    assert done["notional"].to_pylist() == [45.0, 30.0, 15.0, 0.0]


def test_a_filter_alone() -> None:
    kept = step(lambda trades: trades.filter(pc.greater(trades["price"], 1.5)), "price", "", drops=True)
    assert run(kept)["trade_id"].to_pylist() == [2, 3]
    only_numbers = step(lambda trades: trades.slice(1, 2), "", "", drops=True)
    assert run(only_numbers)["trade_id"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (lambda trades: trades.drop_columns(["_row"]), TransformFailed, "lost the column _row"),
        (lambda trades: trades.take(pa.array([0, 0])), UndeclaredWrite, "returned a row twice"),
        (lambda trades: trades.take(pa.array([0, 1, 2, 3, 0])), UndeclaredWrite, "returned a row twice"),
        (
            lambda trades: trades.take(pa.array([0, None])),
            UndeclaredWrite,
            "returned a row twice, or one that",
        ),
    ],
)
def test_rows_that_are_not_accounted_for(
    function: Callable[..., Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        run(step(function, writes="", drops=True))


def test_a_created_table_may_have_any_number_of_rows() -> None:
    def explode(trades: pa.RecordBatch) -> pa.RecordBatch:
        ids = [i for i in trades["trade_id"].to_pylist() for _ in range(i)]
        return pa.record_batch({"side": pa.array([None] * len(ids), "string"), "trade_id": ids})

    done = run(step(explode, reads="trade_id", creates=Legs))
    assert done.schema == Legs.arrow_schema()
    assert done["trade_id"].to_pylist() == [1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize(
    ("made", "kind", "said"),
    [
        ({"trade_id": [1]}, UnknownField, "declares to write side, but does not"),
        ({"trade_id": [1], "side": ["B"], "x": [1]}, UndeclaredWrite, "returns x, which"),
        ({"trade_id": [None], "side": ["B"]}, NullInField, "priced: legs.trade_id is null in 1 of 1 rows"),
        (
            {"trade_id": ["1"], "side": ["B"]},
            TypeMismatch,
            "priced: legs.trade_id is string, declared as int64",
        ),
    ],
)
def test_created_tables_that_do_not_fit(made: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        run(step(lambda trades: pa.record_batch(made), reads="trade_id", creates=Legs))


def test_empty_batches_are_not_shown() -> None:
    calls = []

    def function(trades: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(trades.num_rows)
        return with_notional(trades)

    assert run(step(function), batch(0), batch(2), batch(0)).num_rows == 2
    assert calls == [2]


def test_resources_arrive_as_values() -> None:
    def function(trades: pa.RecordBatch, rates: dict[str, float]) -> pa.RecordBatch:
        return pa.record_batch({"notional": [rates["EUR"]] * trades.num_rows})

    done = run(step(function, resources={"rates": {"EUR": 1.1}}))
    assert done["notional"].to_pylist() == [1.1] * 4


def flaky(*errors: Exception) -> tuple[Callable[..., Any], list[int]]:
    left, calls = list(errors), list[int]()

    def function(trades: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(1)
        if left:
            raise left.pop(0)
        return with_notional(trades)

    return function, calls


def test_transient_errors_are_tried_again_then_fail_the_transform() -> None:
    function, calls = flaky(TransientError("busy"), ConnectionError("gone"))
    assert run(step(function)).num_rows == 4
    assert len(calls) == 3
    function, calls = flaky(*[TimeoutError("slow")] * 9)
    with pytest.raises(TransformFailed, match="transform priced raised 4 times TimeoutError: slow"):
        run(step(function))
    assert len(calls) == 4
    function, calls = flaky(*[TransientError("busy")] * 9)
    with pytest.raises(TransformFailed, match="raised 2 times TransientError: busy"):
        run(step(function, retry=Retry(times=1, first=0)))
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            ValueError("no such thing"),
            TransformFailed,
            "user.py:7: transform priced raised ValueError: no such",
        ),
        (TerminalError("never"), TerminalError, "^never$"),
        (StorageFull("full"), StorageFull, "^full$"),
    ],
)
def test_other_errors_are_not_tried_again(error: Exception, kind: type[Exception], said: str) -> None:
    function, calls = flaky(error)
    with pytest.raises(kind, match=said):
        run(step(function))
    assert len(calls) == 1


def test_the_line_that_raised_is_told_not_where_the_transform_begins() -> None:
    def helper(value: int) -> int:
        return 1 // value  # this line

    def function(trades: pa.RecordBatch) -> pa.RecordBatch:
        helper(0)
        return trades

    made = replace(step(function), location=f"{__file__}:1")
    lines = Path(__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if text.endswith("# this line"))
    with pytest.raises(TransformFailed, match=rf"test_arrow_step\.py:{line}: transform priced raised Zero"):
        run(made)

    def in_a_package(trades: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"notional": pa.array(["x"], pa.int64())})  # that line

    line = next(n for n, text in enumerate(lines, 1) if text.endswith("# that line"))
    with pytest.raises(TransformFailed, match=rf"test_arrow_step\.py:{line}: transform priced raised Arrow"):
        run(replace(made, function=in_a_package))
