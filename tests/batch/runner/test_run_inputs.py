"""What a run does with its inputs: files cut anywhere, changed, or replaced by others."""

from __future__ import annotations

import os
import threading

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame  # noqa: TC002 - read by the pipeline

import penstock as ps
from penstock.errors import InputChanged, RunMismatch
from tests.batch.runner import trades
from tests.batch.runner.conftest import Place, until


def test_a_changed_input_halts_before_anything_is_lost(place: Place) -> None:
    place.run(max_batches=1)
    stat = place.input.stat()
    place.input.write_bytes(place.input.read_bytes() + b"x")
    with pytest.raises(InputChanged, match=r"trades\.parquet"):
        place.run()
    place.input.write_bytes(place.input.read_bytes()[:-1])
    os.utime(place.input, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert place.run().ending == "complete"
    place.assert_exact()


def test_an_input_that_changes_while_it_is_read_halts_the_run(place: Place) -> None:
    place.block(0)
    runner = place.runner(claims=1)
    reports: list[ps.Report] = []
    thread = threading.Thread(target=lambda: reports.append(runner.run()))
    thread.start()
    until(lambda: place.reached(0), "partition 0 is at work")
    place.input.write_bytes(place.input.read_bytes() + b"x")
    place.unblock(0)
    thread.join(60)
    assert reports[0].ending == "halted"
    assert reports[0].error is not None
    assert reports[0].error.code == "input-changed"
    assert not any(view.attempts for view in place.board.partitions())


def test_another_input_under_the_same_run_is_refused(place: Place) -> None:
    place.run(max_batches=1)
    other = place.path / "other.parquet"
    trades.make_input(other, rows=2000)
    place.register(source=other, rows=500, replace=True)
    with pytest.raises(RunMismatch, match="another input trades"):
        place.run()
    assert place.run(run="second").ending == "complete"


@pytest.mark.parametrize("sizes", [(1000, 1000, 1000, 1000), (700, 1300, 10, 1990), (4000,)])
def test_a_folder_of_files_cut_on_and_off_their_bounds(place: Place, sizes: tuple[int, ...]) -> None:
    folder = place.path / "folder"
    folder.mkdir()
    begin = 0
    for number, size in enumerate(sizes):
        pq.write_table(place.table.slice(begin, size), folder / f"{number}.parquet")
        begin += size
    place.register("folder", folder, rows=2000)
    report = place.run(inputs={"trades": "folder"})
    assert (report.ending, report.acked) == ("complete", 2)
    place.assert_exact()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_an_input_without_rows_is_an_empty_output_with_the_right_columns(place: Place, form: str) -> None:
    empty = place.path / "empty.parquet"
    pq.write_table(place.table.slice(0, 0), empty)
    place.register("none", empty)
    report = place.run(run="empty", inputs={"trades": "none"}, output_format=form)
    assert (report.ending, report.acked) == ("complete", 0)
    output = ps.Output(place.store, "empty")
    assert output.schema("trades").equals(trades.Trades.arrow_schema())
    assert output.frame(place.spark, "positions").schema == trades.Positions.spark_schema()
    assert output.frame(place.spark, "positions").collect() == []
    assert ps.verify(place.store, "empty").ok
    exported = output.export(str(place.path / "exported"))
    assert (exported.files, exported.rows) == (2, 0)
    if form == "parquet":
        read = place.spark.read.parquet(str(place.path / "exported/positions"))
        assert (read.count(), read.columns) == (0, ["symbol", "trades", "notional"])


def test_a_further_input_may_have_no_rows(place: Place) -> None:
    class Rates(ps.Table):
        symbol: str
        rate: float

    class Rated(ps.Table):
        id: int
        rate: float | None

    @ps.transform(reads=[trades.Trades.id, trades.Trades.symbol, Rates.symbol, Rates.rate], writes=Rated)
    def rated(trades: DataFrame, rates: DataFrame) -> DataFrame:
        return trades.join(rates, "symbol", "left").select("id", "rate")

    pipeline = ps.Pipeline("rated", inputs=[trades.Trades, Rates], outputs=Rated, transforms=[rated])
    ps.register(
        place.spark,
        place.store,
        place.storage,
        "rates",
        place.spark.createDataFrame([], Rates.spark_schema()),
        partition_rows=10,
    )
    assert place.runner(pipeline).run().ending == "complete"
    found = ps.Output(place.store, "rated").arrow("rated")
    assert found.num_rows == place.table.num_rows
    assert found["rate"].null_count == found.num_rows
