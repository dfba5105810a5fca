"""Trying again after transient errors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

from penstock.batch.pipeline.transforms import Retry
from penstock.errors import TransformFailed, TransientError, WorkerLost

T = TypeVar("T")

_TRANSIENT = (TransientError, ConnectionError, TimeoutError)
_SPARKS_OWN = Retry()


def is_transient(error: BaseException, retry: Retry) -> bool:
    return isinstance(error, (*_TRANSIENT, retry.on))


def attempt(call: Callable[[], T], retry: Retry, sleep: Callable[[float], None] = time.sleep) -> T:
    """The result of ``call``, tried up to ``retry.times`` more times after transient errors."""
    return _attempt(call, lambda error: retry if is_transient(error, retry) else None, sleep)


def attempt_job(call: Callable[[], T], retries: Sequence[Retry], sleep: Callable[[float], None]) -> T:
    """The result of a Spark job that runs DataFrame transforms with these policies.

    The job is one for all of them, so it is tried as often as the most patient one allows. That
    Spark lost a worker is no error of theirs and is tried again whatever they say.
    """
    together = merged(retries)

    def policy(error: Exception) -> Retry | None:
        if isinstance(error, WorkerLost):
            return _SPARKS_OWN
        return together if is_transient(error, together) or _named(error, together) else None

    return _attempt(call, policy, sleep)


def merged(retries: Sequence[Retry]) -> Retry:
    """The policy of a job in which several transforms run; the usual one if there is none."""
    if not retries:
        return _SPARKS_OWN
    kinds = [r.on if isinstance(r.on, tuple) else (r.on,) for r in retries]
    return Retry(
        max(r.times for r in retries),
        max(r.first for r in retries),
        tuple(dict.fromkeys(kind for some in kinds for kind in some)),
    )


def _named(error: Exception, retry: Retry) -> bool:
    """Whether a UDF raised a type of ``retry.on``: from a worker only the name of a user's type arrives."""
    kinds = retry.on if isinstance(retry.on, tuple) else (retry.on,)
    return isinstance(error, TransformFailed) and error.what.partition(":")[0] in {k.__name__ for k in kinds}


def _attempt(
    call: Callable[[], T], policy: Callable[[Exception], Retry | None], sleep: Callable[[float], None]
) -> T:
    for number in count():
        try:
            return call()
        except Exception as error:
            retry = policy(error)
            if retry is None or number >= retry.times:
                raise
            pause = retry.first * 2**number
            sleep(pause + random.uniform(0, pause / 2))
    raise AssertionError("unreachable")
