"""A class-data archive (AppCDS) of Spark's classes, made once, that halves the time to the first query.

The archive is a cache: a JVM that finds it missing, stale or corrupt starts without it.

It is made by a process of its own, at moments when people wait anyway (the install, ``init``,
``doctor``), and not by the first session that happens to run. A JVM that records an archive starts
more slowly and spends 13 s at its exit on writing it, after its Python process is gone, so that
nobody is left to tell a complete file from half of one. Nor does a session start the training beside
itself unless it is asked to: that takes both cores of a small machine for most of a minute.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import SparkConfig, cache_directory
from penstock.errors import TerminalError
from penstock.spark.java import Java, find

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_FORMAT = 1
"""Raise it when the training workload or the JVM options that an archive depends on change."""

_TIME_LIMIT = 300

# Some Javas call it an error that an archive cannot be used in full; a JVM that cannot start says so anyway.
_SILENT = "-Xlog:disable"


def archive(java: Java) -> Path | None:
    """The archive for this Java and this PySpark, if it has been made."""
    path = _path(java)
    return path if path.is_file() else None


def train(java: Java) -> Path | None:
    """Make the archive, in a process of its own; None when another process is making it now.

    It takes half a minute to a minute. An archive that is already there is kept.
    """
    path = _path(java)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(path.with_suffix(".lock")) as alone:
        if not alone:
            return archive(java)
        if not path.is_file():
            _train(java, path)
    return path


def train_in_background(java: Java) -> None:
    """Start `train` with the lowest priority, in a process that outlives this one if it must."""
    command = ["nice", "-n", "19", sys.executable, "-m", "penstock.spark.cds"]
    environ = {**os.environ, "JAVA_HOME": str(java.installed)}
    quiet = subprocess.DEVNULL
    # The child is never waited for: it is not ours to end, and the kernel takes care of it when we do.
    subprocess.Popen(command, env=environ, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def flags(path: Path) -> list[str]:
    """JVM options that use an archive, and go on without a word when it does not fit."""
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={path}", _SILENT]


def _path(java: Java) -> Path:
    # A JVM takes an archive only for the same build and the same jars at the same place.
    parts = (_FORMAT, java.build, java.installed, version("pyspark"), _pyspark_folder())
    key = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]
    return cache_directory() / "cds" / f"spark-{version('pyspark')}-java-{java.version}-{key}.jsa"


def _pyspark_folder() -> str:
    spec = importlib.util.find_spec("pyspark")
    return str(spec.origin) if spec else ""


@contextmanager
def _only_one(path: Path) -> Iterator[bool]:
    """Whether this process holds the lock; the kernel frees it when the process dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def _train(java: Java, path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".train-", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        command = [sys.executable, "-m", "penstock.spark.cds", str(draft), *_base(java, path, folder)]
        environ = {**os.environ, "JAVA_HOME": str(java.installed)}
        # The JVM writes the archive while it exits, after its Python process. It has inherited the
        # pipes, so reading them to their end waits for it too.
        done = subprocess.run(
            command, env=environ, cwd=folder, capture_output=True, text=True, timeout=_TIME_LIMIT, check=False
        )
        if done.returncode or not draft.is_file():
            raise TerminalError(
                f"Spark's class archive could not be made:\n{(done.stderr or done.stdout).strip()[-2000:]}",
                left="nothing; sessions start without it, only more slowly",
            )
        draft.replace(path)


def _base(java: Java, path: Path, folder: str) -> list[str]:
    """The archive of Java's own classes that ours builds on, where this Java comes without one.

    Ours remembers where it is, so it is made at its final place.
    """
    if any((java.installed / "lib").glob("*/classes*.jsa")):
        return []
    base = path.with_suffix(".base.jsa")
    if not base.is_file():
        draft = Path(folder) / base.name
        program = str(java.installed / "bin" / "java")
        dump = [program, "-Xshare:dump", f"-XX:SharedArchiveFile={draft}", _SILENT]
        subprocess.run(dump, capture_output=True, timeout=_TIME_LIMIT, check=False)
        if not draft.is_file():
            return []
        draft.replace(base)
    return [str(base)]


def _workload(spark: SparkSession, folder: str) -> None:
    """Load the classes that a run uses: scans and writes, a shuffle, a join, and Arrow in Python."""
    from pyspark.sql import functions as sf

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    rows = spark.range(2000).select(
        "id",
        (sf.col("id") % 7).alias("k"),
        sf.col("id").cast("double").alias("x"),
        sf.col("id").cast("string").alias("s"),
        sf.timestamp_seconds("id").alias("t"),
        sf.col("id").cast("decimal(18,2)").alias("d"),
    )
    rows.write.parquet(f"{folder}/rows")
    read = spark.read.parquet(f"{folder}/rows").filter("x > 3")
    totals = read.groupBy("k").agg(sf.sum("d").alias("total"), sf.count("*").alias("n"), sf.max("s"))
    joined = read.join(totals, "k").withColumn("late", sf.when(sf.col("n") > 1, sf.upper("s")).otherwise("-"))
    joined.mapInArrow(same, joined.schema).write.parquet(f"{folder}/joined")
    read.mapInArrow(same, read.schema).groupBy("k").count().toArrow()
    spark.createDataFrame(rows.limit(10).toArrow()).orderBy("id").collect()
    spark.sql("SELECT 1").collect()


def _record(draft: str, base: str | None = None) -> None:
    from penstock.spark import session

    options = [f"-XX:ArchiveClassesAtExit={draft}", _SILENT]
    if base:
        options.append(f"-XX:SharedArchiveFile={base}")
    config = SparkConfig(master="local[2]", conf={"spark.driver.extraJavaOptions": " ".join(options)})
    spark = session.start(config, app_name="penstock-train", use_archive=False)
    with tempfile.TemporaryDirectory() as folder:
        _workload(spark, folder)
    spark.stop()


def _main(arguments: list[str]) -> None:
    """Train; or, given a path, be the process whose JVM records the archive there."""
    if arguments:
        _record(*arguments)
    else:
        train(find())


if __name__ == "__main__":
    _main(sys.argv[1:])
