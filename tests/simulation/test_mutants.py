"""A simulation that finds nothing is worth something only if it finds what was broken on purpose."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import simulate

_AT_MOST = 300


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_notices(name: str) -> None:
    with MUTANTS[name]():
        assert any(simulate(seed).violation for seed in range(_AT_MOST)), f"{name} was not noticed"
