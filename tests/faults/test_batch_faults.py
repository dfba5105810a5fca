"""The batch pipeline on three real etcd nodes, while these are killed and an instance is cut off.

Partitions are held in the middle of a stage until the fault has happened.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import penstock as ps
from servers.etcd import EtcdCluster
from servers.netns import Network
from tests.batch.runner.conftest import ROOT, RUN, Child, Place, opened, until
from tests.faults.conftest import connected
from tests.servers import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = range(4)


class FarChild(Child):
    """An instance in a namespace of its own."""

    def __init__(self, place: Place, network: Network, number: int) -> None:
        given = json.dumps({"store": place.url})
        started = network.run(
            number,
            [sys.executable, "-m", "tests.batch.runner.child", str(place.path), "far", given],
            cwd=ROOT,
            env={**os.environ, "PENSTOCK_TEST_HOOKS": str(place.hooks)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.process = cast("subprocess.Popen[str]", started)


@contextmanager
def at_work(place: Place) -> Iterator[list[Future[ps.Report]]]:
    """Two instances, each in the middle of a partition; they have ended when the block ends."""
    runners = [place.runner(instance=name, claims=1) for name in ("ann", "ben")]
    with ThreadPoolExecutor(len(runners)) as pool:
        try:
            reports = [pool.submit(runner.run) for runner in runners]
            until(
                lambda: held(place) == len(runners) or any(report.done() for report in reports),
                "two partitions are worked on",
                180,
            )
            assert not any(report.done() for report in reports), [report.result(60) for report in reports]
            yield reports
        finally:
            for runner in runners:
                runner.stop()


def hold_all(place: Place) -> None:
    for partition in PARTITIONS:
        place.block(partition)


def let_all_go(place: Place) -> None:
    for partition in PARTITIONS:
        place.unblock(partition)


def held(place: Place) -> int:
    """How many partitions are held in the middle."""
    return sum(place.reached(partition) for partition in PARTITIONS)


@pytest.fixture
def place(etcd: EtcdCluster, tmp_path: Path, spark: SparkSession) -> Iterator[Place]:
    """A run that is held in the middle wherever somebody works on it."""
    with opened(tmp_path, spark, f"etcd://{','.join(etcd.endpoints)}/{tmp_path.name}") as place:
        hold_all(place)
        yield place


def test_the_leader_of_etcd_is_killed(place: Place, etcd: EtcdCluster) -> None:
    with at_work(place) as reports:
        leader = etcd.leader()
        etcd.kill(leader)
        let_all_go(place)
        until(lambda: any(view.state == "completed" for view in place.board.partitions()), "one is done")
        etcd.restart(leader)
        assert [report.result(180).ending for report in reports] == ["complete", "complete"]
    place.assert_exact()


def test_all_nodes_of_etcd_are_killed(place: Place, etcd: EtcdCluster) -> None:
    with at_work(place) as reports:
        for node in range(3):
            etcd.kill(node)
        until(lambda: len(place.seen("lost")) == 2, "both stop, since their leases may be over")
        let_all_go(place)
        etcd.heal()
        assert [report.result(180).ending for report in reports] == ["complete", "complete"]
    place.assert_exact()


def test_an_instance_is_cut_off(tmp_path: Path, spark: SparkSession) -> None:
    with connected(4) as network, started(network=network) as etcd:
        url = f"etcd://{','.join(etcd.endpoints)}/{tmp_path.name}"
        with opened(tmp_path, spark, url) as place:
            hold_all(place)
            far = FarChild(place, network, 3)
            place.children.append(far)
            until(lambda: held(place) == 1, "the instance works")
            [taken] = [view for view in place.board.partitions() if view.state == "claimed"]
            network.cut(3)
            until(lambda: not place.store.alive([taken.session]), "its lease runs out")
            let_all_go(place)
            report = place.run()
            assert (report.ending, report.acked) == ("complete", 4)
            place.assert_exact()
            published = ps.Output(place.store, RUN).paths("trades")
            network.heal()
            zombie = far.report()
            assert (zombie["ending"], zombie["acked"], zombie["lost"]) == ("complete", 0, 1)
            assert ps.Output(place.store, RUN).paths("trades") == published
            place.assert_exact()
