"""What an exchange is made of, when partitions were set aside before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.batch.pipeline.phases import AsOne, Phase
from penstock.batch.runs import exchanges, views
from penstock.batch.runs.exchanges import Left, Sizes
from penstock.control.claims import register
from penstock.core import failpoints
from penstock.core.ranges import PartitionName, Range
from penstock.errors import ExchangeDamaged, RunError
from tests.batch.runs.phased_run import PhasedRun

SECOND = Phase(1, AsOne(), (), 2, {"trades": 0}, frozenset(), ("positions",))
SIZES = Sizes(1, 1, 1)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[PhasedRun]:
    place = PhasedRun(tmp_path)
    yield place
    place.session.close()


def left(place: PhasedRun) -> Left:
    return exchanges.left(place.store, place.storage, place.run, 0)


def test_a_partition_that_comes_back_while_the_plan_is_made_is_not_lost(place: PhasedRun) -> None:
    """Each partition is looked at once: either its rows are there or its name is."""
    late = Range(1000, 2000)
    place.ack(place.rows, 0)
    place.rows.poison(late, "bad")
    before = left(place)
    assert (list(before.manifests), before.poisoned) == (["0-1000"], ("1000-2000",))

    def retried() -> None:
        place.rows.retry(late)
        place.ack(place.rows, 0)

    with failpoints.armed({"exchange.plan.before": retried}):
        plan = exchanges.agree(place.store, place.run, SECOND, [before], [], SIZES)
    assert plan.without == ("1000-2000",)
    # It is done by now. All others read without it, too, and nothing says that the run is complete.
    assert list(left(place).manifests) == ["0-1000", "1000-2000"]
    agreed = left(place).agreed(plan)
    assert list(agreed.manifests) == ["0-1000"]
    exchanges.check_plan(place.run, 1, plan, [agreed])
    with pytest.raises(RunError, match="made of other partitions"):
        exchanges.check_plan(place.run, 1, plan, [left(place)])
    ranges = register(place.store, place.run.place(1), 1, 1, 5)
    place.ack(ranges, 1)
    view = views.one(place.store, "trades")
    assert (view.state, view.left_out) == ("incomplete", ("1000-2000",))


def test_the_first_plan_counts_whoever_made_it(place: PhasedRun) -> None:
    for _ in range(2):
        place.ack(place.rows, 0)
    found = left(place)
    first = exchanges.agree(place.store, place.run, SECOND, [found], [], SIZES)
    fewer = Left({}, {}, ("0-1000", "1000-2000"))
    assert exchanges.agree(place.store, place.run, SECOND, [fewer], [], SIZES) == first
    assert first.without == ()
    assert exchanges.left_out(place.store, place.run) == {}


def test_a_partition_that_is_to_be_done_again_is_waited_for(place: PhasedRun) -> None:
    place.ack(place.rows, 0)
    with pytest.raises(RunError, match="1000-2000 of run 'trades' is pending again"):
        left(place)


def test_only_what_was_left_out_cannot_be_retried(place: PhasedRun) -> None:
    place.ack(place.rows, 0)
    late = PartitionName(0, Range(1000, 2000))
    place.rows.poison(late.range, "bad")
    exchanges.check_retry(place.store, place.run, late)
    exchanges.agree(place.store, place.run, SECOND, [left(place)], [], SIZES)
    with pytest.raises(RunError, match="phase 1 of run 'trades' began without partition 1000-2000"):
        exchanges.check_retry(place.store, place.run, late)
    exchanges.check_retry(place.store, place.run, PartitionName(1, Range(0, 1)))


def test_a_manifest_that_is_lost_is_named_with_its_partition(place: PhasedRun) -> None:
    for _ in range(2):
        place.ack(place.rows, 0)
    path = next(path for path, _ in place.storage.list("runs") if "000000001000-" in path)
    place.storage.delete(path)
    with pytest.raises(ExchangeDamaged, match="partition 1000-2000 wrote it") as caught:
        left(place)
    assert path in str(caught.value.hint)
