"""A stream under random kills, joins and leavings of real processes: every row once, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.workers.stream_instances import StreamChild
from servers.etcd import EtcdCluster
from tests.streams.fleet import Fleet, misfits, with_settings
from tests.streams.jobs import numbers

EPOCHS = 100
KILLS = 6
ROWS_AT_ONCE = 160
"""Few rows in an epoch, over all instances, so that it takes many epochs."""


@pytest.fixture(params=["sqlite", "etcd"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    etcd: EtcdCluster = request.getfixturevalue("etcd")
    return f"etcd://{','.join(etcd.endpoints)}/{tmp_path.name}"


@pytest.fixture
def fleet(store: str, most: int, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet("numbers", store, tmp_path / "storage", with_settings(max_rows=ROWS_AT_ONCE // most))
    yield fleet
    fleet.close()


@pytest.mark.soak
@pytest.mark.parametrize("most", [1, 2, 4])
def test_every_row_once_whoever_is_killed(fleet: Fleet, most: int) -> None:
    dice = random.Random(most)
    for _ in range(min(most, 2)):
        fleet.start()
    fleet.until(lambda: fleet.committed >= 3, "the first epochs")
    kills = 0
    while not fleet.ended:
        if not fleet.alive:
            fleet.start()
        fleet.more_epochs(dice.randint(2, 8))
        if len(fleet.alive) < most and dice.random() < 0.5:
            fleet.start()
        elif kills < KILLS:
            victim = fleet.leader() if dice.random() < 0.5 else dice.choice(fleet.alive)
            if victim is not None:
                victim.kill()
                gone(fleet, victim)
                kills += 1
        elif len(fleet.alive) > 1 and dice.random() < 0.3:
            leaver = dice.choice(fleet.alive)
            leaver.leave()
            gone(fleet, leaver)
    assert kills >= KILLS // 2
    assert fleet.committed >= EPOCHS
    assert misfits(fleet.queue(), numbers.PARTS, numbers.ROWS) == ""
    assert misfits(fleet.rows("all"), numbers.PARTS, numbers.ROWS) == ""
    counted = fleet.rows("counts").to_pylist()
    assert {row["part"]: row["count"] for row in counted} == {
        str(part): numbers.ROWS for part in range(numbers.PARTS)
    }


def gone(fleet: Fleet, child: StreamChild) -> None:
    fleet.until(lambda: child.code is not None, "the end of a process")
