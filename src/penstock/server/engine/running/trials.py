"""Queries on their way to Spark and back: which of them may begin, and which ran when Spark ended."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.server.engine.faults import CRASHED, NO_MEMORY
from penstock.server.engine.running.suspects import Key, Suspects

if TYPE_CHECKING:
    from penstock.server.engine.running.query import SparkExecution

_RECENT = 30.0
"""Seconds after which a query that found no memory has nothing to do with an end of Spark any more."""
_LOOK_EVERY = 0.1


class Trials:
    """What runs on Spark, for any thread. ``doubt`` is called when a query finds that Spark is gone."""

    def __init__(self, doubt: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._doubt = doubt
        self._clock = clock
        self._free = threading.Condition()
        self._suspects = Suspects()
        self._running: dict[str, SparkExecution] = {}
        self._struck: list[tuple[float, Key]] = []
        """What was there when Spark ended, or had no memory left, and has ended before that was noticed."""

    def begin(self, execution: SparkExecution) -> None:
        """Return when it may run. Raises `SqlError` for what must not, or is not wanted any more."""
        with self._free:
            if self._suspects:
                self._wait(execution)
            self._running[execution.id] = execution

    def end(self, execution: SparkExecution, error: SqlError | None) -> None:
        with self._free:
            if self._running.pop(execution.id, None) is None:
                return
            struck = error is not None and error.sqlstate in (CRASHED, NO_MEMORY)
            if struck or self._suspects:
                key = _key(execution)
                self._suspects.end(key, execution.id, well=error is None)
                if struck:
                    self._remember(key)
            self._free.notify_all()
        if error is not None and error.sqlstate == CRASHED:
            self._doubt()

    def ended(self) -> None:
        """Spark has ended."""
        with self._free:
            now = self._clock()
            keys = {_key(execution) for execution in self._running.values()}
            keys |= {key for at, key in self._struck if at > now - _RECENT}
            self._struck.clear()
            # Those that have not found out yet are counted here, and not once more when they do.
            self._running.clear()
            self._suspects.ended(keys, now)
            self._free.notify_all()

    def at_work(self) -> list[SparkExecution]:
        """What runs on Spark now."""
        with self._free:
            return list(self._running.values())

    def _wait(self, execution: SparkExecution) -> None:
        key, since = _key(execution), self._clock()
        try:
            while True:
                now, others = self._clock(), len(self._running)
                self._suspects.check(key, now)
                if self._suspects.begin(key, execution.id, now, since=since, others=others):
                    return
                execution.check()
                self._free.wait(_LOOK_EVERY)
        except BaseException:
            # It may have been the next one on trial.
            self._suspects.end(key, execution.id, well=False)
            self._free.notify_all()
            raise

    def _remember(self, key: Key) -> None:
        now = self._clock()
        self._struck = [each for each in self._struck if each[0] > now - _RECENT]
        self._struck.append((now, key))


def _key(execution: SparkExecution) -> Key:
    """Who asks, and what: however it is laid out."""
    plan = execution.plan
    try:
        text = plan.analysis.tree.sql(dialect=plan.analysis.dialect, normalize=True, comments=False)
    except Exception:
        # What cannot be written down is known by how it was written.
        text = plan.sql
    return execution.client.user.name, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
