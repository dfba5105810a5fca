"""Errors on their way from a worker to the driver."""

from __future__ import annotations

import inspect

import pytest

from penstock import errors
from penstock.errors import (
    CorruptFile,
    PenstockError,
    StorageFull,
    TerminalError,
    TransformFailed,
    TransientError,
    UndeclaredRead,
    WorkerLost,
)
from penstock.spark.faults import WorkerFault, carried, decode, encode, found


def through_spark(error: Exception, where: str = "task") -> Exception:
    """What the driver gets: the text of the worker's exception inside another one."""
    try:
        with carried(where):
            raise error
    except WorkerFault as fault:
        name = type(fault).__name__
        return RuntimeError(f"Job aborted\n  File 'worker.py'\n{name}: {fault}\n\n\tat java.base")


KINDS = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, PenstockError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_arrives_as_itself(kind: type[PenstockError]) -> None:
    sent = kind("what «happened»\nhere", left="some files", hint="type this: `x` <y>")
    got = decode(through_spark(sent))
    assert type(got) is kind
    assert (got.what, got.left, got.hint) == (sent.what, sent.left, sent.hint)


class Busy(TransientError):
    """A user's own."""


class Wrong(TerminalError):
    """A user's own."""


def test_a_users_own_error_arrives_as_the_nearest_of_ours() -> None:
    got = decode(through_spark(Busy("later", hint="wait")))
    assert type(got) is TransientError
    assert str(got) == "later\nnext: wait"
    assert type(decode(through_spark(Wrong("never")))) is TerminalError


def test_any_other_error_keeps_message_and_place() -> None:
    got = decode(through_spark(ValueError("bad value"), "task 7"))
    assert isinstance(got, TransformFailed)
    assert got.what == "task 7: ValueError: bad value"
    assert "test_faults.py" in (got.left or "") and "bad value" in (got.left or "")


def test_people_can_read_it_too() -> None:
    assert "reads trades.price\nnext: add it" in str(
        through_spark(UndeclaredRead("reads trades.price", hint="add it"))
    )


def test_our_own_errors_pass_unchanged() -> None:
    error = StorageFull("full")
    assert decode(error) is error


def test_a_block_without_errors() -> None:
    with carried("task"):
        pass
    with pytest.raises(KeyboardInterrupt), carried("task"):
        raise KeyboardInterrupt


TRACEBACK = """An exception was thrown from the Python worker.
Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main
    process()
  File "user.py", line 5, in f
    raise {error}
{error}

\tat org.apache.spark"""


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ("ConnectionError: refused", TransientError, "user.py:5: ConnectionError: refused"),
        ("ConnectionResetError: refused", TransientError, "user.py:5: ConnectionResetError: refused"),
        ("TimeoutError", TransientError, "user.py:5: TimeoutError: "),
        ("penstock.errors.TransientError: later", TransientError, "user.py:5: TransientError: later"),
        ("ValueError: wrong", TransformFailed, "user.py:5: ValueError: wrong"),
        ("penstock.errors.TerminalError: never", TransformFailed, "user.py:5: TerminalError: never"),
        ("unknown.module.Broken: x", TransformFailed, "Spark: RuntimeError: An exception was thrown"),
    ],
)
def test_errors_of_a_users_own_function_in_spark(error: str, kind: type[PenstockError], said: str) -> None:
    got = decode(RuntimeError(TRACEBACK.format(error=error)))
    assert type(got) is kind
    assert got.what.startswith(said)


def test_errors_that_are_sparks_own() -> None:
    got = decode(RuntimeError("\n\nfirst line\nsecond line"))
    assert isinstance(got, TransformFailed)
    assert got.what == "Spark: RuntimeError: first line"
    assert decode(RuntimeError()).what == "Spark: RuntimeError: no message"


@pytest.mark.parametrize(
    "reason",
    [
        "ExecutorLostFailure (executor 1 exited)",
        "SparkException: Python worker exited unexpectedly (crashed)",
    ],
)
def test_a_lost_process_is_worth_another_try(reason: str) -> None:
    got = decode(
        RuntimeError(f"An error occurred while calling o7.collect.\n: Job aborted: {reason}\n\tat x")
    )
    assert type(got) is WorkerLost
    assert got.what == f"Spark: RuntimeError: Job aborted: {reason}"


def test_found_only_if_there() -> None:
    assert found(RuntimeError("nothing")) is None
    assert isinstance(found(RuntimeError(f"x {encode(CorruptFile('torn'))} y")), CorruptFile)
