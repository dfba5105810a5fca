"""What all tests share: one Spark session, and the rule that nothing is skipped in silence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from penstock.config import SparkConfig
from servers.etcd import EtcdCluster
from servers.packages import Missing
from servers.seaweed import Seaweed, seaweed
from tests.servers import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer

# How quickly examples can be made says more about the machine than about the test.
settings.register_profile("penstock", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")
SPARK = SparkConfig(master="local[2]", memory="1g", fast_start=True)
STARTS_SPARK = {
    "test_batch_faults",
    "test_demo",
    "test_extending",
    "test_install",
    "test_noise",
    "test_processes",
    "test_remote_spark",
    "test_stream_start",
    "test_chaos",
    "test_failover",
    "test_journals",
    "test_rescale",
    "test_spark_cluster",
    "test_spark_versions",
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


SERVERS = {"etcd", "s3", "postgres", "servers", "database", "kafka", "shadow", "real"}
"""Fixtures that start a server."""
LONG = {"faults", "generated", "simulation", "test_install", "test_extending"}
"""Folders and files of tests that take long without Spark, too."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what a person does not wait for before each commit; leave out what takes minutes unless asked."""
    for item in items:
        if _starts_spark(item.nodeid) or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        elif _is_slow(item):
            item.add_marker("slow")
    if config.option.markexpr:
        return
    chosen = [item for item in items if item.get_closest_marker("soak") is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def _pieces(nodeid: str) -> set[str]:
    """Folders and file of a test."""
    place = Path(nodeid.partition("::")[0]).relative_to("tests")
    return {*place.parts, place.stem}


def _starts_spark(nodeid: str) -> bool:
    return not STARTS_SPARK.isdisjoint(_pieces(nodeid))


def _is_slow(item: pytest.Item) -> bool:
    return not (
        LONG.isdisjoint(_pieces(item.nodeid)) and SERVERS.isdisjoint(getattr(item, "fixturenames", ()))
    )


class OneByOne(LoadScopeScheduling):  # type: ignore[misc]
    """Tests go to whichever process of the run is free; those that start Sparks of their own stay together.

    Many Sparks at once are too much for a small machine.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "sparks" if _starts_spark(nodeid) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneByOne:
    return OneByOne(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test is a test that does not exist: the run fails. Elsewhere `-ra` names it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if _CI and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line("tests were skipped, which CI does not allow", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
