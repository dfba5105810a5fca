"""Keeps a Spark behind the engine: when it ends, another one is started, and clients stay where they are."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.spark.ending import SparkLiveness, discard, kill
from penstock.spark.session import cancel_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.server.engine.engine import SparkEngine
    from penstock.server.relations import Tables

_log = logging.getLogger(__name__)

_LOOK_EVERY = 0.2
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between tries to start Spark again."""
_PATIENCE = 15.0
_STOPPING = 5.0
_NOTICED = 3.0


@dataclass(frozen=True, slots=True)
class Compute:
    """A Spark and the tables on it."""

    spark: SparkSession
    tables: Tables


class SparkSupervisor:
    """Starts Spark, watches it, and starts it again, until `stop`. ``tell`` gets what is worth knowing.

    ``start`` makes a session; ``furnish`` puts the tables on it.
    """

    def __init__(
        self,
        start: Callable[[], SparkSession],
        furnish: Callable[[SparkSession], Tables],
        tell: Callable[[str], None],
    ) -> None:
        self._start = start
        self._furnish = furnish
        self._tell = tell
        self._ending = threading.Event()
        self._look = threading.Event()
        self._now: Compute | None = None
        self._given: Compute | None = None
        """What the engine has got."""
        self._spark: SparkSession | None = None
        self._pulse: SparkLiveness | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> Compute:
        """The first Spark. What was started is ended again if that fails."""
        self._given = self._begun()
        return self._given

    def watch(self, engine: SparkEngine) -> None:
        """Have the engine get another Spark when it loses the one that it has."""
        engine.doubt = self.doubt
        engine.over = self.over
        self._thread = threading.Thread(
            target=self._watch, args=[engine], name="penstock-supervisor", daemon=True
        )
        self._thread.start()

    def over(self) -> bool:
        """Whether Spark is gone. Returns at once."""
        pulse = self._pulse
        return pulse is None or pulse.over() is not None

    def doubt(self) -> None:
        """Look now: when this returns, an end of Spark is known to all, so that what comes next waits."""
        pulse = self._pulse
        deadline = time.monotonic() + _NOTICED
        while pulse is not None and self._pulse is pulse and not self._ending.is_set():
            if time.monotonic() > deadline:
                return
            pulse.doubt()
            self._look.set()
            time.sleep(_LOOK_EVERY / 10)

    def let_go(self) -> None:
        """Cancel what Spark is at while it starts: its jobs may wait for workers that never come."""
        if (spark := self._spark) is not None:
            with suppress(Exception):
                cancel_all(spark)

    def rest(self) -> None:
        """Start nothing any more; what runs goes on."""
        self._ending.set()
        self._look.set()

    def stop(self) -> None:
        """End Spark, whatever it is at."""
        self.rest()
        deadline = time.monotonic() + _PATIENCE
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < deadline:
            self.let_go()
            self._thread.join(_LOOK_EVERY)
        now, self._now = self._now, None
        if now is not None:
            self._end(now)
        elif self._spark is not None:
            # It was about to be started again, or for the first time.
            discard(self._spark)

    def _begun(self) -> Compute:
        self._spark = spark = self._start()
        try:
            now = Compute(spark, self._furnish(spark))
            self._pulse = SparkLiveness(spark)
        except BaseException:
            discard(spark)
            raise
        self._now = now
        return now

    def _watch(self, engine: SparkEngine) -> None:
        """Nothing that goes wrong on the way ends this: it is told, and tried again."""
        tries = 0
        while not self._ending.is_set():
            self._look.wait(_LOOK_EVERY)
            self._look.clear()
            try:
                self._look_after(engine)
                tries = 0
            except Exception as error:
                if self._ending.is_set():
                    return
                _log.debug("Spark could not be started again", exc_info=error)
                self._say(f"Spark could not be started again: {_first_line(error)}")
                self._ending.wait(_PAUSES[min(tries, len(_PAUSES) - 1)])
                tries += 1

    def _look_after(self, engine: SparkEngine) -> None:
        """Take the next step towards a Spark that works and that the engine has. Each can be tried again."""
        pulse, now = self._pulse, self._now
        if pulse is not None and now is not None and (why := pulse.over()) is not None:
            self._say(f"Spark has ended: {why}. It is started again")
            self._lose(engine, pulse, now)
        if self._now is None and not self._ending.is_set():
            self._begun()
        if (now := self._now) is not None and now is not self._given:
            engine.renew(now.spark, now.tables)
            self._given = now
            self._say("Spark is back: statements are answered again")

    def _lose(self, engine: SparkEngine, pulse: SparkLiveness, lost: Compute) -> None:
        # First the JVM: whoever waits for the answer of one that hangs may hold what others need.
        steps: tuple[Callable[[], None], ...] = (
            partial(kill, lost.spark),
            engine.lose,
            pulse.close,
            self._forget,
            partial(discard, lost.spark),
            lost.tables.close,
        )
        for step in steps:
            try:
                step()
            except Exception as error:
                _log.debug("what is left of a Spark that has ended could not be cleared", exc_info=error)

    def _forget(self) -> None:
        self._pulse = self._now = None

    def _say(self, what: str) -> None:
        # Whoever is told may be gone, a pipe that is closed: that is no reason to have no Spark.
        with suppress(Exception):
            self._tell(what)

    def _end(self, now: Compute) -> None:
        if (pulse := self._pulse) is not None:
            pulse.close()
        # It tidies up behind itself if it can be asked to; a task that listens to nobody is not waited for.
        asked = threading.Thread(target=_stopped, args=[now], name="penstock-stop", daemon=True)
        asked.start()
        asked.join(_STOPPING)
        discard(now.spark)


def _stopped(now: Compute) -> None:
    with suppress(Exception):
        now.tables.close()
    with suppress(Exception):
        now.spark.stop()


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
