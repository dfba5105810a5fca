"""Queries that are suspected of having ended Spark, in threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from penstock.errors import SqlError
from penstock.server.engine.running.trials import Trials

if TYPE_CHECKING:
    from penstock.server.engine.running.query import SparkExecution

LONG = 60.0


class Pretended:
    """A query that is on its way to Spark."""

    def __init__(self, user: str, sql: str) -> None:
        self.id = self.sql = sql
        self.plan = SimpleNamespace(sql=sql)
        self.client = SimpleNamespace(user=SimpleNamespace(name=user))
        self.asked = threading.Event()
        self.cancelled = False

    def check(self) -> None:
        self.asked.set()
        if self.cancelled:
            raise SqlError("cancelled", sqlstate="57014")


def made(user: str, sql: str) -> tuple[Pretended, SparkExecution]:
    pretended = Pretended(user, sql)
    return pretended, cast("SparkExecution", pretended)


def test_a_trial_waits_for_others_and_others_for_it_until_it_is_cancelled() -> None:
    trials = Trials(lambda: None, clock=lambda: 0.0)
    (first, one), (_, two), (_, three), (last, four) = (made("ann", sql) for sql in "abcd")
    trials.begin(one)
    trials.begin(two)
    trials.ended()
    trials.begin(three)
    with ThreadPoolExecutor(2) as pool:
        trial = pool.submit(trials.begin, one)
        assert first.asked.wait(LONG)
        other = pool.submit(trials.begin, four)
        assert last.asked.wait(LONG)
        assert not trial.done() and not other.done()
        first.cancelled = True
        with pytest.raises(SqlError, match="cancelled"):
            trial.result(LONG)
        # It had not begun, and makes room all the same.
        other.result(LONG)
    trials.end(three, None)
    trials.end(four, None)
    trials.begin(two)
    trials.ended()
    with pytest.raises(SqlError, match="ended Spark twice"):
        trials.begin(two)
