"""A stream under random kills, joins and leavings of real processes: every row once, whatever happens."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.etcd import EtcdCluster
from tests.streams.fleet import Fleet, misfits, with_settings
from tests.streams.jobs import numbers

EPOCHS = 100
MOST = 4


@pytest.fixture(params=["sqlite", "etcd"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    if request.param == "etcd":
        etcd: EtcdCluster = request.getfixturevalue("etcd")
        url = f"etcd://{','.join(etcd.endpoints)}/{tmp_path.name}"
    else:
        url = f"sqlite:///{tmp_path}/store.db"
    # Few rows at a time, so that it takes many epochs.
    fleet = Fleet("numbers", url, tmp_path / "storage", with_settings(max_rows=40))
    yield fleet
    fleet.close()


@pytest.mark.soak
def test_every_row_once_whoever_is_killed(fleet: Fleet) -> None:
    dice = random.Random(4)
    fleet.start()
    fleet.start()
    fleet.until(lambda: fleet.committed >= 3, "the first epochs")
    kills = 0
    while not fleet.ended:
        fleet.more_epochs(dice.randint(2, 8))
        if len(fleet.alive) < MOST and dice.random() < 0.5:
            fleet.start()
        elif kills < 6 or not fleet.alive:
            victim = fleet.leader() if dice.random() < 0.5 else dice.choice(fleet.alive)
            if victim is not None:
                os.kill(victim.pid, signal.SIGKILL)
                kills += 1
            if not fleet.alive:
                fleet.start()
        elif len(fleet.alive) > 1 and dice.random() < 0.3:
            dice.choice(fleet.alive).leave()
    assert kills >= 3
    assert fleet.committed >= EPOCHS
    assert misfits(fleet.queue(), numbers.PARTS, numbers.ROWS) == ""
    assert misfits(fleet.rows("all"), numbers.PARTS, numbers.ROWS) == ""
    counted = fleet.rows("counts").to_pylist()
    assert {row["part"]: row["count"] for row in counted} == {
        str(part): numbers.ROWS for part in range(numbers.PARTS)
    }
