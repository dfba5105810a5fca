"""Trying again: after which errors, how often, and with what pauses."""

from __future__ import annotations

import random

import pytest

from penstock.batch.pipeline import Retry
from penstock.batch.pipeline.retry import attempt, attempt_job, is_transient, merged
from penstock.errors import (
    DefinitionError,
    StoreUnavailable,
    TerminalError,
    TransformFailed,
    TransientError,
    WorkerLost,
)


class Flaky:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.mark.parametrize(
    "error", [TransientError("x"), StoreUnavailable(), ConnectionResetError(), TimeoutError()]
)
def test_transient_errors_are_tried_again(error: Exception) -> None:
    call, pauses = Flaky(error, error, error), list[float]()
    assert attempt(call, Retry(), pauses.append) == "done"
    assert call.calls == 4
    for pause, base in zip(pauses, (0.1, 0.2, 0.4), strict=True):
        assert base <= pause <= 1.5 * base


def test_the_last_error_comes_out() -> None:
    call = Flaky(*(TransientError(str(n)) for n in range(9)))
    with pytest.raises(TransientError, match=r"^3$"):
        attempt(call, Retry(), lambda _: None)
    assert call.calls == 4


@pytest.mark.parametrize("error", [TerminalError("x"), ValueError("x"), KeyError("x"), OSError("x")])
def test_other_errors_come_out_at_once(error: Exception) -> None:
    call = Flaky(error)
    with pytest.raises(type(error)):
        attempt(call, Retry(), lambda _: pytest.fail("slept"))
    assert call.calls == 1


def test_what_else_is_transient_can_be_said() -> None:
    for retry in (Retry(on=(OSError,)), Retry(on=OSError)):
        assert is_transient(PermissionError(), retry)
        assert is_transient(TransientError(), retry)
        assert not is_transient(ValueError(), retry)
    assert not is_transient(PermissionError(), Retry())


def test_pauses_have_jitter() -> None:
    random.seed(7)
    firsts = set()
    for _ in range(20):
        pauses: list[float] = []
        attempt(Flaky(TransientError()), Retry(first=1.0), pauses.append)
        firsts |= set(pauses)
    assert len(firsts) == 20
    assert all(1.0 <= p <= 1.5 for p in firsts)


def test_no_retries() -> None:
    call = Flaky(TransientError("once"))
    with pytest.raises(TransientError):
        attempt(call, Retry(times=0), lambda _: pytest.fail("slept"))


def test_interrupts_are_never_held_back() -> None:
    def call() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(call, Retry(on=Exception), lambda _: pytest.fail("slept"))


@pytest.mark.parametrize("wrong", [{"times": -1}, {"first": -0.1}])
def test_impossible_policies(wrong: dict[str, float]) -> None:
    with pytest.raises(DefinitionError, match="can be negative"):
        Retry(**wrong)  # type: ignore[arg-type]


class Busy(Exception):
    """A user's own error."""


def test_a_job_is_as_patient_as_its_most_patient_transform() -> None:
    assert merged([]) == Retry()
    assert merged([Retry(times=0)]) == Retry(times=0)
    both = merged([Retry(times=1, first=2.0, on=Busy), Retry(times=5, on=(OSError, Busy))])
    assert both == Retry(times=5, first=2.0, on=(Busy, OSError))


@pytest.mark.parametrize(
    ("error", "retries", "calls"),
    [
        (TransientError("passing"), [], 4),
        (TransientError("passing"), [Retry(times=0)], 1),
        (TransientError("passing"), [Retry(times=0), Retry(times=2)], 3),
        (WorkerLost("gone"), [Retry(times=0)], 4),
        (TransformFailed("Busy: come back later"), [Retry(times=1)], 1),
        (TransformFailed("Busy: come back later"), [Retry(times=1, on=Busy)], 2),
        (TransformFailed("ValueError: bad"), [Retry(times=1, on=Busy)], 1),
    ],
)
def test_errors_of_a_job(error: Exception, retries: list[Retry], calls: int) -> None:
    made = []

    def job() -> None:
        made.append(1)
        raise error

    with pytest.raises(type(error)):
        attempt_job(job, retries, lambda _: None)
    assert len(made) == calls
