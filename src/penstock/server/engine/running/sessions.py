"""Spark sessions of the gateway: one for each time zone that clients use, all on one Spark.

When that Spark is lost, whoever wants a session waits for the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.server.engine.faults import CANCELED, TIMEOUT
from penstock.spark.session import beside, leave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT = 32
_PATIENCE = 120.0
"""Seconds that a statement waits for a Spark that is being started again."""
_LOOK_EVERY = 0.1
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    # `${…}` in a statement would read Spark's settings and the environment of the driver.
    "spark.sql.variable.substitute": "false",
    # A path in the place of a table would read any file that the driver can.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}


class SparkSessions:
    """Gives the session for a time zone; the ones used longest ago are let go."""

    def __init__(self, spark: SparkSession, kept: int = _KEPT, patience: float = _PATIENCE) -> None:
        self._spark: SparkSession | None = spark
        self._kept = kept
        self._patience = patience
        self._lock = threading.Condition()
        self._sessions: OrderedDict[str, SparkSession] = OrderedDict()
        self._making: dict[str, _Making] = {}
        # PySpark prints every wrong statement with the JVM's whole trace. Clients get errors from us.
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    @property
    def spark(self) -> SparkSession | None:
        """The Spark of now; None while there is none."""
        return self._spark

    def of(self, timezone: str, wanted: Callable[[], None] = lambda: None) -> SparkSession:
        """The session. Waits for a Spark, as long as ``wanted`` does not raise; then `SqlError` 57P03."""
        own: _Making | None = None
        with self._lock:
            while True:
                spark = self._present(wanted)
                if (session := self._sessions.get(timezone)) is not None:
                    self._sessions.move_to_end(timezone)
                    return session
                # Whoever else waits for it tries again: an error belongs to one statement.
                if own is not None and own.spark is spark and own.error is not None:
                    raise own.error
                if timezone not in self._making and len(self._making) < self._kept:
                    own = self._make(spark, timezone)
                wanted()
                self._lock.wait(_LOOK_EVERY)

    def wait(self, wanted: Callable[[], None] = lambda: None) -> None:
        """Return when there is a Spark; `of` says what is raised if not."""
        with self._lock:
            self._present(wanted)

    def lose(self) -> None:
        """Spark is gone, and all sessions with it."""
        with self._lock:
            self._spark = None
            self._sessions.clear()
            self._making.clear()
            self._lock.notify_all()

    def renew(self, spark: SparkSession) -> None:
        """There is another Spark: who waits goes on."""
        with self._lock:
            self._sessions.clear()
            self._making.clear()
            self._spark = spark
            self._lock.notify_all()

    def _present(self, wanted: Callable[[], None]) -> SparkSession:
        deadline = time.monotonic() + self._patience
        while self._spark is None:
            wanted()
            if time.monotonic() > deadline:
                raise SqlError("Spark is being started again", sqlstate="57P03", hint="try again in a minute")
            self._lock.wait(_LOOK_EVERY)
        return self._spark

    def close(self) -> None:
        """Let go of all of them. None is asked for afterwards."""
        with self._lock:
            sessions = list(self._sessions.values())
            self._sessions.clear()
        for session in sessions:
            leave(session)

    def _make(self, spark: SparkSession, timezone: str) -> _Making:
        """Have a session made in a thread of its own: a JVM that hangs never answers."""
        making = self._making[timezone] = _Making(spark)
        threading.Thread(
            target=self._try, args=[making, timezone], name="penstock-session", daemon=True
        ).start()
        return making

    def _try(self, making: _Making, timezone: str) -> None:
        session = error = None
        try:
            session = _made(making.spark, timezone)
        except Exception as caught:
            error = caught
        with self._lock:
            making.error = error
            if self._making.get(timezone) is making:
                del self._making[timezone]
            if session is not None and self._spark is making.spark:
                self._keep(timezone, session)
            self._lock.notify_all()

    def _keep(self, timezone: str, session: SparkSession) -> None:
        self._sessions[timezone] = session
        self._sessions.move_to_end(timezone)
        while len(self._sessions) > self._kept:
            self._sessions.popitem(last=False)


@dataclass(slots=True, eq=False)
class _Making:
    """A session that is being made."""

    spark: SparkSession
    error: Exception | None = None


def until(timeout: float | None, check: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """What raises when ``check`` does, or when a statement has had its time."""
    deadline = None if timeout is None else time.monotonic() + timeout

    def wanted() -> None:
        check()
        if deadline is not None and time.monotonic() > deadline:
            raise SqlError(TIMEOUT, sqlstate=CANCELED)

    return wanted


def _made(spark: SparkSession, timezone: str) -> SparkSession:
    try:
        return beside(spark, {**_SETTINGS, "spark.sql.session.timeZone": timezone})
    except Exception as error:
        if "timeZone" not in str(error):
            raise
        raise SqlError(
            f"Spark does not know the time zone {timezone!r}",
            sqlstate="22023",
            hint="set one by name or offset: SET TIME ZONE 'Europe/Berlin'",
        ) from error
