"""The end of a Spark that nobody asked to end: how it is noticed, and how room is made for another.

PySpark holds one JVM for a process and never lets go of it. When that JVM has ended, everything that it
holds must go, or the next session would be one of a JVM that is not there.
"""

from __future__ import annotations

import errno
import subprocess
import threading
import time
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from penstock.spark.session import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_ASK_EVERY = 2.0
_SILENCE = 120.0
"""Seconds without an answer to the simplest question after which a JVM is given up."""
_FAILURES = 3
"""Questions in a row without an answer after which a Spark is given up that nobody has doubted."""
_GRACE = 10.0
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL})


class SparkLiveness:
    """Tells when a session's Spark is over: its JVM has ended, or hangs, or has stopped its context.

    A question to a JVM that hangs never returns, so questions are asked in a thread of their own.
    """

    def __init__(
        self, spark: SparkSession, clock: Callable[[], float] = time.monotonic, silence: float = _SILENCE
    ) -> None:
        self._spark = spark
        self._process = process(spark)
        self._clock = clock
        self._silence = silence
        self._heard = clock()
        self._why: str | None = None
        self._ended = threading.Event()
        self._asked = threading.Event()
        threading.Thread(target=self._ask, name="penstock-pulse", daemon=True).start()

    def over(self) -> str | None:
        """Why this Spark is over; None while it works. Returns at once."""
        if self._process is not None and (code := self._process.poll()) is not None:
            return f"its Java process has ended ({_told(code)})"
        if self._why is None and self._clock() - self._heard > self._silence:
            return f"it has not answered for {self._silence:.0f} s"
        return self._why

    def doubt(self) -> None:
        """Ask now, since something was seen that should not be."""
        self._asked.set()

    def close(self) -> None:
        self._ended.set()
        self._asked.set()

    def _ask(self) -> None:
        failures, doubted = 0, False
        while not self._ended.is_set():
            try:
                self._why = "it has stopped" if _stopped(self._spark) else None
                failures = 0
            except Exception as error:
                # One question may fail on its way. Without a file left of our own, none was asked.
                failures += not _is_ours(error)
                if failures >= _FAILURES or (failures and doubted):
                    self._why = "it does not answer"
            self._heard = self._clock()
            doubted = self._asked.wait(_ASK_EVERY)
            self._asked.clear()


def process(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    """The JVM of a classic session, if this process has started it."""
    if is_connect(spark):
        return None
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001
    found = None if gateway is None else gateway.__dict__.get("proc")
    return cast("subprocess.Popen[bytes] | None", found)


def kill(spark: SparkSession) -> None:
    """End the JVM, if this process has started it, so that nobody waits for its answer. Returns at once."""
    jvm = process(spark)
    if jvm is not None:
        jvm.kill()


def discard(spark: SparkSession) -> None:
    """End what is left of a Spark, its JVM too, even one that hangs. Then another one can be started."""
    if is_connect(spark):
        _forget_connect(spark)
        return
    jvm = process(spark)
    if jvm is not None:
        jvm.kill()
        # It is a child of ours, and gone for the system only when it was waited for.
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(_GRACE)
        if jvm.stdin is not None:
            with suppress(OSError):
                jvm.stdin.close()
    _forget(spark)


def _is_ours(error: BaseException | None) -> bool:
    """Whether this process, or its machine, has nothing left to ask with."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _OURS:
            return True
        error = error.__cause__ or error.__context__
    return False


def _stopped(spark: SparkSession) -> bool:
    if is_connect(spark):
        spark.conf.get("spark.app.name")
        return False
    java = spark.sparkContext._jsc  # noqa: SLF001
    return java is None or bool(java.sc().isStopped())


def _forget(spark: SparkSession) -> None:
    """Take the session out of everything in which PySpark keeps it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Session
    from pyspark.sql.context import SQLContext

    context, session, sql = cast("Any", SparkContext), cast("Any", Session), cast("Any", SQLContext)
    with warnings.catch_warnings(), suppress(Exception):
        # That it cannot be shut down cleanly is known.
        warnings.simplefilter("ignore")
        spark.sparkContext.stop()
    gateway = context._gateway  # noqa: SLF001
    with context._lock:  # noqa: SLF001
        context._active_spark_context = None  # noqa: SLF001
        context._gateway = None  # noqa: SLF001
        context._jvm = None  # noqa: SLF001
    session._instantiatedSession = None  # noqa: SLF001
    session._activeSession = None  # noqa: SLF001
    sql._instantiatedContext = None  # noqa: SLF001
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()


def _forget_connect(spark: SparkSession) -> None:
    # Its server may not answer: the channel is closed, whatever becomes of the session over there. PySpark
    # passes over a session without a channel when it is asked for one.
    with suppress(Exception):
        cast("Any", spark).client.close()


def _told(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
