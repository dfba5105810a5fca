"""Runs with exchanges, whatever happens to their partitions and files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.batch.exchange import hashing
from penstock.batch.exchange.packing import ExchangePlan
from penstock.batch.runs import dropping, exchanges, gc, views
from penstock.core import failpoints
from penstock.core.ranges import PartitionName, Range
from penstock.errors import CodeChanged, DiskLimit, ExchangeDamaged, RunError
from tests.batch.runner.orders_place import KEYS, MAPPED, OrdersPlace, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.batch.runner.events import Event


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Iterator[OrdersPlace]:
    with opened(tmp_path, spark) as place:
        yield place


def _checks(place: OrdersPlace) -> dict[str, str]:
    """What is wrong with the run, by check."""
    return {check.name: check.detail for check in ps.verify(place.store, "orders").checks if not check.ok}


def test_a_poisoned_partition_holds_the_barrier_until_it_is_retried(place: OrdersPlace) -> None:
    (place.hooks / "fail-1").touch()
    report = place.run(max_failures=1)
    assert (report.ending, report.poisoned) == ("incomplete", 1)
    assert len(place.boards) == KEYS, "accounts are mapped, and no key range is begun"
    assert place.plan() is None
    assert place.boards[1].finished()
    assert views.one(place.store, "orders").state == "incomplete"
    assert gc.sweep(place.storage, place.record, lambda: place.boards).files == 0
    found = _checks(place)
    assert "1000-2000 is poisoned" in found["every row once"]
    assert "phase 2 is not begun" in found["every row once"]
    (place.hooks / "fail-1").unlink()
    poisoned = PartitionName(0, Range(1000, 2000))
    exchanges.check_retry(place.store, place.record, poisoned)
    place.boards[0].retry(poisoned.range)
    assert place.run().ending == "complete"
    place.assert_exact()


def test_a_run_that_was_told_so_goes_on_without_a_poisoned_partition(place: OrdersPlace) -> None:
    (place.hooks / "fail-1").touch()
    report = place.run(max_failures=1, without_poisoned=True, max_batches=MAPPED)
    assert report.ending == "stopped"
    plan = place.plan()
    assert plan is not None and plan.without == ("1000-2000",)
    # It is decided: also who was not told so goes on.
    assert place.run(max_failures=1).ending == "incomplete"
    view = views.one(place.store, "orders")
    assert (view.state, view.left_out) == ("incomplete", ("1000-2000",))
    assert view.to_json()["left_out"] == ["1000-2000"]
    sold = sum(row["orders"] for row in ps.Output(place.store, "orders").arrow("positions").to_pylist())
    rows = [row for row in place.orders.to_pylist() if row["quantity"] > 0]
    assert sold == len([row for row in rows if not 1000 <= row["id"] < 2000])
    found = _checks(place)
    assert found.keys() == {"every row once", "exchange plans"}
    assert "phase 2 does without partition 1000-2000" in found["exchange plans"]
    with pytest.raises(RunError, match="phase 2 of run 'orders' began without partition 1000-2000"):
        exchanges.check_retry(place.store, place.record, PartitionName(0, Range(1000, 2000)))
    assert place.run_files() == [], "nobody can need them any more"


def test_a_poisoned_key_range_is_retried_with_what_it_reads(place: OrdersPlace) -> None:
    place.map()
    runner = place.runner(max_failures=1, claims=1)
    runner._listener = _failing_at(place, PartitionName(KEYS, Range(1, 2)))
    assert runner.run().ending == "incomplete"
    assert place.run_files() != []
    assert gc.sweep(place.storage, place.record, lambda: place.boards).files == 0
    [poisoned] = [v.range for v in place.boards[KEYS].partitions() if v.state == "poisoned"]
    place.boards[KEYS].retry(poisoned)
    assert place.run().ending == "complete"
    place.assert_exact()


def _failing_at(place: OrdersPlace, partition: PartitionName) -> Any:
    def listener(event: Event) -> None:
        place.events.append(event)
        if event.kind == "writing" and event.name == partition:
            raise ValueError("this range is bad")

    return listener


@pytest.mark.parametrize("damage", ["remove", "truncate", "flip"])
def test_a_damaged_run_file_halts_the_run_and_blames_no_partition(place: OrdersPlace, damage: str) -> None:
    place.map()
    path = place.path / "storage" / next(p for p in place.run_files() if "orders-account" in p)
    data = path.read_bytes()
    if damage == "remove":
        path.unlink()
    elif damage == "truncate":
        path.write_bytes(data[: len(data) // 2])
    else:
        path.write_bytes(data[:2000] + bytes([data[2000] ^ 1]) + data[2001:])
    report = place.run()
    assert report.ending == "halted"
    assert isinstance(report.error, ExchangeDamaged), report.error
    assert str(path) in report.error.what
    assert "partition 0-1000 wrote it" in report.error.what
    assert "penstock runs resume orders" in str(report.error.hint)
    assert report.failed == 0
    assert not any(view.attempts for view in place.boards[KEYS].partitions())
    assert "partition 0-1000" in _checks(place)["keys in one range"]
    path.write_bytes(data)
    assert place.run().ending == "complete"
    place.assert_exact()


def test_verify_finds_rows_that_are_in_another_range(
    place: OrdersPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and manifests that fit each other are not enough."""
    from penstock.batch.runs import exchange_proofs

    place.map()
    assert "keys in one range" not in _checks(place)
    original = hashing.bucket_numbers
    monkeypatch.setattr(exchange_proofs, "bucket_numbers", lambda *given: (original(*given) + 1) % 1024)
    found = _checks(place)["keys in one range"]
    assert "partition 0-1000" in found and "another bucket than that of its key" in found


def test_verify_finds_a_plan_and_counts_that_do_not_fit(place: OrdersPlace) -> None:
    assert place.run().ending == "complete"
    key = exchanges.plan_key(place.record, KEYS)
    document = place.store.get(key)
    assert document is not None
    plan = ExchangePlan.decode(key, document.value)
    place.store.cas(key, document.version, ExchangePlan(plan.buckets, plan.ranges, (), "0" * 32).encode())
    found = _checks(place)
    assert found.keys() == {"exchange plans"}
    assert "the plan of phase 2 was made of other partitions" in found["exchange plans"]
    document = place.store.get(key)
    assert document is not None
    turned = ExchangePlan(plan.buckets, plan.ranges[::-1], (), plan.made_of)
    place.store.cas(key, document.version, turned.encode())
    assert "2:0-1 read " in _checks(place)["exchanged rows read once"]
    with pytest.raises(RunError, match="made of other partitions"):
        exchanges.check_plan(place.record, KEYS, plan, ())


def test_a_run_with_exchanges_is_dropped_with_all_it_has(place: OrdersPlace) -> None:
    place.map()
    assert place.run(max_batches=1).ending == "stopped"
    run = place.record
    assert place.run_files() != []
    dropping.check_idle(place.store, run)
    dropping.drop(place.store, place.storage, run)
    assert [d.key for d in place.store.scan("runs/")] == []
    assert place.storage.list("runs") == []
    assert place.storage.list("output") == []
    place.events.clear()
    assert place.run().ending == "complete"
    place.assert_exact()


def test_a_run_that_is_dropped_between_two_phases_is_left_alone(place: OrdersPlace) -> None:
    place.map()
    run = place.record

    def dropped() -> None:
        dropping.drop(place.store, place.storage, run)

    with failpoints.armed({"exchange.plan.before": dropped}):
        report = place.run()
    assert report.ending == "halted"
    assert report.error is not None and "was removed meanwhile" in report.error.what


def test_the_limit_of_run_files_is_told_before_anything_is_begun(place: OrdersPlace) -> None:
    with pytest.raises(DiskLimit, match=r"run\.exchange_bytes") as caught:
        place.run(exchange_bytes=1000)
    assert caught.value.left == "nothing was begun"
    assert "accounts, orders" in caught.value.what
    assert list(place.store.scan("runs/")) == []


def test_a_run_halts_at_the_limit_of_run_files(place: OrdersPlace) -> None:
    limit = 50_000
    report = place.run(exchange_bytes=limit, claims=1)
    assert report.ending == "halted"
    assert isinstance(report.error, DiskLimit), report.error
    assert report.failed == 0
    assert 0 < report.acked < MAPPED
    taken = sum(size for path, size in place.storage.list("runs") if "/exchange/" in path)
    assert 0 < taken <= limit, "what went over the limit is removed"
    assert place.run(exchange_bytes=1 << 20).ending == "complete"
    place.assert_exact()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_disk_that_is_full_of_run_files_halts_and_loses_nothing(place: OrdersPlace) -> None:
    assert place.run(max_batches=1, claims=1).ending == "stopped"
    folder = place.path / "storage" / "runs" / place.record.key / "exchange"
    # What is there stays: the small disk is for the next partitions.
    saved = folder.with_name("saved")
    folder.rename(saved)
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(folder)], check=True)
    try:
        subprocess.run(["cp", "-a", f"{saved}/.", str(folder)], check=True)
        report = place.run(claims=1)
        assert report.ending == "halted"
        assert report.error is not None and report.error.code == "storage-full", report.error
        assert {view.state for view in place.boards[0].partitions()} <= {"pending", "completed"}
        assert not any(view.attempts for view in place.boards[0].partitions())
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        assert place.run().ending == "complete"
        place.assert_exact()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _with_other_code(monkeypatch: pytest.MonkeyPatch) -> ps.Pipeline:
    """The same pipeline with other code behind the exchange."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from penstock.batch.pipeline import pipeline as module
    from tests.batch.runner import orders as o

    @ps.transform(
        reads=[o.Orders.account, o.Orders.symbol, o.Orders.value], writes=o.Positions, by=o.Orders.account
    )
    def positions(orders: DataFrame) -> DataFrame:
        total = F.sum(F.col("value") + F.lit(0))
        return orders.groupBy("account", "symbol").agg(F.count("*").alias("orders"), total.alias("value"))

    monkeypatch.setattr(module, "_named", {})
    transforms = [positions if each.name == "positions" else each for each in o.pipeline.transforms]
    return ps.Pipeline("orders", inputs=o.pipeline.inputs, outputs=o.pipeline.outputs, transforms=transforms)


def test_changed_code_behind_an_exchange_keeps_the_exchange(
    place: OrdersPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.map()
    before = place.tokens()
    report = place.runner(_with_other_code(monkeypatch)).run()
    assert report.ending == "complete", report.error
    assert {name: place.tokens()[name] for name in before} == before
    assert not place.acked().keys() & {0, 1}
    place.assert_exact()


def test_changed_code_of_key_ranges_that_are_done_is_refused(
    place: OrdersPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.map()
    assert place.run(max_batches=1).ending == "stopped"
    with pytest.raises(CodeChanged, match="completed by the old code"):
        place.runner(_with_other_code(monkeypatch)).run()
