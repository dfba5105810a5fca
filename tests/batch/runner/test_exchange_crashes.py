"""Real processes, really killed inside of a shuffle: the output is exact, and little is computed again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock as ps
from penstock.batch.runs import exchanges, gc
from tests.batch.runner.conftest import until
from tests.batch.runner.orders import RUN_FILE
from tests.batch.runner.orders_place import EVERYTHING, FIRST_OF_KEYS, KEYS, MAPPED, OrdersPlace, opened
from tests.marks import soaked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Iterator[OrdersPlace]:
    with opened(tmp_path, spark) as place:
        yield place


def _killed(place: OrdersPlace, failpoints: str) -> None:
    child = place.child(failpoints=failpoints)
    assert child.wait() == -signal.SIGKILL


def _resumed(place: OrdersPlace, acked: int, again: list[str]) -> None:
    """The rest is done here: ``acked`` partitions, of which only those in ``again`` were claimed before."""
    report = place.run()
    assert (report.ending, report.acked) == ("complete", acked)
    assert {name for name, token in place.tokens().items() if token > 1} == set(again)
    place.assert_exact()
    assert place.run_files() == []


def _ranges(place: OrdersPlace) -> int:
    plan = place.plan()
    assert plan is not None
    return len(plan.ranges)


@pytest.mark.parametrize("step", ["exchange.written", *soaked(["ack.before", "exchange.written@3"])])
def test_killed_with_run_files_that_are_not_acked(place: OrdersPlace, step: str) -> None:
    point, _, count = step.partition("@")
    _killed(place, f"{point}=kill@{count or 1}")
    before = int(count or 1) - 1
    [in_flight] = [name for name, token in place.tokens().items() if token and not _is_done(place, name)]
    assert [path for path in place.run_files() if f"-{'000001'}-" in path]
    report = place.run(max_batches=MAPPED - before)
    assert report.acked == MAPPED - before
    run = place.record
    # The files of the dead are swept, and those that the next phase needs are not.
    left = len(place.run_files())
    assert gc.sweep(place.storage, run, lambda: place.boards).files >= 1
    assert len(place.run_files()) < left
    _resumed(place, _ranges_to_come(place) + 1, [in_flight])
    assert place.computed().count(2) == 2


def _is_done(place: OrdersPlace, name: str) -> bool:
    return any(str(view.range) == name and view.state == "completed" for view in place.boards[0].partitions())


def _ranges_to_come(place: OrdersPlace) -> int:
    """The number of ranges that this session cuts an exchange into, at least."""
    return 2 * place.spark.sparkContext.defaultParallelism


def test_killed_in_the_middle_of_a_run_file(place: OrdersPlace) -> None:
    place.block(RUN_FILE)
    child = place.child(held=True)
    until(lambda: place.reached(RUN_FILE), "a task writes a run file", 120)
    assert [path for path in place.run_files() if path.endswith(".tmp")]
    child.process.kill()
    child.wait()
    place.unblock(RUN_FILE)
    assert gc.sweep(place.storage, place.record, lambda: place.boards, dry_run=True).files == 0, (
        "it is claimed, for all that the store knows"
    )
    [in_flight] = [name for name, token in place.tokens().items() if token]
    _resumed(place, MAPPED + _ranges_to_come(place) + 1, [in_flight])


@pytest.mark.parametrize("point", soaked(["ack.after", "ack.after@4"]))
def test_killed_after_a_map_ack_nothing_is_computed_twice(place: OrdersPlace, point: str) -> None:
    name, _, count = point.partition("@")
    _killed(place, f"{name}=kill@{count or 1}")
    _resumed(place, MAPPED - int(count or 1) + _ranges_to_come(place) + 1, [])
    assert place.computed() == [2, 2, 2]


@pytest.mark.parametrize(
    "point", ["exchange.plan.after", *soaked(["exchange.plan.before", "exchange.board.before"])]
)
def test_killed_around_the_plan(place: OrdersPlace, point: str) -> None:
    """The plan of the dead counts if it was written, and nothing is mapped again."""
    place.map()
    _killed(place, f"{point}=kill")
    plan = place.plan()
    assert (plan is None) == (point == "exchange.plan.before")
    assert len(place.boards) == KEYS
    # Between two phases nobody holds a claim, and what the next one needs is not swept.
    assert gc.sweep(place.storage, place.record, lambda: place.boards).files == 0
    report = place.run()
    assert (report.ending, report.acked) == ("complete", _ranges(place) + 1)
    assert plan is None or place.plan() == plan
    assert set(place.tokens().values()) == {1}
    assert place.computed() == [2, 2, 2]
    place.assert_exact()


REDUCING = {
    "stage.planned": 0,
    "checkpoint.before": 0,
    "checkpoint.after": FIRST_OF_KEYS + 1,
    "ack.before": FIRST_OF_KEYS + 1,
}
"""Where an instance dies in a key range, and the stage at which whoever takes over has to begin."""


@pytest.mark.parametrize(
    "point", ["checkpoint.after", *soaked(p for p in REDUCING if p != "checkpoint.after")]
)
def test_killed_in_a_key_range(place: OrdersPlace, point: str) -> None:
    place.map()
    _killed(place, f"{point}=kill")
    assert place.run_files() != []
    _resumed(place, _ranges(place) + 1, ["2:0-1"])
    resumed = [(event.phase, event.stage, event.token) for event in place.seen("resumed")]
    assert resumed == ([(KEYS, REDUCING[point], 2)] if REDUCING[point] else [])
    assert place.computed() == [2, 2, 2]


@pytest.mark.parametrize("point", soaked(["ack.after"]))
def test_killed_after_a_range_is_acked(place: OrdersPlace, point: str) -> None:
    place.map()
    _killed(place, f"{point}=kill")
    _resumed(place, _ranges(place), [])


@pytest.mark.parametrize("point", ["stage.planned", *soaked(["ack.before", "ack.after"])])
def test_killed_in_everything(place: OrdersPlace, point: str) -> None:
    place.map()
    assert place.run(max_batches=_ranges_to_come(place)).ending == "stopped"
    assert place.acked() == {KEYS: _ranges_to_come(place)}
    # The files of orders are read, and what is left for everything is not.
    assert {path.split("/")[2] for path in place.run_files()} == {f"phase-{KEYS}"}
    _killed(place, f"{point}=kill")
    done = point == "ack.after"
    _resumed(place, 0 if done else 1, [] if done else [f"{EVERYTHING}:0-1"])
    again = place.run()
    assert (again.ending, again.acked) == ("complete", 0), "it is complete, although its run files are gone"


@pytest.mark.parametrize("finished", [True, *soaked([False])])
def test_stopped_past_its_lease_across_the_barrier(place: OrdersPlace, finished: bool) -> None:
    """It wakes up after the plan was made, or after the end: its ack is refused and nothing changes."""
    child = place.child(failpoints="ack.before=stop")
    until(lambda: child.state() == "T", "the child stops itself", 120)
    report = place.run(max_batches=None if finished else MAPPED + 1)
    assert report.ending == ("complete" if finished else "stopped")
    plan = place.plan()
    assert plan is not None
    digests = [view.digest for view in place.boards[0].partitions()]
    os.kill(child.pid, signal.SIGCONT)
    zombie = child.report()
    assert zombie["lost"] == 1
    assert (zombie["acked"] == 0) == finished
    assert not [e for e in zombie["events"] if e["kind"] == "acked" and e["phase"] < KEYS]
    assert [view.digest for view in place.boards[0].partitions()] == digests
    assert place.plan() == plan
    assert sorted(place.tokens().values())[-2:] == [1, 2], "only what it held was claimed twice"
    place.assert_exact()


def test_two_instances_that_both_make_the_plan(place: OrdersPlace) -> None:
    """One has one core and the other two, so that they do not even want the same number of ranges."""
    place.map()
    child = place.child(failpoints="exchange.plan.before=stop")
    until(lambda: child.state() == "T", "the child stops itself", 120)
    assert place.plan() is None
    report = place.run(max_batches=1)
    assert (report.ending, report.acked) == ("stopped", 1)
    document = place.store.get(exchanges.plan_key(place.record, KEYS))
    os.kill(child.pid, signal.SIGCONT)
    other = child.report()
    assert (other["ending"], other["acked"]) == ("complete", _ranges_to_come(place))
    assert place.store.get(exchanges.plan_key(place.record, KEYS)) == document
    assert set(place.tokens().values()) == {1}
    place.assert_exact()


def test_the_run_is_what_plain_spark_makes_of_it(place: OrdersPlace, spark: SparkSession) -> None:
    """What these tests compare with is not only our own arithmetic."""
    from pyspark.sql import functions as F

    from tests.batch.runner import orders

    rows = spark.read.parquet(str(place.path / "orders.parquet")).where("quantity > 0")
    rows = rows.withColumn("value", F.col("quantity") * (F.col("id") % 64 + 1))
    accounts = spark.read.parquet(str(place.path / "accounts.parquet"))
    held = orders.positions.function(rows)
    made = {
        "orders": rows,
        "positions": orders.share.function(held),
        "sales": orders.sales.function(rows, accounts),
        "top": orders.top.function(held),
    }
    expected = orders.expected(place.orders, place.accounts)
    for table, frame in made.items():
        found = [row.asDict() for row in frame.collect()]
        assert sorted(map(str, found)) == sorted(map(str, expected[table])), table
    assert place.run().ending == "complete"
    place.assert_exact()
    assert ps.Output(place.store, "orders").frame(spark, "top").count() == 3
