"""The breaker: the same error over and over halts, different ones and successes do not."""

from __future__ import annotations

from penstock.batch.runner.breaker import Breaker
from penstock.core.ranges import Range
from penstock.errors import StoreUnavailable, TransformFailed


def failure(partition: int) -> TransformFailed:
    return TransformFailed(f"trades.py:{partition}: ValueError: file part-{partition:08x}ab is bad\nmore")


def test_the_same_error_over_and_over_trips() -> None:
    breaker = Breaker(20, "r")
    assert [breaker.failed(failure(n), Range(n, n + 1)) for n in range(19)] == [None] * 19
    tripped = breaker.failed(failure(19), Range(19, 20))
    assert tripped is not None
    assert tripped.what.startswith("the last 20 attempts failed with the same error: trades.py:19")
    assert "penstock runs resume r" in (tripped.hint or "")


def test_a_success_or_another_error_begins_anew() -> None:
    breaker = Breaker(3, "r")
    for number in range(4):
        assert not breaker.failed(failure(0), Range(number, number + 1))
        assert not breaker.failed(failure(1), Range(number + 1, number + 2))
        if number % 2:
            breaker.succeeded()
        else:
            assert not breaker.failed(StoreUnavailable("away"), Range(number, number + 1))


def test_one_partition_alone_is_itself_to_blame() -> None:
    breaker = Breaker(3, "r")
    assert not any(breaker.failed(failure(n), Range(n % 2, n % 2 + 1)) for n in range(50))
    assert breaker.failed(failure(50), Range(2, 3))


def test_it_can_be_turned_off() -> None:
    breaker = Breaker(0, "r")
    assert not any(breaker.failed(failure(n), Range(n, n + 1)) for n in range(100))
