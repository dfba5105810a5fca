"""A stream on a Spark cluster whose workers come and go, with attempts that die, hang and are made twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import SparkConfig
from servers.sparks import SparkCluster, SparkWorker, spark_cluster
from tests.streams.fleet import Fleet, misfits, with_settings
from tests.streams.jobs.gated import PARTS, Gates

MARGIN = 50
REGISTERED = "Successfully registered with driver"
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.quantile": "0.5",
    "spark.executor.memory": "512m",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def fleet(gates: Gates, cluster: SparkCluster, tmp_path: Path) -> Iterator[Fleet]:
    spark = SparkConfig(master=cluster.url, memory="512m", fast_start=True, conf=SPECULATION)
    store, storage = f"sqlite:///{tmp_path}/store.db", tmp_path / "storage"
    fleet = Fleet("gated", store, storage, with_settings(epoch_every=0.5), spark)
    yield fleet
    gates.release()
    fleet.close()


def test_workers_of_spark_come_and_go(fleet: Fleet, gates: Gates, cluster: SparkCluster) -> None:
    first = cluster.add_worker(cores=1)
    instance = fleet.start()
    fleet.until(lambda: len(fleet.numbers()) == PARTS, "rows of all parts")

    second = joined(fleet, gates, cluster)
    tripped = [gates.trip("0", "die"), gates.trip("7", "hang")]
    fleet.until(
        lambda: not any(file.exists() for file in tripped), "an attempt that dies, and one that hangs"
    )
    # The one that hangs still does: another attempt of its task took over.
    fleet.more_epochs(3)

    first.kill()
    fleet.more_epochs(3)
    third = joined(fleet, gates, cluster)
    second.leave()
    fleet.more_epochs(3)
    third.kill()
    joined(fleet, gates, cluster)
    fleet.more_epochs(3)

    assert instance.code is None
    gates.release()
    count = MARGIN + max(fleet.numbers().values())
    gates.end("all", count)
    fleet.until(lambda: fleet.ended and not fleet.alive, "the end")
    assert misfits(fleet.queue(), PARTS, count) == ""
    assert misfits(fleet.rows("all"), PARTS, count) == ""


def joined(fleet: Fleet, gates: Gates, cluster: SparkCluster) -> SparkWorker:
    """One more worker, whose executor the stream has by now."""
    with gates.paused():
        worker = cluster.add_worker(cores=1)
        fleet.until(lambda: any(REGISTERED in file.read_text() for file in worker.executors), "an executor")
    return worker
