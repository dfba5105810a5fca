"""Start Spark: the only place that does, and the only one that knows classic from Connect sessions."""

from __future__ import annotations

import logging
import os
import pickle
import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from penstock.config import SparkConfig, is_secret
from penstock.core.packages import need
from penstock.errors import UsageError
from penstock.spark import cds, java, stderr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_LOOPBACK = "127.0.0.1"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_THREADS = "32"
_CONNECT_PORT = 15002
_PATIENCE = 10.0

_OURS = "spark.penstock.settings"

AUTHENTICATED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
}
"""Nobody talks to Spark's ports, or listens, who does not know its secret."""

# Settings that results depend on.
_RESULT_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Without it a batch of the wrong type fails as `Cannot call getInt`.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # Spark's default, INT96, is read in nanoseconds by others, which end in the year 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

# Settings that also a Connect server takes from its clients.
_QUERY_SETTINGS = {
    **_RESULT_SETTINGS,
    # A limit in bytes makes Spark ask for the size after every row, which more than doubles the cost of
    # a crossing to Python. There is only the limit in rows: very wide rows need a lower one.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}

_CLASSIC_SETTINGS = {
    **_QUERY_SETTINGS,
    _OURS: "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.structuredLogging.enabled": "false",
    # The parser remembers every turn that it took. Statements of many kinds filled 600 MB with that.
    "spark.sql.parser.manageParserCaches": "true",
    "spark.sql.parser.parserDfaCacheFlushRatio": "20",
    # Each keeps a thread per waiting stage by default: several hundred were seen.
    "spark.sql.shuffleExchange.maxThreadThreshold": _THREADS,
    "spark.sql.resultQueryStage.maxThreadThreshold": _THREADS,
    # What is complete is said by the manifest, not by a marker file beside the data.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # A lost executor costs a task one more try. A transform's own errors are retried by the runner,
    # which knows which of them are worth it.
    "spark.task.maxFailures": "2",
}


def start(
    config: SparkConfig | None = None, *, app_name: str = "penstock", use_archive: bool = True
) -> SparkSession:
    """The session for ``config``: in this process, on a cluster, or on a Spark Connect server.

    A process has one classic session. When it has one already, however it was started, that one is
    returned with those of our settings that can still be changed.
    """
    config = config or SparkConfig()
    if config.master.startswith("sc://"):
        return _connect(config)
    return _classic(config, app_name, use_archive)


def conform(spark: SparkSession) -> None:
    """Give a session that somebody else started the settings that results depend on."""
    if spark.conf.get(_OURS, "false") != "true":
        for key, value in {**_RESULT_SETTINGS, _OURS: "true"}.items():
            spark.conf.set(key, value)


def is_connect(spark: SparkSession) -> bool:
    """Whether the session talks to a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def job_tag(spark: SparkSession, tag: str) -> Iterator[None]:
    """Mark the jobs that this thread starts inside the block. A tag has no comma and is not empty."""
    if is_connect(spark):
        add, remove = spark.addTag, spark.removeTag
    else:
        add, remove = spark.sparkContext.addJobTag, spark.sparkContext.removeJobTag
    add(tag)
    try:
        yield
    finally:
        # When the JVM is gone, the error of the block says more than that its tag cannot be removed.
        with suppress(Exception):
            remove(tag)


def cancel_tag(spark: SparkSession, tag: str) -> None:
    """Cancel the jobs under ``tag`` that run now, from any thread, and no others.

    A job that its thread starts a moment later is not cancelled: a caller that wants the thread to
    end repeats this until it has ended.
    """
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def waits_for_cores(spark: SparkSession, tag: str) -> bool:
    """Whether tasks of jobs under ``tag`` wait for a core. A Connect server does not tell: it may be."""
    if is_connect(spark):
        return True
    context = spark.sparkContext
    jobs = cast("Any", context)._jsc.sc().statusTracker().getJobIdsForTag(tag)  # noqa: SLF001
    tracker = context.statusTracker()
    active = set(tracker.getActiveStageIds())
    infos = filter(None, (tracker.getJobInfo(job) for job in jobs))
    stages = {stage for info in infos for stage in info.stageIds} & active
    found = filter(None, (tracker.getStageInfo(stage) for stage in stages))
    return any(each.numTasks > each.numCompletedTasks + each.numActiveTasks for each in found)


def cancel_all(spark: SparkSession) -> None:
    """Cancel all jobs that run now, from any thread."""
    if is_connect(spark):
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()


def is_local(spark: SparkSession) -> bool:
    """Whether tasks run in this process's own JVM, and so on this machine."""
    return not is_connect(spark) and local_cores(spark.sparkContext.master or "") is not None


def parallelism(spark: SparkSession) -> int:
    """How many tasks can run at once; of a Connect server, how many it cuts a shuffle into."""
    if is_connect(spark):
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 8)
    return int(spark.sparkContext.defaultParallelism)


def is_alive(spark: SparkSession) -> bool:
    """Whether the session's JVM (or Connect server) still answers."""
    try:
        spark.conf.get("spark.app.name")
    except Exception:
        return False
    return True


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A DataFrame without rows. In a classic session, PySpark would make it from an RDD, which is slow."""
    if is_connect(spark):
        return spark.createDataFrame([], schema)
    from pyspark.sql import DataFrame

    session, jvm = spark._jsparkSession, cast("Any", spark._jvm)  # noqa: SLF001
    rows = session.createDataFrame(jvm.java.util.ArrayList(), session.parseDataType(schema.json()))
    return DataFrame(rows, spark)


def beside(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Another session on the same Spark, with settings and temporary views of its own; see `leave`."""
    other = spark.newSession()
    for key, value in {**_QUERY_SETTINGS, _OURS: "true", **settings}.items():
        other.conf.set(key, value)
    return other


def leave(spark: SparkSession) -> None:
    """Let go of a session of `beside`, before the process ends.

    One of a Connect server has a channel of its own, which Python would wait for in vain at its end. To stop
    a classic one would stop Spark.
    """
    if is_connect(spark):
        with suppress(Exception):
            spark.stop()


def estimated_bytes(frame: DataFrame) -> int | None:
    """How large Spark's optimizer takes the result to be; None in a Connect session, which does not tell."""
    if is_connect(frame.sparkSession):
        return None
    plan = cast("Any", frame)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    return int(str(plan.stats().sizeInBytes()))


class Shared(Protocol[T_co]):
    """A value that functions running on executors may capture, sent to each of them once."""

    @property
    def value(self) -> T_co: ...


@dataclass(frozen=True, slots=True)
class _Captured(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class _Broadcast(Generic[T]):
    pickled: Any

    @property
    def value(self) -> T:
        value: T = pickle.loads(self.pickled.value)  # noqa: S301
        return value


def broadcast(spark: SparkSession, value: T) -> Shared[T]:
    """Make ``value`` available to executors. Connect has no broadcasts: there it travels in the closure.

    It is pickled here, because Spark's own way cannot send objects of classes that executors cannot
    import, such as those of the file that defines the pipeline.
    """
    if is_connect(spark):
        return _Captured(value)
    from pyspark import cloudpickle

    return _Broadcast(spark.sparkContext.broadcast(cloudpickle.dumps(value)))  # type: ignore[no-untyped-call]


def local_cores(master: str) -> int | None:
    """How many tasks a ``local`` master runs at once; None for any other master."""
    if master == "local":
        return 1
    match = re.fullmatch(r"local\[(\*|\d+)(?:,\s*\d+)?\]", master)
    if not match:
        return None
    return _cores() if match[1] == "*" else int(match[1])


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _connect(config: SparkConfig) -> SparkSession:
    need("connect", "a Spark Connect URL")
    from pyspark.sql import SparkSession

    _check_answers(config.master)
    spark = SparkSession.builder.remote(config.master).getOrCreate()
    for key, value in {**_QUERY_SETTINGS, _OURS: "true", **config.conf}.items():
        spark.conf.set(key, value)
    return spark


def _check_answers(url: str) -> None:
    """Raise if nobody listens: Spark's client would try again for ten minutes, and could not be ended."""
    place = urlsplit(url)
    host, port = place.hostname or "localhost", place.port or _CONNECT_PORT
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except OSError as error:
        raise UsageError(
            f"no Spark Connect server answers at {host}:{port}: {error.strerror or error}",
            hint="start it, or choose another spark.master",
        ) from error


def _classic(config: SparkConfig, app_name: str, use_archive: bool) -> SparkSession:
    cores = local_cores(config.master)
    settings = {
        **_CLASSIC_SETTINGS,
        "spark.master": config.master,
        "spark.app.name": app_name,
        "spark.driver.memory": config.memory,
        **(_local_settings(cores) if cores else {}),
        **config.conf,
    }
    _quiet()
    runtime = java.find()
    own = config.conf.get("spark.driver.extraJavaOptions", "")
    options = _jvm_options(config, runtime, cores is not None and use_archive)
    settings["spark.driver.extraJavaOptions"] = " ".join([*options, own]).strip()
    environ = {"JAVA_HOME": str(runtime.home)}
    if cores:
        environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": _LOOPBACK}
    else:
        environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    secrets = {key: settings.pop(key) for key in list(settings) if is_secret(key)}
    with _secrets_file(secrets) as arguments, _environment(environ | arguments), stderr.relayed():
        return _launch(settings)


def _quiet() -> None:
    """Keep py4j from printing the errors that it also raises, unless somebody wants to see them."""
    bridge = logging.getLogger("py4j")
    if bridge.level == logging.NOTSET:
        bridge.setLevel(logging.CRITICAL)


def _launch(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _local_settings(cores: int) -> dict[str, str]:
    return {
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        # Its ports are open to everybody on this machine; Spark makes a secret of its own for one process.
        **AUTHENTICATED,
        # Re-planning after each shuffle costs more than it saves on one machine.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
    }


def _jvm_options(config: SparkConfig, runtime: java.Java, use_archive: bool) -> list[str]:
    # Java's own warnings must not stand among the lines of --json.
    options = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}", "-XX:+DisplayVMOutputToStderr"]
    if config.fast_start:
        # With one compiler Java reserves 48 MB for code, and compiles nothing more when they are full.
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m"]
    if use_archive:
        if path := cds.archive(runtime):
            options += cds.flags(path)
        elif config.train_archive:
            cds.train_in_background(runtime)
    return options


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set variables while Spark is started. They are its business, not that of our other children."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _secrets_file(secrets: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Variables that hand over secrets in a private file: builder settings stand on a command line."""
    if not secrets:
        yield {}
        return
    name = "PYSPARK_SUBMIT_ARGS"
    with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="ascii") as file:
        file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in secrets.items())
        file.flush()
        arguments = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults"
        yield {name: f"{arguments} {os.environ.get(name, 'pyspark-shell')}"}


def _escaped(text: str) -> str:
    """Text as a Java properties file spells it."""
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    plain = re.compile(r"[A-Za-z0-9._-]").fullmatch
    return "".join(chr(c) if plain(chr(c)) else f"\\u{c:04x}" for c in codes)
