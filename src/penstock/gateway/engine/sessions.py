"""Spark sessions of the gateway: one for each time zone that clients use, all on one Spark."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.spark.session import beside, leave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT = 32
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


class Sessions:
    """Gives the session for a time zone; the ones used longest ago are let go."""

    def __init__(self, spark: SparkSession, kept: int = _KEPT) -> None:
        self.spark = spark
        self._kept = kept
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, SparkSession] = OrderedDict()
        # PySpark prints every wrong statement with the JVM's whole trace. Clients get errors from us.
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    def of(self, timezone: str) -> SparkSession:
        with self._lock:
            session = self._sessions.get(timezone) or self._make(timezone)
            self._sessions[timezone] = session
            self._sessions.move_to_end(timezone)
            while len(self._sessions) > self._kept:
                self._sessions.popitem(last=False)
            return session

    def close(self) -> None:
        """Let go of all of them. None is asked for afterwards."""
        with self._lock:
            while self._sessions:
                leave(self._sessions.popitem()[1])

    def _make(self, timezone: str) -> SparkSession:
        try:
            return beside(self.spark, {**_SETTINGS, "spark.sql.session.timeZone": timezone})
        except Exception as error:
            if "timeZone" not in str(error):
                raise
            raise SqlError(
                f"Spark does not know the time zone {timezone!r}",
                sqlstate="22023",
                hint="set one by name or offset: SET TIME ZONE 'Europe/Berlin'",
            ) from error
