"""When a checkpoint is worth its cost."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.batch.runs import pacing
from penstock.batch.runs.options import Auto, checkpointing
from penstock.batch.runs.pacing import Pace, Reliability, StageCost, StageVerdict, interval, reasons, verdicts

MB = 1_000_000
DAY = 86_400.0
# A death in 200 s: what saving takes 1 s is worth after 20 s of work.
OFTEN = Reliability(seconds=200 * 1_000_000 - DAY, deaths=999_999)


def saved(found: list[StageVerdict]) -> list[int]:
    return [verdict.stage for verdict in found if verdict.saves]


def cost(stage: int, work: float, saving: float = 1.0) -> StageCost:
    return StageCost(stage, work + saving, int((saving - 0.15) * 150 * MB))


def test_the_interval_is_youngs() -> None:
    assert interval(2.0, 3_600.0) == pytest.approx(120.0)


def test_saving_and_work_are_told_apart_by_the_bytes() -> None:
    found = cost(0, 7.0, saving=2.0)
    assert found.work == pytest.approx(7.0)
    assert found.saving == pytest.approx(2.0)
    quick = StageCost(0, 0.1, 500 * MB)
    assert (quick.work, quick.saving) == (0.0, 0.1)


def test_a_day_without_a_death_is_known_before() -> None:
    assert Reliability().between_deaths == DAY
    assert Reliability(seconds=3_600, deaths=1).between_deaths == pytest.approx((DAY + 3_600) / 2)
    assert Reliability(seconds=10 * DAY).between_deaths == 11 * DAY


def test_a_checkpoint_follows_when_enough_work_has_gathered() -> None:
    costs = [cost(0, 9.0), cost(1, 9.0), cost(2, 9.0), cost(3, 50.0), cost(4, 1.0)]
    assert saved(verdicts(costs, OFTEN)) == [2, 3]


def test_large_checkpoints_are_saved_less_often() -> None:
    costs = [cost(0, 30.0), cost(1, 30.0, saving=16.0), cost(2, 30.0)]
    assert saved(verdicts(costs, OFTEN)) == [0, 2]


def test_short_work_on_reliable_machines_is_not_saved() -> None:
    assert saved(verdicts([cost(n, 5.0) for n in range(4)], Reliability())) == []


def test_the_reasons_have_the_numbers() -> None:
    [verdict] = verdicts([cost(3, 9.0, saving=1.0)], OFTEN)
    assert verdict == StageVerdict(
        3,
        False,
        "9 s of work since the last one; saving 127.5 MB takes 1 s and is worth it after 20 s, "
        "with a death in 3 min",
    )


def test_what_is_not_measured_is_saved() -> None:
    found = reasons([4, 5], {4: cost(4, 0.1)}, Reliability())
    assert saved(found) == [4, 5]
    assert {verdict.why for verdict in found} == {"to measure what it costs: nothing is known yet"}


def test_what_one_instance_has_measured_others_know(tmp_path: Path) -> None:
    with ps.open_store(f"sqlite:///{tmp_path}/store.db") as store:
        first = Pace(store, "run/0", [0, 1], Reliability)
        assert first.saves(0) and first.saves(1)
        first.learn(cost(0, 2.0))
        assert pacing.find(store, "run/0") == {}
        first.learn(cost(1, 3.0))
        first.learn(cost(1, 99.0))
        assert pacing.find(store, "run/0") == {0: cost(0, 2.0), 1: cost(1, 3.0)}
        other = Pace(store, "run/0", [0, 1], Reliability)
        assert not other.saves(0) and not other.saves(1)
        assert Pace(store, "run/0", [0, 1], lambda: Reliability(0, 10_000_000)).saves(1)


def test_it_is_spelled_like_the_others() -> None:
    assert checkpointing("auto") == Auto()
    assert str(Auto()) == "auto"
