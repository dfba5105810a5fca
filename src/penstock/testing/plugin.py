"""Fixtures and a marker for pytest: ``pytest_plugins = ["penstock.testing.plugin"]`` in a ``conftest.py``.

================================  =======================================================================
``penstock_clock``                a `ManualClock`
``penstock_store``                a `MemoryStore` on that clock
``failpoints``                    ``failpoints.crash_at("name")``: a block that ends there, with `Crash`;
                                  ``failpoints.meanwhile("name", act)``: somebody else acts there, once;
                                  ``failpoints.environment("name=kill@2")``: variables for a process
``@pytest.mark.failpoint(…)``     ``failpoint("name")``: the test must come to this point, or it fails
================================  =======================================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress

import pytest

from penstock.core.failpoints import VARIABLE, armed, parse
from penstock.sinks.conformance import Crash
from penstock.store.memory import MemoryStore
from penstock.testing.clock import ManualClock

__all__ = ["Crash", "Failpoints", "failpoints", "penstock_clock", "penstock_store"]


class Failpoints:
    """Acts at the points that the code under test comes to."""

    @contextmanager
    def crash_at(self, name: str) -> Iterator[None]:
        """The block ends at the point, which it must reach, as if the process had died there."""

        def crash() -> None:
            raise Crash(name)

        with armed({name: crash}) as reached, suppress(Crash):
            yield
        assert reached, f"nothing came to the failpoint {name}"

    @contextmanager
    def meanwhile(self, name: str, act: Callable[[], object]) -> Iterator[None]:
        """When the block first comes to the point, which it must reach, ``act`` is called."""
        done: list[str] = []

        def once() -> None:
            if not done:
                done.append(name)
                act()

        with armed({name: once}):
            yield
        assert done, f"nothing came to the failpoint {name}"

    def environment(self, points: str) -> dict[str, str]:
        """Variables for a process that is to die or stop: ``"ack.before=kill@2,checkpoint.saved=stop"``."""
        parse(points)
        return {**os.environ, VARIABLE: points}


@pytest.fixture
def failpoints() -> Failpoints:
    return Failpoints()


@pytest.fixture
def penstock_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def penstock_store(penstock_clock: ManualClock) -> MemoryStore:
    return MemoryStore(penstock_clock)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "failpoint(*names): the test must come to these failpoints of Penstock"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    names = {name for mark in item.iter_markers("failpoint") for name in mark.args}
    with armed({name: lambda: None for name in names}) as reached:
        result = yield
    if missed := sorted(names - set(reached)):
        pytest.fail(f"the test did not come to {', '.join(missed)}", pytrace=False)
    return result
