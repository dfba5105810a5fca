"""Source that several threads read at once."""

from __future__ import annotations

import argparse
import gc
import inspect
import time
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.batch.pipeline.fingerprint.syntax import syntax


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Other threads get their turn wherever an object is made, as when Python objects of Spark are freed."""

    def yield_turn(*_: object) -> None:
        time.sleep(1e-6)

    before = gc.get_threshold()
    gc.callbacks.append(yield_turn)
    gc.set_threshold(10, 2, 2)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(yield_turn)


@pytest.mark.usefixtures("interrupted")
def test_threads_read_source_at_once() -> None:
    functions: list[types.FunctionType | type] = [argparse.ArgumentParser]
    functions += [f for f in vars(inspect).values() if isinstance(f, types.FunctionType)][:20]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [syntax(function) for function in functions], range(8)))
    assert all(each == found[0] for each in found)
    assert len(set(found[0])) == len(functions)
