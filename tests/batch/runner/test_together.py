"""Small claims that are computed together, each with its own files, ack and fate."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from penstock.batch.runner.together import WorkTogether
from penstock.batch.runs import pacing, runs
from penstock.control.claims import Board, PartitionState
from penstock.core.failpoints import armed
from tests.batch.runner import trades
from tests.batch.runner.conftest import Place
from tests.marks import soaked

Trades = trades.Trades
ROWS = 160
PARTITIONS = trades.ROWS // ROWS
# A thread takes an eighth of the partitions at once.
TOGETHER = PARTITIONS // 8


class Valued(ps.Table, name="trades"):
    id: int
    notional: float


@ps.transform(reads=Trades.quantity, drops=Trades)
def valid(trades: DataFrame) -> DataFrame:
    return trades.where(F.col("quantity") > 0)


@ps.transform(reads=[Trades.price, Trades.quantity], writes=Trades.notional)
def valued(trades: DataFrame) -> DataFrame:
    return trades.withColumn("notional", F.col("price") * F.col("quantity"))


@ps.arrow_transform(reads=Trades.notional, writes=Trades.notional)
def rounded(trades: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pc.round(trades["notional"])], names=["notional"])


def pipeline(*transforms: Any) -> ps.Pipeline:
    return ps.Pipeline("small", inputs=Trades, outputs=Valued, transforms=list(transforms))


@pytest.fixture
def small(place: Place) -> Place:
    place.register("small", rows=ROWS)
    return place


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many claims each job of several had."""
    taken: list[int] = []
    original = WorkTogether.__init__

    def kept(self: WorkTogether, bench: Any, holds: Any) -> None:
        taken.append(len(holds))
        original(self, bench, holds)

    monkeypatch.setattr(WorkTogether, "__init__", kept)
    return taken


def run(place: Place, made: ps.Pipeline, **options: Any) -> ps.Report:
    given = {"inputs": {"trades": "small"}, "claims": 1, "checkpoint": ps.Never(), **options}
    return place.runner(made, **given).run()


def board(place: Place) -> Board:
    return runs.boards(place.store, runs.load(place.store, "small"))[0]


def published(place: Place) -> list[tuple[int, float]]:
    rows = ps.Output(place.store, "small").arrow("trades").to_pylist()
    return sorted((row["id"], row["notional"]) for row in rows)


def wanted(place: Place, *without: int) -> list[tuple[int, float]]:
    """The rows that must be there, without those of some partitions."""
    rows, _ = trades.expected(place.table)
    return [(row["id"], row["notional"]) for row in rows if row["id"] // ROWS not in without]


@pytest.mark.parametrize(
    ("transforms", "options"),
    [
        pytest.param((valid, valued), {}, id="in the JVM"),
        pytest.param((valid, valued, rounded), {}, id="in Python workers"),
        pytest.param((valid, valued, rounded), {"checkpoint": ps.EveryStage()}, id="with checkpoints"),
        pytest.param((valid, valued), {"output_format": "arrow"}, id="Arrow files"),
    ],
)
def test_each_partition_has_its_own_rows_files_and_ack(
    small: Place, jobs: list[int], transforms: tuple[Any, ...], options: dict[str, Any]
) -> None:
    report = run(small, pipeline(*transforms), **options)
    assert (report.ending, report.acked, report.rows) == ("complete", PARTITIONS, trades.ROWS)
    assert max(jobs) == TOGETHER
    assert published(small) == wanted(small)
    output = ps.Output(small.store, "small")
    for manifest in output.manifests():
        [file] = manifest.tables["trades"].files
        assert f"{manifest.partition.begin:012d}-{manifest.partition.end:012d}" in file.path
        own = [row for row in wanted(small) if manifest.partition.begin <= row[0] < manifest.partition.end]
        assert file.rows == len(own)
    assert ps.verify(small.store, "small").ok


def test_a_partition_without_rows_has_no_file_and_takes_none_of_another(small: Place) -> None:
    @ps.transform(reads=Trades.id, drops=Trades)
    def some(trades: DataFrame) -> DataFrame:
        return trades.where(F.floor(F.col("id") / ROWS) % 3 == 1)

    report = run(small, pipeline(some, valued, rounded), checkpoint=ps.EveryStage())
    assert report.ending == "complete"
    missing = [n for n in range(PARTITIONS) if n % 3 != 1]
    all_rows = [
        (r["id"], r["price"] * r["quantity"]) for r in small.table.to_pylist() if r["id"] // ROWS % 3 == 1
    ]
    assert published(small) == sorted(all_rows)
    empty = [m for m in ps.Output(small.store, "small").manifests() if not m.tables["trades"].files]
    assert [m.partition.begin // ROWS for m in empty] == missing


def test_an_error_in_one_fails_only_that_one(small: Place) -> None:
    @ps.arrow_transform(reads=Trades.id, writes=Trades.notional)
    def picky(trades: pa.RecordBatch) -> pa.RecordBatch:
        if pc.min(trades["id"]).as_py() // ROWS == 3:
            raise ValueError("partition 3 is bad")
        return pa.RecordBatch.from_arrays([pc.cast(trades["id"], pa.float64())], names=["notional"])

    report = run(small, pipeline(valid, picky), max_failures=1)
    assert (report.ending, report.acked, report.poisoned) == ("incomplete", PARTITIONS - 1, 1)
    [bad] = board(small).partitions({PartitionState.POISONED})
    assert bad.range.begin == 3 * ROWS
    assert "partition 3 is bad" in bad.errors[-1].error
    assert [row for row, _ in published(small)] == [row for row, _ in wanted(small, 3)]


def test_rows_that_get_more_are_found_in_the_partition_that_has_them(small: Place) -> None:
    @ps.transform(reads=Trades.id, writes=Trades.notional)
    def doubled(trades: DataFrame) -> DataFrame:
        again = F.when(F.floor(F.col("id") / ROWS) == 2, F.array(F.lit(1.0), F.lit(2.0)))
        return trades.withColumn("notional", F.explode(again.otherwise(F.array(F.lit(1.0)))))

    report = run(small, pipeline(doubled))
    assert (report.ending, report.acked) == ("halted", TOGETHER - 1)
    assert f"had {ROWS} rows and has {2 * ROWS}" in str(report.error)
    pending = [view.range.begin // ROWS for view in board(small).partitions({PartitionState.PENDING})]
    assert pending[0] == 2


@pytest.mark.parametrize("at", ["stage.planned", "checkpoint.before"])
def test_a_claim_that_is_taken_away_leaves_the_others(small: Place, jobs: list[int], at: str) -> None:
    taken: list[ps.Range] = []

    def take_one() -> None:
        if not taken:
            [view, *_] = board(small).partitions({PartitionState.CLAIMED})
            taken.append(view.range)
            board(small).force_release(view.range)

    with armed({at: take_one}):
        report = run(small, pipeline(valid, valued, rounded), checkpoint=ps.EveryStage())
    assert (report.ending, report.acked, report.lost) == ("complete", PARTITIONS, 1)
    again = [view.range for view in board(small).partitions() if view.token > 1]
    assert again == taken
    assert max(jobs) == TOGETHER
    assert published(small) == wanted(small)


@pytest.mark.parametrize(
    "moved",
    [
        pytest.param(lambda rows: rows.repartition(3), id="repartition"),
        pytest.param(lambda rows: rows.coalesce(1), id="coalesce"),
        pytest.param(lambda rows: rows.union(rows.where("id < 0")), id="union"),
    ],
)
def test_where_rows_leave_their_task_each_claim_is_computed_by_itself(
    small: Place, jobs: list[int], moved: Callable[[DataFrame], DataFrame]
) -> None:
    @ps.transform(reads=[Trades.id, Trades.price, Trades.quantity], writes=Trades.notional)
    def shuffled(trades: DataFrame) -> DataFrame:
        return moved(trades.withColumn("notional", F.col("price") * F.col("quantity")))

    report = run(small, pipeline(valid, shuffled))
    assert (report.ending, report.acked) == ("complete", PARTITIONS)
    assert jobs == [TOGETHER]
    assert published(small) == wanted(small)


def test_no_more_are_claimed_than_asked_for(small: Place) -> None:
    report = run(small, pipeline(valid, valued), max_batches=3)
    assert (report.ending, report.acked) == ("stopped", 3)
    assert board(small).summary().claimed.partitions == 0


# Where the instance dies, how many partitions are published by then, and how many of the others were saved.
STEPS = {
    "ack.before@2": (1, TOGETHER - 1),
    "ack.after@2": (2, TOGETHER - 2),
    "checkpoint.written": (0, 0),
    "checkpoint.after@2": (0, 2),
}


@pytest.mark.parametrize("step", ["ack.before@2", *soaked(step for step in STEPS if step != "ack.before@2")])
def test_killed_with_several_in_progress(small: Place, step: str) -> None:
    point, _, count = step.partition("@")
    options: dict[str, Any] = {"pipeline": "row_by_row", "run": "small", "inputs": {"trades": "small"}}
    child = small.child(failpoints=f"{point}=kill@{count or 1}", **options)
    assert child.wait() == -signal.SIGKILL
    done, saved = STEPS[step]
    left = board(small).summary()
    assert (left.completed.partitions, left.claimed.partitions) == (done, TOGETHER - done)
    report = run(small, trades.row_by_row, run="small", checkpoint=ps.EveryStage())
    assert (report.ending, report.acked) == ("complete", PARTITIONS - done)
    assert len(small.seen("resumed")) == saved
    assert published(small) == wanted(small)
    assert ps.verify(small.store, "small").ok


def test_what_was_tried_before_is_held_alone(small: Place) -> None:
    """Or else a partition that kills its process would take others with it, again and again."""
    runner = small.runner(trades.row_by_row)
    tried = Board.register(small.store, "tried", 100, 10, 5)
    session = small.store.session(60)
    claims = tried.claim(session, "a", 10)
    for claim in claims[:3]:
        tried.fail(claim, "it died")
    for claim in claims[3:]:
        tried.release(claim)
    kept = runner._kept(tried, tried.claim(session, "a", 10))
    assert [claim.range for claim in kept] == [claim.range for claim in claims[3:]]
    for claim in kept:
        tried.ack(claim, "0" * 32)
    [alone] = runner._kept(tried, tried.claim(session, "a", 10))
    assert alone.attempts == 1
    summary = tried.summary()
    assert (summary.claimed.partitions, summary.pending.partitions, summary.failures) == (1, 2, 3)


def test_large_partitions_are_computed_one_by_one(place: Place, jobs: list[int]) -> None:
    report = place.runner(pipeline(valid, valued), claims=1).run()
    assert (report.ending, jobs) == ("complete", [])


def test_rows_go_through_an_exchange(small: Place, jobs: list[int]) -> None:
    @ps.transform(reads=[Trades.symbol, Trades.notional], writes=trades.Positions)
    def totals(trades: DataFrame) -> DataFrame:
        return trades.groupBy("symbol").agg(F.count("*").alias("trades"), F.sum("notional").alias("notional"))

    made = ps.Pipeline(
        "small-totals", inputs=Trades, outputs=trades.Positions, transforms=[valid, valued, totals]
    )
    report = run(small, made, run="small", small_bytes=0, whole_bytes=0)
    assert report.ending == "complete"
    assert max(jobs) == TOGETHER
    rows = ps.Output(small.store, "small").arrow("positions").sort_by("symbol").to_pylist()
    _, expected = trades.expected(small.table)
    assert rows == expected


def test_what_stages_cost_is_measured_once(small: Place) -> None:
    made = pipeline(valid, valued, rounded)
    report = run(small, made, checkpoint=ps.Auto())
    assert (report.ending, report.acked) == ("complete", PARTITIONS)
    measured = pacing.find(small.store, runs.load(small.store, "small").place(0))
    assert sorted(measured) == list(range(len(made.stages) - 1))
    assert published(small) == wanted(small)
