"""What all tests share: one Spark session, and the rule that nothing is skipped in silence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

from penstock.config import SparkConfig
from servers.etcd import EtcdCluster
from servers.packages import Missing
from servers.seaweed import Seaweed, seaweed
from tests.servers import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer

SPARK = SparkConfig(master="local[2]", memory="1g", fast_start=True)
STARTS_SPARK = {
    "test_batch_faults",
    "test_demo",
    "test_processes",
    "test_remote_spark",
    "test_stream_start",
    "test_chaos",
    "test_failover",
    "test_journals",
    "test_rescale",
    "test_spark_cluster",
    "test_serving_cluster",
    "clients",
}
"""Folders and files of tests that start Spark in processes of their own."""
_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of the test run."""
    from penstock.spark import session

    spark = session.start(SPARK, app_name="penstock-tests")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdCluster]:
    """Three nodes of etcd that no test hurts; each test takes a prefix of its own."""
    with started() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3() -> Iterator[Seaweed]:
    """An S3 server; each test takes a prefix of its own."""
    try:
        with seaweed() as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes unless it is asked for."""
    if config.option.markexpr:
        return
    chosen = [item for item in items if item.get_closest_marker("soak") is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


class OneByOne(LoadScopeScheduling):  # type: ignore[misc]
    """Tests go to whichever process of the run is free; those that start Sparks of their own stay together.

    Many Sparks at once are too much for a small machine.
    """

    def _split_scope(self, nodeid: str) -> str:
        place = Path(nodeid.partition("::")[0]).relative_to("tests")
        return "sparks" if not STARTS_SPARK.isdisjoint((*place.parts, place.stem)) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneByOne:
    return OneByOne(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test is a test that does not exist: the run fails. Elsewhere `-ra` names it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if _CI and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line("tests were skipped, which CI does not allow", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
