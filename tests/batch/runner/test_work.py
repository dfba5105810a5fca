"""The work on one claim: resources that its factory provides, and jobs that are tried again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from penstock.batch.pipeline.resources import Handles
from penstock.control.claims import Board
from tests.batch.runner import trades
from tests.batch.runner.conftest import Place

Trades = trades.Trades


class Noted(ps.Table, name="trades"):
    id: int
    notional: float


def _with_factory(calls: list[str]) -> ps.Pipeline:
    def load() -> float:
        calls.append("loaded")
        return 2.0

    by, plus = ps.Resource("by", load), ps.Resource("plus")

    @ps.arrow_transform(reads=[Trades.price, by, plus], writes=Trades.notional)
    def first(trades: pa.RecordBatch, by: float, plus: dict[str, float]) -> pa.RecordBatch:
        values = [price * by + plus["plus"] for price in trades["price"].to_pylist()]
        return pa.RecordBatch.from_arrays([pa.array(values, pa.float64())], names=["notional"])

    @ps.transform(reads=Trades.notional, writes=Trades.notional)
    def second(trades: DataFrame) -> DataFrame:
        return trades.withColumn("notional", F.col("notional") + 0.0)

    return ps.Pipeline("provided", inputs=Trades, outputs=Noted, transforms=[first, second])


def test_shared_resources_are_loaded_once_and_own_ones_released(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    made: list[Handles] = []
    original = Handles.__init__

    def kept(self: Handles, spark: Any) -> None:
        original(self, spark)
        made.append(self)

    monkeypatch.setattr(Handles, "__init__", kept)

    def factory(dataset: ps.Dataset, rows: ps.Range) -> ps.Dataset:
        return dataset.with_resources(plus={"plus": float(rows.begin)})

    assert place.runner(_with_factory(calls)).run(factory).ending == "complete"
    assert calls == ["loaded"]
    assert [{name for name, _ in handles._made} for handles in made] == [{"by"}]
    got = ps.Output(place.store, "provided").arrow("trades").sort_by("id").to_pylist()
    assert [r["notional"] for r in got] == [r % 50 * 2.0 + 2.0 + r // 1000 * 1000 for r in range(4000)]
    assert ps.verify(place.store, "provided").ok


@pytest.mark.parametrize(("plus", "resumed"), [(1.0, 1), (2.0, 0)])
def test_a_checkpoint_fits_only_the_resources_it_was_made_with(
    place: Place, monkeypatch: pytest.MonkeyPatch, plus: float, resumed: int
) -> None:
    # Where the factory's code stays the same, and what it finds does not.
    monkeypatch.setenv("PENSTOCK_TEST_PLUS", "1.0")

    def factory(dataset: ps.Dataset, rows: ps.Range) -> ps.Dataset:
        return dataset.with_resources(plus={"plus": float(os.environ["PENSTOCK_TEST_PLUS"])})

    pipeline = _with_factory([])
    runner = place.runner(pipeline, max_batches=1, claims=1)
    original = Board.save_checkpoint

    def save(*arguments: Any) -> None:
        original(*arguments)
        raise ps.FencedError("as good as dead")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Board, "save_checkpoint", save)
        patch.setattr(runner, "_give_slots", lambda _: None)
        runner.run(factory)
    monkeypatch.setenv("PENSTOCK_TEST_PLUS", str(plus))
    report = place.runner(pipeline).run(factory)
    assert (report.ending, report.resumed) == ("complete", resumed), report.error
    assert ps.verify(place.store, "provided").ok


@pytest.mark.parametrize(("retry", "calls"), [(ps.Retry(times=0), 1), (ps.Retry(times=2, first=0.01), 3)])
def test_a_udf_is_tried_again_as_its_transform_says(place: Place, retry: ps.Retry, calls: int) -> None:
    log = place.path / "calls"

    @ps.transform(reads=Trades.price, writes=Trades.notional, retry=retry)
    def asks(trades: DataFrame) -> DataFrame:
        @F.udf("double")
        def ask(price):  # type: ignore[no-untyped-def]
            with Path(log).open("a") as file:
                file.write("x")
            raise ConnectionError("not now")

        return trades.withColumn("notional", ask("price"))

    pipeline = ps.Pipeline("asks", inputs=Trades, outputs=Noted, transforms=[asks])
    report = place.runner(pipeline, claims=1, max_batches=1, max_failures=1, task_rows=1000).run()
    assert report.ending != "complete"
    assert log.stat().st_size == calls * len(place.seen("claimed"))


class Symbols(ps.Table):
    symbol: str
    region: str


class Placed(ps.Table):
    id: int
    region: str


def test_a_small_input_is_sent_to_all_tasks_and_not_the_partition(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark takes what a Python worker reads for a few bytes: it would collect the partition."""

    @ps.transform(reads=[Trades.id, Trades.symbol, Symbols.symbol, Symbols.region], writes=Placed)
    def placed(trades: DataFrame, symbols: DataFrame) -> DataFrame:
        made = trades.join(symbols, "symbol").select("id", "region")
        made.explain()
        return made

    rows = pa.table({"symbol": [f"S{n}" for n in range(7)], "region": [f"R{n}" for n in range(7)]})
    ps.register(None, place.store, place.storage, "symbols", rows, table_schema=Symbols.input_schema())
    made = ps.Pipeline("placed", inputs=[Trades, Symbols], outputs=Placed, transforms=[placed])
    report = place.runner(made, small_bytes=0, max_batches=1, claims=1).run()
    assert report.acked == 1
    assert "BuildRight" in capsys.readouterr().out
