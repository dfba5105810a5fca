"""Trying again after transient errors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import TransientError
from penstock.pipeline.transforms import Retry

T = TypeVar("T")

_TRANSIENT = (TransientError, ConnectionError, TimeoutError)


def is_transient(error: BaseException, retry: Retry) -> bool:
    return isinstance(error, (*_TRANSIENT, retry.on))


def attempt(call: Callable[[], T], retry: Retry, sleep: Callable[[float], None] = time.sleep) -> T:
    """The result of ``call``, tried up to ``retry.times`` more times after transient errors."""
    for number in range(retry.times + 1):
        try:
            return call()
        except Exception as error:
            if number == retry.times or not is_transient(error, retry):
                raise
            pause = retry.first * 2**number
            sleep(pause + random.uniform(0, pause / 2))
    raise AssertionError("unreachable")
