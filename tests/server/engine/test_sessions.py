"""Sessions while Spark hangs, ends and comes back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import pytest

from penstock.errors import SqlError
from penstock.server.engine.running.sessions import SparkSessions, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = 60.0


class Settings:
    def set(self, key: str, value: str) -> None:
        if key.endswith("timeZone") and value == "Nowhere":
            raise ValueError("bad timeZone")


class Pretended:
    """A Spark that makes sessions, or hangs until it is killed."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.asked, self.killed = threading.Event(), threading.Event()
        self.hangs = hangs
        self.made = 0
        self.conf = Settings()

    def newSession(self) -> Pretended:  # noqa: N802
        self.asked.set()
        if self.hangs:
            assert self.killed.wait(LONG)
            raise ConnectionError("Java has ended")
        self.made += 1
        return Pretended()


def of(spark: Pretended, **others: int) -> SparkSessions:
    return SparkSessions(cast("SparkSession", spark), **others)


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


def test_a_spark_that_hangs_can_be_lost_and_who_waits_gets_the_next_one(pool: ThreadPoolExecutor) -> None:
    hung, next_ = Pretended(hangs=True), Pretended()
    kept = of(hung)
    waiting = [pool.submit(kept.of, "UTC") for _ in range(3)]
    assert hung.asked.wait(LONG)
    pool.submit(kept.lose).result(LONG)
    assert kept.spark is None
    kept.renew(cast("SparkSession", next_))
    found = {id(each.result(LONG)) for each in waiting}
    assert len(found) == next_.made == 1
    # What the old one says in the end matters to nobody.
    hung.killed.set()
    assert id(kept.of("UTC")) in found


def test_waits_end_with_the_statement(pool: ThreadPoolExecutor) -> None:
    hung = Pretended(hangs=True)
    kept = of(hung)
    cancelled = threading.Event()

    def check() -> None:
        if cancelled.is_set():
            raise SqlError("cancelled", sqlstate="57014")

    timed = pool.submit(kept.of, "UTC", until(0.05))
    asked = pool.submit(kept.of, "UTC", until(None, check))
    with pytest.raises(SqlError, match="statement timeout") as told:
        timed.result(LONG)
    assert told.value.sqlstate == "57014"
    cancelled.set()
    with pytest.raises(SqlError, match="cancelled"):
        asked.result(LONG)
    kept.lose()
    with pytest.raises(SqlError, match="statement timeout"):
        kept.wait(until(0.05))
    hung.killed.set()


def test_an_error_belongs_to_the_statement_that_made_it() -> None:
    spark = Pretended()
    kept = of(spark)
    for _ in range(2):
        with pytest.raises(SqlError, match="Nowhere") as told:
            kept.of("Nowhere")
        assert told.value.sqlstate == "22023"
    assert kept.of("UTC") is kept.of("UTC")


def test_so_many_are_kept_and_no_more_are_made_at_once(pool: ThreadPoolExecutor) -> None:
    spark = Pretended()
    kept = of(spark, kept=2)
    first = kept.of("a")
    assert [kept.of(name) for name in "bc"] and kept.of("a") is not first
    hung = Pretended(hangs=True)
    before = set(threading.enumerate())
    kept.renew(cast("SparkSession", hung))
    for name in "abcd":
        with pytest.raises(SqlError):
            kept.of(name, until(0.01))
    makers = [each for each in set(threading.enumerate()) - before if each.name == "penstock-session"]
    assert len(makers) == 2
    hung.killed.set()
    for each in makers:
        each.join(LONG)


def test_what_no_spark_answers_is_refused_in_the_end() -> None:
    kept = SparkSessions(cast("SparkSession", Pretended()), patience=0.0)
    kept.lose()
    with pytest.raises(SqlError, match="started again") as told:
        kept.of("UTC")
    assert told.value.sqlstate == "57P03"
