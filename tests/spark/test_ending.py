"""When a Spark is taken to be over."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import pytest

from penstock.spark import ending
from penstock.spark.ending import SparkLiveness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = 60.0
REFUSED, FULL = ConnectionRefusedError(errno.ECONNREFUSED, "x"), OSError(errno.EMFILE, "too many open files")


def wrapped(error: Exception) -> Exception:
    found = RuntimeError("an error of the network")
    found.__cause__ = error
    return found


class Asked:
    """Answers the questions of a pulse: with errors, as long as there are some, or forever with the last."""

    def __init__(self, answers: list[Exception | bool]) -> None:
        self.answers = answers
        self.count = 0
        self.news = threading.Condition()

    def __call__(self, _: object) -> bool:
        with self.news:
            answer = self.answers[min(self.count, len(self.answers) - 1)]
            self.count += 1
            self.news.notify_all()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait(self, count: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: self.count >= count, LONG)


@contextmanager
def pulse(
    monkeypatch: pytest.MonkeyPatch, answers: list[Exception | bool], every: float = 0.01
) -> Iterator[tuple[SparkLiveness, Asked]]:
    asked = Asked(answers)
    monkeypatch.setattr(ending, "_stopped", asked)
    monkeypatch.setattr(ending, "process", lambda _: None)
    monkeypatch.setattr(ending, "_ASK_EVERY", every)
    found = SparkLiveness(cast("SparkSession", object()))
    try:
        yield found, asked
    finally:
        found.close()


def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_questions_that_fail_now_and_then_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception | bool] = [REFUSED, REFUSED, False, REFUSED, REFUSED, False]
    with pulse(monkeypatch, answers) as (found, asked):
        for count in range(2, 10):
            asked.wait(count)
            assert found.over() is None


def test_several_in_a_row_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pulse(monkeypatch, [False, REFUSED]) as (found, asked):
        until(lambda: found.over() is not None)
        assert asked.count >= 4 and found.over() == "it does not answer"


def test_one_does_when_a_query_has_seen_that_something_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with pulse(monkeypatch, [False, REFUSED], every=LONG) as (found, asked):
        asked.wait(1)
        found.doubt()
        until(lambda: found.over() is not None)
        assert asked.count == 2


@pytest.mark.parametrize("error", [FULL, wrapped(FULL)])
def test_what_we_lack_ourselves_says_nothing_about_spark(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with pulse(monkeypatch, [error]) as (found, asked):
        for count in range(2, 10):
            found.doubt()
            asked.wait(count)
            assert found.over() is None


def test_one_that_says_that_it_has_stopped_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pulse(monkeypatch, [True], every=LONG) as (found, _):
        until(lambda: found.over() == "it has stopped")
