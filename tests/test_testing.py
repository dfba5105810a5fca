"""`penstock.testing`: what it gathers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock import testing
from penstock.sources import conformance
from penstock.store.conformance import StoreConformance
from penstock.store.memory import MemoryStore


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_resolves(name: str) -> None:
    assert getattr(testing, name)


def test_the_old_places_have_the_same_things() -> None:
    assert testing.MemoryStore is MemoryStore
    assert testing.StoreConformance is StoreConformance
    assert testing.check_source is conformance.check
    assert testing.SOURCE_CHECKS == conformance.NAMES
    with pytest.raises(AttributeError, match="Other"):
        _ = testing.Other


def test_it_needs_neither_pytest_nor_spark() -> None:
    program = (
        "import sys\n"
        "sys.modules['pytest'] = None\n"
        "from penstock import testing\n"
        "[getattr(testing, name) for name in testing.__all__]\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_session_ends_by_the_clock_of_the_test() -> None:
    clock = testing.ManualClock(100.0)
    store = testing.MemoryStore(clock)
    session = store.session(ttl=5)
    clock.move(4)
    assert store.alive([session.id]) == {session.id}
    clock.move(2)
    assert not store.alive([session.id])


def test_points_are_armed_for_the_block_only() -> None:
    from penstock.core.failpoints import reach

    seen: list[str] = []
    with testing.armed({"here": lambda: seen.append("outer")}) as reached:
        with testing.armed({"here": lambda: seen.append("inner"), "there": seen.clear}):
            reach("here")
        reach("here")
        reach("there")
    reach("here")
    assert (seen, reached) == (["inner", "outer"], ["here"])
